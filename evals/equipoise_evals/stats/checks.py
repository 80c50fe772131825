"""Refusals that every statistic shares: what counts as a count, a probability, a sample.

Owns the sentences of those refusals and the order-free mean and standard deviation. Owns no statistic.
A refusal is a ``ValueError``: a statistic of something that is not data is an error of the caller, never a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class Interval(NamedTuple):
    """A confidence interval; both limits are ``nan`` where the data allow none."""

    low: float
    high: float


def count(value: float, name: str) -> int:
    """Return a count as a plain ``int``; refuse negative and fractional numbers."""
    if not (value >= 0 and value < math.inf and int(value) == value):
        msg = f"{name} is a count of questions or launches, so {value!r} is refused"
        raise ValueError(msg)
    return int(value)


def open_unit(value: float, name: str) -> float:
    """Return a probability strictly between 0 and 1 as a plain ``float``."""
    probability = float(value)
    if not 0.0 < probability < 1.0:
        msg = f"{name} lies strictly between 0 and 1, so {value!r} is refused"
        raise ValueError(msg)
    return probability


def sample(values: ArrayLike, name: str, at_least: int = 1) -> Floats:
    """Return a finite one-dimensional sample of at least ``at_least`` numbers as float64.

    A missing value is refused here; it is the caller's to count and to report, and never becomes zero.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        msg = f"{name} is one list of numbers, not an array of shape {array.shape}"
        raise ValueError(msg)
    if array.size < at_least:
        msg = f"{name} needs at least {at_least} values and has {array.size}"
        raise ValueError(msg)
    if not np.isfinite(array).all():
        msg = f"{name} holds a missing or infinite value"
        raise ValueError(msg)
    return array


def mean_sd(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation (ddof 1), the latter ``nan`` below two values.

    Sums are exact (``math.fsum``), so permuting the values changes no bit, and equal values have an SD of exactly 0.
    """
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return mean, math.nan
    first = values[0]
    if all(value == first for value in values):
        return first, 0.0
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
