"""Device memory after an engine's end. Expected lines are what the bytes of each case add up to, by hand."""

import os

import pynvml
import pytest

from equipoise_service.engines import device
from equipoise_service.engines.device import DeviceUse, NvmlDevice, held, until_given_back
from equipoise_service.engines.leftovers import Leftovers

GIB = 1024**3
BEFORE = DeviceUse(GIB // 2, {})


class Device:
    """Answers with one use after the other, and with the last for ever."""

    def __init__(self, *uses: DeviceUse) -> None:
        self._uses = list(uses)

    def use(self) -> DeviceUse:
        return self._uses.pop(0) if len(self._uses) > 1 else self._uses[0]


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        (BEFORE, BEFORE, []),
        (BEFORE, DeviceUse(BEFORE.used_bytes + device.TOLERANCE_BYTES, {}), []),
        (
            BEFORE,
            DeviceUse(BEFORE.used_bytes + 2 * GIB, {}),
            [f"{2 * GIB} bytes of device memory are held by no process that can be seen"],
        ),
        (BEFORE, DeviceUse(BEFORE.used_bytes + GIB, {7: GIB}), [f"process 7 holds {GIB} bytes of device memory"]),
        # Somebody else came meanwhile: not what our engine left.
        (BEFORE, DeviceUse(BEFORE.used_bytes + GIB, {8: GIB}), []),
        # Somebody else left meanwhile: what our engine left shows nevertheless.
        (
            DeviceUse(BEFORE.used_bytes + GIB, {8: GIB}),
            DeviceUse(BEFORE.used_bytes + GIB, {}),
            [f"{GIB} bytes of device memory are held by no process that can be seen"],
        ),
    ],
)
def test_what_is_held(before: DeviceUse, now: DeviceUse, says: list[str]) -> None:
    assert held(before, now, {7}) == says


async def test_memory_that_comes_back_late_is_waited_for() -> None:
    full = DeviceUse(BEFORE.used_bytes + GIB, {7: GIB})
    assert await until_given_back(Device(full, full, BEFORE), BEFORE, {7}, limit_s=5) == []
    assert len(await until_given_back(Device(full), BEFORE, {7}, limit_s=0.0)) == 1


def test_leftovers_are_forgotten_once_they_are_gone() -> None:
    leftovers = Leftovers()
    full = DeviceUse(BEFORE.used_bytes + GIB, {7: GIB})
    leftovers.memory(Device(full, BEFORE, full), BEFORE, {7})
    assert leftovers.still_there() == [f"process 7 holds {GIB} bytes of device memory"]
    assert leftovers.still_there() == []
    assert leftovers.still_there() == []


def test_nvml_is_asked_for_memory_and_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's structures as ``nvidia-ml-py`` documents them; a process whose memory is not said counts as 0."""

    class Info:
        used = 3 * GIB
        total = 140 * GIB

    class Process:
        def __init__(self, pid: int, used: int | None) -> None:
            self.pid, self.usedGpuMemory = pid, used

    asked: list[object] = []
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    for name in ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByUUID"):
        monkeypatch.setattr(pynvml, name, asked.append)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda gpu: Info)
    processes = [Process(7, GIB), Process(8, None)]
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", lambda gpu: processes)
    for visible in ("", "2,3", "GPU-abc,1"):
        assert NvmlDevice(visible).use() == DeviceUse(3 * GIB, {7: GIB, 8: 0})
    assert asked == [0, 2, b"GPU-abc"]
    asked.clear()
    assert NvmlDevice("2,3", 2).use() == DeviceUse(6 * GIB, {7: 2 * GIB, 8: 0})
    assert NvmlDevice("", 2).total_bytes() == 140 * GIB
    assert asked == [2, 3, 0, 1]
    for told in ("GPU-1", b"GPU-1"):  # by version of nvidia-ml-py
        monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda gpu, told=told: told)
        assert NvmlDevice("2").uuid() == "GPU-1"


def test_this_process_is_not_foreign_and_init_is() -> None:
    assert device.not_ours({1, os.getpid()}) == [1]
