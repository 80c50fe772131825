"""Finds the model that is asked for: the embedded one, a folder, or a hub id; says what to do where it cannot.

Everything happens before an engine starts, so that a download has its own limit and both engines get the same files.
"""

import hashlib
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import httpx2
from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    IncompleteSnapshotError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)

from equipoise_evals.model import ModelRef
from equipoise_service.engines.digests import DigestMemo
from equipoise_service.engines.embedded import NAMES, Converter, embedded_model
from equipoise_service.errors import GatedModel, ModelNotAllowed, ModelUnavailable, UnknownModel

_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,95}"
HUB_ID = re.compile(rf"{_WORD}/{_WORD}")
SIMULATED_NAME = re.compile(rf"{_WORD}(/{_WORD})?")
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
NOT_NEEDED = (
    "original/*", "*.pth", "*.gguf", "*.onnx", "*.onnx_data", "onnx/*", "openvino/*", "coreml/*", "*.msgpack", "*.h5",
    "*.ot", "*.tflite", "*.mlmodel",
)  # fmt: skip
"""Files of a hub repository in formats that SGLang is not asked to load."""


class ModelPlaces(NamedTuple):
    """Where models may come from.

    Attributes:
        cache: Folder of the embedded model and of the digest memo.
        converter: What makes the embedded model.
        roots: Folders below which a model folder must lie; None allows any.
        hub_ids: Patterns, as of a shell, of the hub ids that are allowed.
        hub_cache: The hub client's cache; None is its own default.
    """

    cache: Path
    converter: Converter
    roots: Sequence[Path] | None = None
    hub_ids: Sequence[str] = ("*",)
    hub_cache: Path | None = None


def resolve_model(name: str | None, places: ModelPlaces) -> ModelRef:
    """The model with its files on this machine and its revision fixed. Blocks while it downloads.

    Args:
        name: None or ``embedded`` for the embedded model, an absolute path for a folder, else a hub id ``owner/name``.
        places: Where models may come from.

    Raises:
        UnknownModel: Nothing of this name can be a model.
        ModelNotAllowed: It may not be taken from there.
        GatedModel: The hub wants a token or its terms accepted.
        ModelUnavailable: It exists, but its files cannot be had now.
    """
    if name is None or name.lower() in NAMES:
        return embedded_model(places.cache, places.converter)
    if name.startswith("/"):
        return _folder(name, places)
    if HUB_ID.fullmatch(name):
        return _from_hub(name, places)
    raise _no_name(name)


def simulated_model(name: str, places: ModelPlaces) -> ModelRef:
    """A model for simulated engines, which hold none: any name that could be one, under the rules for real ones.

    Raises:
        UnknownModel: No model can have this name.
        ModelNotAllowed: It may not be taken from there.
    """
    if name.startswith("/"):
        _folder(name, places)
    elif not SIMULATED_NAME.fullmatch(name):
        raise _no_name(name)
    elif name.lower() not in NAMES:
        require_listed(name, places.hub_ids)
    # Where none was named, a report must not read as if one had been measured.
    shown = "simulated engines" if name.lower() in NAMES else name
    return ModelRef(name=shown, source="simulated", path=f"/simulated/{name}", revision="simulated")


def require_listed(name: str, patterns: Sequence[str]) -> None:
    """Raise ``ModelNotAllowed`` unless a pattern of the operator's matches."""
    if not any(fnmatchcase(name, pattern) for pattern in patterns):
        raise ModelNotAllowed(f"{name!r} is not among the models that this service compares: {', '.join(patterns)}")


def _no_name(name: str) -> UnknownModel:
    return UnknownModel(
        f"{name!r} is no model: give a hub id like owner/name, the absolute path of a folder, or {NAMES[0]!r}"
    )


def _folder(name: str, places: ModelPlaces) -> ModelRef:
    if "\0" in name or ".." in Path(name).parts:
        raise UnknownModel(f"{name!r} is no model folder: a path may not climb with '..'")
    folder = Path(name).resolve()
    if places.roots is not None and not any(folder.is_relative_to(root.resolve()) for root in places.roots):
        raise ModelNotAllowed(f"{name!r} does not lie in a folder from which models may be taken")
    if not (folder / "config.json").is_file():
        raise UnknownModel(f"{name!r} holds no config.json, so it is no model in the Hugging Face format")
    return ModelRef(name=name, source="folder", path=str(folder), revision=_digest(folder, DigestMemo(places.cache)))


def _digest(folder: Path, memo: DigestMemo) -> str:
    """One digest over the names and contents of config, weights and code."""
    files = sorted({folder / "config.json", *(file for pattern in (*WEIGHTS, "*.py") for file in folder.glob(pattern))})
    lines = "".join(f"{memo.sha256(file)}  {file.name}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def _from_hub(name: str, places: ModelPlaces) -> ModelRef:
    """The snapshot of the hub's newest commit, or, where the hub cannot be asked, the complete one in its cache."""
    require_listed(name, places.hub_ids)
    try:
        path = Path(snapshot_download(name, cache_dir=places.hub_cache, ignore_patterns=list(NOT_NEEDED)))
    except GatedRepoError as gated:
        raise GatedModel(
            f"{name} is gated: accept its terms on the hub and set HF_TOKEN to a token of that account"
        ) from gated
    except RepositoryNotFoundError as unknown:
        raise UnknownModel(
            f"the hub has no model {name}, or it is private and HF_TOKEN is not set to a token that may read it"
        ) from unknown
    except IncompleteSnapshotError as partial:
        raise ModelUnavailable(
            f"{name} is only partly in the cache and the hub cannot be reached; ask again once it can, "
            f"the download continues where it broke off"
        ) from partial
    except LocalEntryNotFoundError as missing:
        raise ModelUnavailable(
            f"{name} is not in the cache and the hub cannot be reached or is switched off (HF_HUB_OFFLINE); "
            f"connect, or give the absolute path of a folder that holds the model"
        ) from missing
    except (httpx2.HTTPError, OSError) as broken:
        raise ModelUnavailable(f"{name} could not be downloaded whole ({broken}); ask again to continue") from broken
    if not (path / "config.json").is_file():
        raise UnknownModel(f"{name} holds no config.json, so it is no model that SGLang can serve")
    return ModelRef(name=name, source="hub", path=str(path), revision=path.name)
