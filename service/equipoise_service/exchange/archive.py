"""Exports as files: a manifest with the digest of every other file, in a folder or in one ``.tar.zst``."""

import hashlib
import os
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pydantic import Field, ValidationError

from equipoise_evals.model import Frozen

MANIFEST = "manifest.json"
COMPARISONS = "comparisons"
ENDING = ".tar.zst"
CHUNK_BYTES = 1 << 20


class ExportRefused(Exception):
    """An export cannot be used; nothing was imported. The sentence names the file concerned."""


class ExportedFile(Frozen):
    """One file of an export; ``path`` is relative to its root, with ``/`` between its parts."""

    path: str
    size: int = Field(ge=0)
    sha256: str


class Manifest(Frozen):
    """What an export holds, its comparisons oldest first and its files by path."""

    format: Literal["equipoise-export"] = "equipoise-export"
    version: Literal[1] = 1
    comparisons: tuple[str, ...]
    files: tuple[ExportedFile, ...]


@contextmanager
def new_export(target: Path) -> Iterator[Path]:
    """A folder to write an export's files into; on leaving it gets its manifest and, whole, its place.

    Args:
        target: A path that ends with ``.tar.zst`` becomes an archive, any other a folder; must not exist.

    Raises:
        FileExistsError: There is something at ``target``.
    """
    if target.exists():
        raise FileExistsError(f"{target} exists already")
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.absolute().parent) as work:
        root = Path(work, "export")
        (root / COMPARISONS).mkdir(parents=True)
        yield root
        manifest = manifest_of(root)
        (root / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
        if target.name.endswith(ENDING):
            packed = Path(work, "packed")
            _pack(root, packed)
            os.link(packed, target)  # which, other than renaming, takes no place that somebody took meanwhile
        else:
            root.rename(target)


def manifest_of(root: Path) -> Manifest:
    """The manifest of the files below a folder."""
    paths = sorted(path for path in root.rglob("*") if not path.is_dir() and path != root / MANIFEST)
    return Manifest(
        comparisons=tuple(sorted(path.name for path in (root / COMPARISONS).iterdir())),
        files=tuple(
            ExportedFile(
                path=path.relative_to(root).as_posix(),
                size=path.lstat().st_size,
                sha256=sha256_of(path),
            )
            for path in paths
        ),
    )


def sha256_of(path: Path) -> str:
    """Digest of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _pack(root: Path, packed: Path) -> None:
    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        member.mode = 0o755 if member.isdir() else 0o644
        return member

    with (
        pa.OSFile(str(packed), "wb") as file,
        pa.CompressedOutputStream(file, "zstd") as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(root.rglob("*")):
            tar.add(path, f"export/{path.relative_to(root).as_posix()}", recursive=False, filter=anonymous)


@contextmanager
def opened_export(source: Path) -> Iterator[tuple[Path, Manifest]]:
    """An export's folder, each of its files as the manifest says, and no other.

    Raises:
        ExportRefused: It is no export, or a file differs from its digest, is missing or is not in the manifest.
    """
    if source.is_dir():
        yield source, verified(source)
        return
    with tempfile.TemporaryDirectory(prefix="equipoise-import-") as work:
        _unpack(source, Path(work))
        root = Path(work, "export")
        yield root, verified(root)


def _unpack(source: Path, into: Path) -> None:
    try:
        with (
            pa.OSFile(str(source), "rb") as file,
            pa.CompressedInputStream(file, "zstd") as plain,
            tarfile.open(fileobj=plain, mode="r|") as tar,
        ):
            # "data" refuses what would leave the folder: absolute paths, "..", links and devices.
            tar.extractall(into, filter="data")
    except FileNotFoundError as missing:
        raise ExportRefused(f"there is no {source}") from missing
    except (OSError, tarfile.TarError, EOFError) as broken:
        raise ExportRefused(f"{source} is no archive as `equipoise export` writes them: {broken}") from broken


def verified(root: Path) -> Manifest:
    """The manifest of an export's folder, which says the truth about it.

    Raises:
        ExportRefused: It does not.
    """
    try:
        manifest = Manifest.model_validate_json((root / MANIFEST).read_bytes())
    except FileNotFoundError as missing:
        raise ExportRefused(f"{root} has no {MANIFEST}, so it is no export") from missing
    except ValidationError as wrong:
        raise ExportRefused(f"{MANIFEST} is not an export's: {wrong.errors()[0]['msg']}") from wrong
    linked = [path for path in root.rglob("*") if path.is_symlink()]
    if linked:
        raise ExportRefused(f"{linked[0].relative_to(root)} is a link; an export holds files only")
    found = manifest_of(root) if (root / COMPARISONS).is_dir() else Manifest(comparisons=(), files=())
    said = {file.path: file for file in manifest.files}
    there = {file.path: file for file in found.files}
    for path in sorted(said.keys() | there.keys()):
        if path not in there:
            raise ExportRefused(f"{path} is missing")
        if path not in said:
            raise ExportRefused(f"{path} is not in the manifest")
        if said[path] != there[path]:
            raise ExportRefused(
                f"{path} is not what was exported: its SHA-256 is {there[path].sha256}, the manifest says "
                f"{said[path].sha256}"
            )
    if manifest.comparisons != found.comparisons:
        raise ExportRefused(f"the manifest names other comparisons than there are below {COMPARISONS}/")
    return manifest
