"""SHA-256 of large files, remembered by size and time of change: hashing 16 GB before every comparison takes seconds.

The memo is a file in the cache. It never vouches for a file whose size, inode or time of change differ.
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path

PIECE_BYTES = 1 << 22


class DigestMemo:
    """Digests of files, kept in ``CACHE/digests.json``."""

    def __init__(self, cache: Path) -> None:
        self._file = cache / "digests.json"

    def sha256(self, path: Path) -> str:
        """The file's SHA-256 in hexadecimal."""
        stat = path.stat()
        state = f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ino}"
        known = self._load()
        key = str(path.resolve())
        remembered = known.get(key, {})
        if remembered.get("state") == state:
            return remembered["sha256"]
        digest = _sha256(path)
        self._store(key, {"state": state, "sha256": digest})
        return digest

    def _load(self) -> dict[str, dict[str, str]]:
        try:
            known: dict[str, dict[str, str]] = json.loads(self._file.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}  # nothing is remembered; everything is hashed again
        return known

    def _store(self, key: str, value: dict[str, str]) -> None:
        """Replace the file whole; a digest that another process added meanwhile is only computed again."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self._file.parent, prefix=".digests-")
        try:
            with os.fdopen(handle, "w") as partial:
                json.dump({**self._load(), key: value}, partial)
            Path(name).replace(self._file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
