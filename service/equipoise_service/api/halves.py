"""The interval of one half, as lists and ``look`` events hold it, in the units that charts show."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

Half = Literal["latency", "accuracy"]
HALVES: tuple[Half, ...] = ("latency", "accuracy")
UNITS: dict[Half, tuple[float, str]] = {"latency": (100.0, "%"), "accuracy": (1.0, "pp")}
"""What stored numbers are multiplied by, and the unit that they then have."""


class Shown(NamedTuple):
    """An estimate, its interval and the margin, all in one unit.

    Attributes:
        interval: None where there is none.
        margin: Half width of the margin.
        bounds: Least and largest value inside the margin; accuracy can only be lost, so its margin has no upper end.
    """

    effect: float
    interval: tuple[float, float] | None
    margin: float
    bounds: tuple[float, float | None]


def shown(half: Half, stored: Sequence[float | None]) -> Shown | None:
    """Estimate, lower limit, upper limit and margin of ``store.lists.spark_of``; None without estimate or margin."""
    scale, _ = UNITS[half]
    effect, low, high, margin = stored
    if effect is None or margin is None:
        return None
    return Shown(
        effect=scale * effect,
        interval=None if low is None or high is None else (scale * low, scale * high),
        margin=scale * margin,
        bounds=(-scale * margin, scale * margin if half == "latency" else None),
    )
