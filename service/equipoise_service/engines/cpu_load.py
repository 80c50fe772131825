"""Whether somebody else computed on this machine's cores while a block decoded.

The kernel's count of busy time on the cores that engines may use, less what this service and everything below it took.
"""

import asyncio
import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import psutil
from pydantic import JsonValue

DISTURBING_CORES = 0.5
"""An engine decodes on about one core; half a core beside it still fits on a machine with two."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Reading(NamedTuple):
    """Seconds at one moment: a monotonic clock, cores that were busy, and what of that was ours."""

    at_s: float
    busy_s: float
    ours_s: float


class CpuLoad:
    """Watches the load while a context lasts, by its two ends alone: reading costs as much as a decode step."""

    def __init__(self) -> None:
        self._readings: list[Reading] = []

    async def __aenter__(self) -> "CpuLoad":
        """Take the first reading."""
        self._readings.append(await asyncio.to_thread(_read))
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Take the last reading."""
        self._readings.append(await asyncio.to_thread(_read))

    def summary(self) -> dict[str, JsonValue]:
        """Cores that others kept busy, on average."""
        return {"foreign_cores": round(foreign_cores(*self._readings), 3)}

    def disturbance(self) -> str | None:
        """Why the block counts as disturbed; None if it does not."""
        return disturbance(foreign_cores(*self._readings))


def foreign_cores(first: Reading, last: Reading) -> float:
    """Cores that others kept busy between two readings; never below 0, since the two counts are not read at once."""
    busy_s, ours_s = last.busy_s - first.busy_s, last.ours_s - first.ours_s
    return max(0.0, (busy_s - ours_s) / (last.at_s - first.at_s))


def disturbance(cores: float) -> str | None:
    """The sentence for so many foreign cores."""
    return f"other processes kept {cores:.1f} cores busy" if cores > DISTURBING_CORES else None


def busy_seconds(stat: str, cores: Collection[int]) -> float:
    """Busy seconds of these cores since boot, out of the text of ``/proc/stat`` (proc(5)).

    Busy is user, nice, system, irq, softirq and steal; a core's guests are in user already.
    """
    ticks = 0
    for line in stat.splitlines():
        name, *counts = line.split()
        if name.startswith("cpu") and name != "cpu" and int(name[3:]) in cores:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, counts[:8])
            ticks += user + nice + system + irq + softirq + steal
    return ticks / TICKS_PER_S


def _read() -> Reading:
    stat = Path("/proc/stat").read_text()
    return Reading(time.monotonic(), busy_seconds(stat, os.sched_getaffinity(0)), _ours())


def _ours() -> float:
    """Seconds of processor that this process and everything below it that still lives has taken."""
    own = psutil.Process()
    taken_s = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        taken_s += times.user + times.system
    return taken_s
