"""The memory of the device that engines share: who holds how much of it, and whether an engine gave its own back.

An engine's process can be gone while the driver still holds its memory, and a KV pool is sized by what is free: the
next engine would get another pool, or none. Nothing is started or ended here.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Mapping, Set
from typing import NamedTuple, NewType, Protocol

import psutil
import pynvml

from equipoise_service.engines.backends import Capability

Gpu = NewType("Gpu", object)
"""NVML's handle of a device."""
TOLERANCE_BYTES = 256 * 1024 * 1024
"""The driver's own use moves by so much when contexts come and go; an engine holds gigabytes."""
POLL_S = 0.1


class DeviceUnreachable(Exception):
    """The driver cannot say what a device is used for; the message is the driver's."""


class DeviceUse(NamedTuple):
    """What a device's memory is used for.

    Attributes:
        used_bytes: All of it, the driver's own included.
        by_pid: Bytes by computing process; 0 where the driver does not say how many.
    """

    used_bytes: int
    by_pid: Mapping[int, int]


class Device(Protocol):
    """A device whose memory can be asked for."""

    def use(self) -> DeviceUse:
        """What its memory is used for now.

        Raises:
            DeviceUnreachable: Nobody can say.
        """
        ...


class NvmlDevice:
    """GPUs as one device, by NVML; raises ``pynvml.NVMLError`` where the driver cannot be asked.

    Args:
        visible: The value of ``CUDA_VISIBLE_DEVICES``.
        gpus: How many of them engines use, the first ones.
    """

    def __init__(self, visible: str | None = None, gpus: int = 1) -> None:
        pynvml.nvmlInit()
        named = (os.environ.get("CUDA_VISIBLE_DEVICES", "") if visible is None else visible).split(",")
        names = named if named != [""] else [str(index) for index in range(gpus)]
        self._gpus = [first_visible(name) for name in names[:gpus]]

    def capability(self) -> Capability:
        """Its compute capability."""
        return Capability(*pynvml.nvmlDeviceGetCudaComputeCapability(self._gpus[0]))

    def uuid(self) -> str:
        """The first of them, as an engine on it attests."""
        uuid = pynvml.nvmlDeviceGetUUID(self._gpus[0])
        return uuid.decode() if isinstance(uuid, bytes) else str(uuid)

    def total_bytes(self) -> int:
        """Memory of the first of them."""
        return int(pynvml.nvmlDeviceGetMemoryInfo(self._gpus[0]).total)

    def use(self) -> DeviceUse:
        """What their memory is used for now."""
        used_bytes, by_pid = 0, Counter[int]()
        try:
            for gpu in self._gpus:
                used_bytes += int(pynvml.nvmlDeviceGetMemoryInfo(gpu).used)
                for process in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu):
                    by_pid[process.pid] += int(process.usedGpuMemory or 0)
        except pynvml.NVMLError as error:
            raise DeviceUnreachable(str(error)) from error
        return DeviceUse(used_bytes=used_bytes, by_pid=dict(by_pid))


def first_visible(visible: str) -> Gpu:
    """The first GPU that ``CUDA_VISIBLE_DEVICES`` names, the first of all if it names none."""
    first = visible.partition(",")[0].strip()
    if first.startswith("GPU-"):
        return Gpu(pynvml.nvmlDeviceGetHandleByUUID(first.encode()))
    return Gpu(pynvml.nvmlDeviceGetHandleByIndex(int(first) if first.isdigit() else 0))


def not_ours(pids: Set[int]) -> list[int]:
    """Those of these processes that are neither this one nor a descendant of it."""
    ours = {child.pid for child in psutil.Process().children(recursive=True)} | {os.getpid()}
    return sorted(pids - ours)


def held(before: DeviceUse, now: DeviceUse, engines: Set[int]) -> list[str]:
    """What processes of ended engines hold, and what nobody visible holds; empty if all memory is back.

    Args:
        before: The use before these engines were started.
        now: The use after they ended.
        engines: Every process that they had on the device.
    """
    lines = [
        f"process {pid} holds {now.by_pid[pid]} bytes of device memory" for pid in sorted(engines & set(now.by_pid))
    ]
    others_before, others_now = (
        sum(size for pid, size in use.by_pid.items() if pid not in engines) for use in (before, now)
    )
    of_engines = sum(now.by_pid.get(pid, 0) for pid in engines)
    lost = (now.used_bytes - others_now - of_engines) - (before.used_bytes - others_before)
    if lost > TOLERANCE_BYTES:
        lines.append(f"{lost} bytes of device memory are held by no process that can be seen")
    return lines


def held_now(device: Device, before: DeviceUse, engines: Set[int]) -> list[str]:
    """What ``held`` says of a device's use now; that nobody can say is a line too."""
    try:
        return held(before, device.use(), engines)
    except DeviceUnreachable as unreachable:
        return [f"nobody can say what ended engines hold of the device: {unreachable}"]


async def until_given_back(device: Device, before: DeviceUse, engines: Set[int], limit_s: float) -> list[str]:
    """Wait until ended engines have given their memory back; what is held after ``limit_s`` at the latest."""
    deadline = time.monotonic() + limit_s
    while left := await asyncio.to_thread(held_now, device, before, engines):
        if time.monotonic() >= deadline:
            return left
        await asyncio.sleep(POLL_S)
    return []
