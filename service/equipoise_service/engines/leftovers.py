"""What ended engines left behind on this machine; shared by all comparisons of a service, for it blocks them all."""

import asyncio
import time
from collections.abc import Iterable, Set
from pathlib import Path
from typing import NamedTuple

import psutil

from equipoise_service.engine_processes import engine_processes
from equipoise_service.engines.device import Device, DeviceUse, held_now
from equipoise_service.engines.process import KILL_WAIT_S, is_alive

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
        if engines := await self._gone_within(grace_s, self._folder):
            await asyncio.to_thread(_kill, engines)
            self.processes(await self._gone_within(KILL_WAIT_S, self._folder))
        self._folder = None  # not before: whoever comes after one that was cancelled waits on

    async def _gone_within(self, limit_s: float, folder: Path) -> list[psutil.Process]:
        """The engines that are still there, empty as soon as none is."""
        deadline = time.monotonic() + limit_s
        while engines := await asyncio.to_thread(engines_below, folder, self._of):
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(POLL_S)
        return engines

    def processes(self, processes: Iterable[psutil.Process]) -> None:
        """Remember processes that could not be ended."""
        self._processes += processes

    def memory(self, device: Device, before: DeviceUse, engines: Set[int]) -> None:
        """Remember that memory of these engines' processes was not given back to ``device``."""
        self._memory.append(_Memory(device, before, engines))

    def still_there(self) -> list[str]:
        """One line for each leftover that is still there, with its pid and bytes."""
        # One by one: others may be remembered meanwhile.
        for process in [process for process in self._processes if not is_alive(process)]:
            self._processes.remove(process)
        lines = [f"process {process.pid} of an earlier engine still runs" for process in self._processes]
        for memory in [*self._memory]:
            if still := held_now(memory.device, memory.before, memory.engines):
                lines += still
            else:
                self._memory.remove(memory)
        return lines


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
