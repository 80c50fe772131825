"""What ended engines left behind on this machine; shared by all comparisons of a service, for it blocks them all."""

import asyncio
import time
from collections.abc import Iterable, Set
from pathlib import Path
from typing import NamedTuple

import psutil

from equipoise_service.engine_processes import engine_processes
from equipoise_service.engines.device import Device, DeviceUse, held

POLL_S = 0.2


class _Memory(NamedTuple):
    device: Device
    before: DeviceUse
    engines: Set[int]


class Leftovers:
    """Processes and device memory that stayed; each is forgotten once it is gone.

    Args:
        folder: Folder below which this data folder's engines keep their files; None where nobody else starts any.
        of: How the names of the folders in it begin whose engines count.
    """

    def __init__(self, folder: Path | None = None, of: str = "") -> None:
        self._folder = folder
        self._of = of
        self._processes: list[psutil.Process] = []
        self._memory: list[_Memory] = []

    async def of_an_earlier_service(self, grace_s: float) -> None:
        """Wait, once, for engines whose service has died: their supervisors end them. Kill what is left after that."""
        if self._folder is None:
            return
        folder, self._folder = self._folder, None
        deadline = time.monotonic() + grace_s
        while engines := await asyncio.to_thread(engines_below, folder, self._of):
            if time.monotonic() >= deadline:
                await asyncio.to_thread(_kill, engines)
                self.processes(engines)
                return
            await asyncio.sleep(POLL_S)

    def processes(self, processes: Iterable[psutil.Process]) -> None:
        """Remember processes that could not be ended."""
        self._processes += processes

    def memory(self, device: Device, before: DeviceUse, engines: Set[int]) -> None:
        """Remember that memory of these engines' processes was not given back to ``device``."""
        self._memory.append(_Memory(device, before, engines))

    def still_there(self) -> list[str]:
        """One line for each leftover that is still there, with its pid and bytes."""
        self._processes = [process for process in self._processes if process.is_running()]
        remaining = [(one, held(one.before, one.device.use(), one.engines)) for one in self._memory]
        self._memory = [one for one, lines in remaining if lines]
        return [f"process {process.pid} of an earlier engine still runs" for process in self._processes] + [
            line for _, lines in remaining for line in lines
        ]


def engines_below(folder: Path, of: str = "") -> list[psutil.Process]:
    """Living processes that were told to keep their step log below ``folder``, in a folder whose name begins so."""
    return [process for process, step_log in engine_processes() if _is_below(step_log, folder, of)]


def _is_below(path: Path, folder: Path, of: str) -> bool:
    return path.is_relative_to(folder) and path.relative_to(folder).as_posix().startswith(of)


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
