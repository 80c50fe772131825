"""A known delay on the device in every decode step, so that tests can make one arm slower by a known amount.

Nothing uses it unless ``EQUIPOISE_TEST_DELAY_US`` is set, and an engine that uses it says so in its attestation.
"""

import torch

TRIAL_CYCLES = 10_000_000


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

    def __call__(self) -> None:
        """Enqueue the delay."""
        if self.cycles is None:
            self.cycles = int(self.target_us * cycles_per_us())
        torch.cuda._sleep(self.cycles)


def cycles_per_us() -> float:
    """Rate of the spin kernel's clock, from one long spin between two events after a short one that warms up."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(TRIAL_CYCLES // 10)
    start.record()
    torch.cuda._sleep(TRIAL_CYCLES)
    end.record()
    end.synchronize()
    return TRIAL_CYCLES / (start.elapsed_time(end) * 1000)
