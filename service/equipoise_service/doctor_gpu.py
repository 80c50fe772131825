"""What a GPU's driver says that would disturb a measurement: each finding with its remedy. It changes nothing."""

from collections.abc import Iterator
from typing import NewType

import pynvml

from equipoise_service.engines.telemetry import REASONS
from equipoise_service.findings import Finding

Gpu = NewType("Gpu", object)
HOT_C = 85


def gpu_findings() -> Iterator[Finding]:
    """The driver, then persistence, clocks, throttling and other users of each GPU."""
    try:
        pynvml.nvmlInit()
        version = _text(pynvml.nvmlSystemGetDriverVersion())
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        remedy = "load the NVIDIA driver; where `nvidia-smi` fails too, reboot or install it again"
        yield Finding(name="driver", state="problem", detail=f"does not answer: {error}", remedy=remedy)
        return
    yield Finding(name="driver", state="ok", detail=f"NVIDIA {version}, {count} GPU{'' if count == 1 else 's'}")
    for index in range(count):
        gpu = Gpu(pynvml.nvmlDeviceGetHandleByIndex(index))
        for look in (_persistence, _clocks, _throttling, _users):
            name = f"GPU {index}, {look.__name__.removeprefix('_')}"
            try:
                yield look(name, index, gpu)
            except pynvml.NVMLError as error:
                yield Finding(name=name, state="ok", detail=f"not told by the driver: {error}")


def _persistence(name: str, index: int, gpu: Gpu) -> Finding:
    if pynvml.nvmlDeviceGetPersistenceMode(gpu) == pynvml.NVML_FEATURE_ENABLED:
        return Finding(name=name, state="ok", detail="on")
    detail = "off: the driver unloads between engines, so that every start is slower and clocks begin low"
    return Finding(name=name, state="warning", detail=detail, remedy=f"nvidia-smi -i {index} -pm 1, as root")


def _clocks(name: str, index: int, gpu: Gpu) -> Finding:
    now = pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)
    most = pynvml.nvmlDeviceGetMaxClockInfo(gpu, pynvml.NVML_CLOCK_SM)
    set_to = pynvml.nvmlDeviceGetApplicationsClock(gpu, pynvml.NVML_CLOCK_SM)
    detail = f"SM at {now} of {most} MHz, applications at {set_to} MHz"
    if set_to < most:
        remedy = f"both arms run at that clock; if nobody meant it, nvidia-smi -i {index} -rac resets it"
        return Finding(name=name, state="warning", detail=detail, remedy=remedy)
    return Finding(name=name, state="ok", detail=detail)


def _throttling(name: str, index: int, gpu: Gpu) -> Finding:
    bits = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
    temperature_c = pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU)
    words = sorted(word for bit, word in REASONS.items() if bits & bit)
    if not words and temperature_c < HOT_C:
        return Finding(name=name, state="ok", detail=f"none, {temperature_c} degrees")
    detail = f"{', '.join(words) or 'none yet'}, {temperature_c} degrees"
    remedy = f"look at cooling and power (nvidia-smi -i {index} -q -d PERFORMANCE,POWER,TEMPERATURE) before measuring"
    return Finding(name=name, state="warning", detail=detail, remedy=remedy)


def _users(name: str, index: int, gpu: Gpu) -> Finding:
    users = {process.pid: process.usedGpuMemory for process in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)}
    if not users:
        return Finding(name=name, state="ok", detail="nobody computes on it")
    shown = ", ".join(f"process {pid} ({_mib(used)})" for pid, used in sorted(users.items()))
    remedy = f"a comparison beside them measures both; end them, or hide GPU {index} with CUDA_VISIBLE_DEVICES"
    return Finding(name=name, state="warning", detail=shown, remedy=remedy)


def _mib(used: int | None) -> str:
    return "unknown memory" if used is None else f"{used >> 20} MiB"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
