"""The statistics of a simulated launch: how long each decode step pretends to last. No I/O, no clock."""

import math
import random
import zlib
from collections.abc import Mapping

from tests.fakes.knobs import Identity, Knobs


def uniform(*parts: object) -> float:
    """A number in [0, 1) that follows from ``parts`` alone, equal in every process."""
    key = zlib.crc32("\x1f".join(map(str, parts)).encode())
    return random.Random(key).random()


def launch_rng(knobs: Knobs, identity: Identity) -> random.Random:
    """The randomness of one launch; the arm's name is no part of it, so an A/A pair differs by launches alone."""
    return random.Random(f"{knobs.seed} {identity.pair} {identity.role}")


def interpolated(points: Mapping[int, float], at: float) -> float:
    """The value at ``at``, linear between the points and constant beyond them."""
    known = sorted(points.items())
    below = [point for point in known if point[0] <= at] or known[:1]
    above = [point for point in known if point[0] >= at] or known[-1:]
    (low, low_value), (high, high_value) = below[-1], above[0]
    if high <= low:
        return low_value
    return low_value + (high_value - low_value) * (at - low) / (high - low)


class World:
    """Step times of one launch, in pretended microseconds."""

    def __init__(self, knobs: Knobs, identity: Identity, slowdown: float = 1.0) -> None:
        self._knobs = knobs
        self._rng = launch_rng(knobs, identity)
        self._launch = math.exp(self._rng.gauss(0.0, knobs.launch_sd))
        names = (identity.arm, f"sglang {identity.sglang}")
        self._arm = slowdown * math.prod(1.0 + knobs.effect.get(name, 0.0) for name in names)
        self._prefill = slowdown * math.prod(1.0 + knobs.prefill_effect.get(name, 0.0) for name in names)
        self._delay_us = identity.delay_us
        self._noise = 0.0
        self._low = True
        self._steps = 0

    def busy_us(self, batch: int, context_tokens: int) -> float:
        """The next step's time on the device."""
        base = interpolated(self._knobs.step_us, batch)
        context = 1.0 + self._knobs.context_slope * context_tokens / batch
        trend = 1.0 + self._knobs.drift_per_step * self._steps + self._warm_up()
        factor = self._arm * self._launch * context * trend * self._level() * math.exp(self._next_noise())
        self._steps += 1
        return base * factor + self._delay_us

    def prefill_us(self, tokens: int) -> float:
        """The time on the device of a prefill of so many tokens."""
        factor = self._prefill * self._launch * math.exp(self._next_noise())
        return self._knobs.prefill_us * tokens / 1000 * factor

    def period_us(self, busy_us: float) -> float:
        """The same step as a user waits for it."""
        return busy_us + self._knobs.host_us

    def _next_noise(self) -> float:
        """AR(1) with the stationary SD ``step_cv``."""
        rho = self._knobs.ar1
        self._noise = rho * self._noise + self._rng.gauss(0.0, self._knobs.step_cv * math.sqrt(1.0 - rho * rho))
        return self._noise

    def _warm_up(self) -> float:
        warm_up = self._knobs.warm_up
        return warm_up.excess * math.exp(-self._steps / warm_up.steps) if warm_up else 0.0

    def _level(self) -> float:
        """A two-state chain whose mean stay is ``dwell_steps`` and whose high level has the given share."""
        levels = self._knobs.two_levels
        if levels is None:
            return 1.0
        leave = 1.0 / levels.dwell_steps
        if self._rng.random() < leave:
            self._low = self._rng.random() >= levels.share
        return 1.0 if self._low else 1.0 + levels.gap
