"""A known delay in every decode step, so that tests can make one arm slower by a known amount.

Nothing uses it unless ``EQUIPOISE_TEST_DELAY_US`` is set. An engine that uses it says so in its attestation, with how
long the delay was when it was itself measured: a verdict is held against that, not against what was asked for.
"""

import statistics
import time
from typing import Protocol

import torch

TRIAL_CYCLES = 100_000_000
"""A spin of about 50 ms."""
LIKE = 0.002
MOST_TRIALS = 20
"""Spins until two in a row last within that share of each other: an idle GPU raises its clock only after a while."""
TRIALS = 200
"""Delays of a measurement of their length."""


class Delay(Protocol):
    """A delay of a step."""

    @property
    def measured_us(self) -> float | None:
        """How long it lasts, as measured; None before the first."""
        ...

    def __call__(self) -> None:
        """Make the step longer."""
        ...


class DeviceDelay:
    """Keeps the current stream busy for a time, with torch's spin kernel.

    Args:
        target_us: The time.

    Attributes:
        cycles: What the spin kernel is told; None before the first call, which calibrates and so takes longer.
    """

    def __init__(self, target_us: int) -> None:
        self.target_us = target_us
        self.cycles: int | None = None

    @property
    def measured_us(self) -> float | None:
        """Mean of many spins in a row between two events, launch gaps included, measured anew each time it is read.

        A number of cycles lasts as long as the GPU's clock has it, which rises with work.
        """
        return None if self.cycles is None else spins_us(self.cycles, TRIALS) / TRIALS

    def __call__(self) -> None:
        """Enqueue the delay."""
        if self.cycles is None:
            self.cycles = int(self.target_us * cycles_per_us())
        torch.cuda._sleep(self.cycles)


class HostDelay:
    """Keeps the core busy for a time, where a CPU is the device.

    Args:
        target_us: The time.

    Attributes:
        measured_us: Median of the first delays, at most `TRIALS`; None before the first.
    """

    def __init__(self, target_us: int) -> None:
        self.target_us = target_us
        self._took_us: list[float] = []

    @property
    def measured_us(self) -> float | None:
        """Median of the first delays, None before the first."""
        return statistics.median(self._took_us) if self._took_us else None

    def __call__(self) -> None:
        """Spin until the time is over; sleeping would wake up late by as much as is to be seen."""
        began_ns = now_ns = time.perf_counter_ns()
        while now_ns - began_ns < self.target_us * 1000:
            now_ns = time.perf_counter_ns()
        if len(self._took_us) < TRIALS:
            self._took_us.append((now_ns - began_ns) / 1000)


def cycles_per_us() -> float:
    """Rate of the spin kernel's clock, from a long spin that lasts as long as the one before."""
    before_us = spins_us(TRIAL_CYCLES, 1)
    for _ in range(MOST_TRIALS):
        spin_us = spins_us(TRIAL_CYCLES, 1)
        if abs(spin_us / before_us - 1) <= LIKE:
            break
        before_us = spin_us
    return TRIAL_CYCLES / spin_us


def spins_us(cycles: int, many: int) -> float:
    """Time of so many spins in a row between two events."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(many):
        torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1000
