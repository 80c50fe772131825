"""A delay on a device is as long as asked by the clock of a GPU that works, and is measured when it is asked for."""

import pytest

from equipoise_backends import delay
from equipoise_backends.delay import DeviceDelay, cycles_per_us


class Device:
    """Spins on a device whose clock rises, spin by spin, from 345 to 1,980 MHz; the last one stays."""

    def __init__(self, *mhz: float) -> None:
        self.mhz = list(mhz)

    def spins_us(self, cycles: int, many: int) -> float:
        """How long they take; a gap of 1.5 us comes with each."""
        mhz = self.mhz.pop(0) if len(self.mhz) > 1 else self.mhz[0]
        return many * (cycles / mhz + 1.5)


def test_the_clock_is_read_once_the_device_has_raised_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay, "spins_us", Device(345, 1_200, 1_755, 1_980).spins_us)
    assert cycles_per_us() == pytest.approx(1_980, rel=1e-4)


def test_a_clock_that_never_rests_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay, "spins_us", Device(*([1_000, 1_900] * 50)).spins_us)
    assert cycles_per_us() == pytest.approx(1_450, abs=451)


def test_the_delay_is_measured_whenever_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(1_755)
    monkeypatch.setattr(delay, "spins_us", device.spins_us)
    monkeypatch.setattr("torch.cuda._sleep", lambda cycles: None)
    delayed = DeviceDelay(25)
    assert delayed.measured_us is None
    delayed()
    assert delayed.measured_us == pytest.approx(26.5, abs=0.01)
    device.mhz = [1_980]  # the same cycles, by a faster clock
    assert delayed.measured_us == pytest.approx(25 * 1_755 / 1_980 + 1.5, abs=0.01)
