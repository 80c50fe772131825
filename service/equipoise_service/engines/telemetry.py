"""What a GPU says of itself while a block decodes: clocks, power, temperature, throttling, who else computes on it.

Sampled beside the block through NVML and summed up; the judge reads none of it, people do when a block looks odd.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import pynvml
from pydantic import JsonValue

from equipoise_service.engines.device import Gpu, first_visible, not_ours
from equipoise_service.tasks import cancelled

PERIOD_S = 0.25
REASONS = {
    pynvml.nvmlClocksThrottleReasonApplicationsClocksSetting: "applications_clocks",
    pynvml.nvmlClocksThrottleReasonSwPowerCap: "power_cap",
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "hardware_slowdown",
    pynvml.nvmlClocksThrottleReasonSyncBoost: "sync_boost",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "software_thermal",
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "hardware_thermal",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power_brake",
}
"""Reasons that slow a busy GPU down; an idle one and a clock set on purpose are no finding."""
QUANTITIES: Mapping[str, Callable[[Gpu | None], float]] = {
    "sm_clock_mhz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    "power_w": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "temperature_c": lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
}


class Telemetry:
    """Samples one GPU while a context lasts; ``summary`` is what it saw.

    Args:
        visible: The value of ``CUDA_VISIBLE_DEVICES``; its first entry is the GPU, the first of all if it is empty.
    """

    def __init__(self, visible: str | None = None) -> None:
        self._visible = os.environ.get("CUDA_VISIBLE_DEVICES", "") if visible is None else visible
        self._samples: dict[str, list[float]] = {name: [] for name in QUANTITIES}
        self._reasons: set[str] = set()
        self._missing: dict[str, str] = {}
        self._gpu: Gpu | None = None
        self._sampling: asyncio.Task[None] | None = None
        self._began_us = time.time_ns() // 1000  # NVML stamps its samples with the wall clock

    async def __aenter__(self) -> "Telemetry":
        """Start sampling."""
        try:
            pynvml.nvmlInit()
            self._gpu = first_visible(self._visible)
        except pynvml.NVMLError as error:
            self._missing["nvml"] = str(error)
            return self
        self._sampling = asyncio.create_task(self._sample())
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop sampling, after one sample more."""
        if self._sampling is None:
            return
        await cancelled(self._sampling)
        await asyncio.to_thread(self._once)

    async def _sample(self) -> None:
        while True:
            await asyncio.to_thread(self._once)
            await asyncio.sleep(PERIOD_S)

    def _once(self) -> None:
        for name, read in QUANTITIES.items():
            try:
                self._samples[name].append(read(self._gpu))
            except pynvml.NVMLError as error:
                self._missing[name] = str(error)
        try:
            bits = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._gpu)
            self._reasons |= {word for bit, word in REASONS.items() if bits & bit}
        except pynvml.NVMLError as error:
            self._missing["throttle_reasons"] = str(error)

    def disturbance(self) -> str | None:
        """Why the block counts as disturbed: others computed on the GPU meanwhile; None if nobody is known to have."""
        if self._gpu is None:
            return None
        try:
            computing = _foreign_load(self._gpu, self._began_us)
        except pynvml.NVMLError:
            return None  # the summary says that it is not known
        return f"processes {computing} computed on the GPU" if computing else None

    def summary(self) -> dict[str, JsonValue]:
        """Least, median and largest value of each quantity, reasons of throttling, and processes that are not ours.

        What could not be read is absent and named in ``unavailable`` with the driver's reason.
        """
        found: dict[str, JsonValue] = {
            name: {"min": min(values), "median": median(values), "max": max(values), "samples": len(values)}
            for name, values in self._samples.items()
            if values
        }
        if self._gpu is not None:
            if "throttle_reasons" not in self._missing:
                found["throttle_reasons"] = [*sorted(self._reasons)]
            try:
                found["foreign_processes"] = list(_foreign_processes(self._gpu))
            except pynvml.NVMLError as error:
                self._missing["foreign_processes"] = str(error)
        return found | ({"unavailable": dict(self._missing)} if self._missing else {})


def _foreign_processes(gpu: Gpu) -> Sequence[int]:
    """Processes that compute on the GPU and are no descendants of this one."""
    return not_ours({process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)})


def _foreign_load(gpu: Gpu, since_us: int) -> Sequence[int]:
    """Foreign processes whose kernels ran since then; all that are there where the driver cannot tell."""
    foreign = _foreign_processes(gpu)
    if not foreign:
        return foreign
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(gpu, since_us)
    except pynvml.NVMLError_NotFound:  # no process used it
        return []
    except pynvml.NVMLError:
        return foreign
    return sorted({sample.pid for sample in samples if sample.smUtil > 0} & set(foreign))
