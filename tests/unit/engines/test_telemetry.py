"""Who computed on a GPU while a block decoded, by an NVML whose answers are written here."""

import os
from collections.abc import Callable
from typing import NamedTuple

import pynvml
import pytest

from equipoise_service.engines.device import Gpu
from equipoise_service.engines.telemetry import Telemetry, _foreign_load

GPU = Gpu("gpu")


class Process(NamedTuple):
    """As ``nvmlDeviceGetComputeRunningProcesses`` tells of one."""

    pid: int


class Sample(NamedTuple):
    """As ``nvmlDeviceGetProcessUtilization`` tells of one process in one sampling period."""

    pid: int
    smUtil: int


def raising(code: int) -> Callable[..., object]:
    def refuse(*arguments: object) -> object:
        raise pynvml.NVMLError(code)

    return refuse


def driver(monkeypatch: pytest.MonkeyPatch, pids: list[int], utilization: Callable[..., object]) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", lambda gpu: [Process(pid) for pid in pids])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessUtilization", utilization)


@pytest.mark.parametrize(
    ("pids", "utilization", "load"),
    [
        ([os.getpid()], raising(pynvml.NVML_ERROR_UNKNOWN), []),
        ([os.getpid(), 1], lambda gpu, since: [Sample(1, 40), Sample(os.getpid(), 60)], [1]),
        # It holds memory and computes nothing.
        ([1], lambda gpu, since: [Sample(1, 0)], []),
        ([1], raising(pynvml.NVML_ERROR_NOT_FOUND), []),
        # Nobody can say: what is there may compute.
        ([1], raising(pynvml.NVML_ERROR_NOT_SUPPORTED), [1]),
    ],
)
def test_foreign_load_is_that_of_processes_whose_kernels_ran(
    monkeypatch: pytest.MonkeyPatch, pids: list[int], utilization: Callable[..., object], load: list[int]
) -> None:
    driver(monkeypatch, pids, utilization)
    assert _foreign_load(GPU, 0) == load


async def test_a_block_beside_foreign_kernels_is_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: GPU)
    driver(monkeypatch, [1], lambda gpu, since: [Sample(1, 40)])
    for name in ("ClockInfo", "PowerUsage", "Temperature", "CurrentClocksThrottleReasons"):
        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", raising(pynvml.NVML_ERROR_NOT_SUPPORTED))
    async with Telemetry("") as telemetry:
        pass
    assert telemetry.disturbance() == "processes [1] computed on the GPU"
    assert telemetry.summary()["foreign_processes"] == [1]
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", raising(pynvml.NVML_ERROR_NOT_SUPPORTED))
    assert telemetry.disturbance() is None


async def test_without_a_driver_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", raising(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    async with Telemetry("") as telemetry:
        pass
    assert telemetry.disturbance() is None
    assert list(telemetry.summary()) == ["unavailable"]
