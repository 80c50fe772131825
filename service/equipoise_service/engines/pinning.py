"""Pins the scheduler of a CPU engine to one core, which halves the spread of its step times.

Both engines of a pair get the same core: they never decode at the same time, and cores of one machine may differ.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import psutil

SCHEDULER = "scheduler"
"""SGLang names its processes ``sglang::scheduler`` and so on."""


def pin_scheduler(members: Iterable[psutil.Process]) -> int | None:
    """Bind every thread of the scheduler process to the last allowed core.

    Returns:
        The core; None if there is one core alone or no process is named as the scheduler, and nothing was changed.
    """
    allowed = sorted(os.sched_getaffinity(0))
    schedulers = [process for process in members if _is_scheduler(process)]
    if len(allowed) < 2 or not schedulers:
        return None
    for scheduler in schedulers:
        for thread in Path(f"/proc/{scheduler.pid}/task").iterdir():
            try:
                os.sched_setaffinity(int(thread.name), {allowed[-1]})
            except ProcessLookupError:
                continue  # the thread ended
    return allowed[-1]


def _is_scheduler(process: psutil.Process) -> bool:
    try:
        return SCHEDULER in " ".join(process.cmdline()) and "sglang::" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False
