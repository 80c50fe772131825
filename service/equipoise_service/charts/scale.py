"""From values to places: linear scales and round ticks."""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple, Self

NICE = (1, 2, 2.5, 5, 10)


class Scale(NamedTuple):
    """Linear: ``low`` is drawn at ``start``, ``high`` at ``end``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a value; values beyond the ends are drawn at them."""
        held = min(max(value, self.low), self.high)
        return self.start + (held - self.low) / (self.high - self.low) * (self.end - self.start)

    @classmethod
    def around(cls, values: Iterable[float], start: float, end: float, pad: float = 0.06) -> Self:
        """A scale that shows all of these values with a little room beside them."""
        known = list(values)
        low, high = min(known), max(known)
        room = (high - low) * pad or abs(high) * pad or 1.0
        return cls(low - room, high + room, start, end)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values inside the scale, evenly spaced, at most so many."""
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * nice for nice in NICE if power * nice >= rough)
        first = math.ceil(self.low / step)
        return [round(place * step, 12) for place in range(first, math.floor(self.high / step) + 1)]


def tick_text(value: float, ticks: list[float]) -> str:
    """A tick's value with as many digits as tell neighbours apart."""
    step = min((b - a for a, b in pairwise(ticks)), default=1.0)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    while digits < 6 and abs(round(step, digits) - step) > 1e-9 * step:
        digits += 1
    return f"{value:,.{digits}f}".replace("-", "−") if value else "0"
