"""A copy of a live SQLite database, through SQLite's own backup, and the proof that it can be used."""

import hashlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

CHUNK_BYTES = 1 << 20
BUSY_TIMEOUT_S = 30.0


class BackupFailed(Exception):
    """No usable copy was made; nothing of it is left."""


class Backup(NamedTuple):
    """What a copy holds.

    Attributes:
        schema: Revision of its tables, as the copied database had it: a copy is never migrated.
        comparisons: How many it holds.
        size: Of the file, in bytes.
        sha256: Digest of the file.
    """

    schema: str
    comparisons: int
    size: int
    sha256: str


def back_up(database: Path, target: Path) -> Backup:
    """Copy a SQLite database into a new file that only its owner can read.

    The copy is one state of the database, however much is written to it meanwhile; writers are not held up. It is
    checked before it gets its name: its own integrity, its foreign keys, and that every comparison can be read.

    Args:
        database: The file; what is still in its write-ahead log is copied too.
        target: Where the copy goes; must not exist.

    Raises:
        FileExistsError: There is something at ``target`` already.
        BackupFailed: The database cannot be read, the copy cannot be written, or it is not sound.
    """
    if target.exists():
        raise FileExistsError(f"{target} exists already")
    partial = target.with_name(f".{target.name}.partial")
    try:
        partial.unlink(missing_ok=True)  # of a backup that was killed
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        _copy(database, partial)
        found = _checked(partial)
        os.link(partial, target)  # unlike a rename it never takes the place of a file that appeared meanwhile
    except sqlite3.Error as error:
        raise BackupFailed(f"{database} cannot be copied to {target}: {error}") from error
    except OSError as error:
        raise BackupFailed(f"{target} cannot be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)
    return found


def _copy(database: Path, partial: Path) -> None:
    with (
        closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S)) as source,
        closing(sqlite3.connect(partial)) as copy,
    ):
        source.backup(copy)
        # One file: whoever moves the copy need not know of write-ahead logs. A service that opens it goes back to one.
        copy.execute("PRAGMA journal_mode=DELETE")


def _checked(copy: Path) -> Backup:
    with closing(sqlite3.connect(f"{copy.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        integrity = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
        if integrity != ["ok"]:
            raise BackupFailed(f"the copy is not sound: {integrity[0]}")
        if dangling := connection.execute("PRAGMA foreign_key_check").fetchall():
            raise BackupFailed(f"{len(dangling)} rows of the copy belong to no comparison")
        (schema,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        comparisons = sum(1 for _ in connection.execute("SELECT * FROM comparisons"))
    digest = hashlib.sha256()
    with copy.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
        os.fsync(file.fileno())
    return Backup(str(schema), comparisons, copy.stat().st_size, digest.hexdigest())
