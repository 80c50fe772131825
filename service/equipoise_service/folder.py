"""The data folder: held by one service at a time, which notes there who it is and where it listens."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from equipoise_evals.model import Frozen
from equipoise_service.errors import DataInUse, SettingsError

LOCK = "service.lock"
NOTE = "service.json"
PATIENCE_S = 1.0
"""Who asks whose the folder is holds it for a moment; so does a killed service's child that has no program yet."""


class Holder(Frozen):
    """The service that holds a data folder; ``url`` is None where nobody but itself should use it."""

    pid: int
    url: str | None


def prepare(folder: Path) -> None:
    """Make the data folder if there is none.

    Raises:
        SettingsError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # secrets of webhooks are in there
    except OSError as unusable:
        raise SettingsError("EQUIPOISE_DATA", f"{folder} cannot be made a folder: {unusable.strerror}") from unusable


@contextlib.contextmanager
def holding(folder: Path, url: str | None) -> Iterator[None]:
    """Hold the folder; the kernel lets go of it when this process ends, however it ends.

    Raises:
        DataInUse: Another service holds it.
    """
    prepare(folder)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=PATIENCE_S)
    except Timeout as held:
        holder = _note(folder)
        raise DataInUse(folder, f"process {holder.pid}" if holder else "another service") from held
    try:
        (folder / NOTE).write_text(Holder(pid=os.getpid(), url=url).model_dump_json())
        yield
    finally:
        (folder / NOTE).unlink(missing_ok=True)
        lock.release()


def holder_of(folder: Path) -> Holder | None:
    """Who holds the folder now; None if nobody does."""
    lock = FileLock(folder / LOCK)
    if not folder.is_dir():
        return None
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return _note(folder)
    lock.release()
    return None


def _note(folder: Path) -> Holder | None:
    try:
        return Holder.model_validate_json((folder / NOTE).read_text())
    except (FileNotFoundError, ValidationError):
        return None  # its holder is just starting or ending
