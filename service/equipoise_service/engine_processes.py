"""Engine processes of this machine, told apart by the step log that each was told to write."""

from collections.abc import Iterator
from pathlib import Path

import psutil

STEP_LOG = "EQUIPOISE_STEP_LOG"
"""Set for every engine; its value says which data folder the engine belongs to."""


def engine_processes() -> Iterator[tuple[psutil.Process, Path]]:
    """Every process of an engine that may be looked at, with its step log."""
    for process in psutil.process_iter():
        try:
            path = process.environ().get(STEP_LOG)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # gone, or another user's and so not ours
        if path is not None:
            yield process, Path(path)


def engine_memory_bytes(data: Path) -> int:
    """Resident memory of the engine processes that belong to a data folder."""
    total = 0
    for process, step_log in engine_processes():
        if step_log.is_relative_to(data):
            try:
                total += process.memory_info().rss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
    return total
