"""What ended engines left behind on this machine; shared by all comparisons of a service, for it blocks them all."""

from collections.abc import Iterable, Set
from typing import NamedTuple

import psutil

from equipoise_service.engines.device import Device, DeviceUse, held


class _Memory(NamedTuple):
    device: Device
    before: DeviceUse
    engines: Set[int]


class Leftovers:
    """Processes and device memory that stayed; each is forgotten once it is gone."""

    def __init__(self) -> None:
        self._processes: list[psutil.Process] = []
        self._memory: list[_Memory] = []

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
