"""The inside of a block: warm-up, drift, two levels, and steps compared at equal context.

Owns what has to be seen before a block mean may stand for the block. Owns no comparison of arms: a block that is not
steady, or two arms with different level shares, are facts that ``judge`` names. Step times may be in any unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from equipoise_evals.stats.checks import Floats, open_unit, sample

LEAST_STEPS = 100
"""Steps below which two levels are not told from noise."""

LEAST_SHARE = 0.05
"""Share of steps that makes a level; what fewer steps do is a spike."""

LEAST_LEVEL_STEPS = 12
"""Steps that a level has at least, so that a few spikes of like size are none."""

LEAST_SEPARATION = 0.01
"""Relative distance of two levels worth a word: timer resolution makes closer ones."""

_BATCHES = 10
_WINDOW = 0.25
_CONCENTRATION = 0.35
_VALLEY = 0.5


class Truncation(NamedTuple):
    """MSER-5: steps to drop at the start; ``settled`` is false where half of the series was not enough."""

    drop: int
    settled: bool


class Steadiness(NamedTuple):
    """Relative change of the step time over a block, with its interval."""

    drift: float
    low: float
    high: float
    level: float
    steady: bool


class TwoLevels(NamedTuple):
    """Whether step times jump between two levels; levels, share and boundary are ``nan`` where they do not."""

    found: bool
    tested: bool
    low: float
    high: float
    share_low: float
    separation: float
    boundary: float


class EqualContext(NamedTuple):
    """Blocks over the contexts that all of them visited.

    ``means`` holds one mean per block, every context weighing the same; ``relative`` each block's times, by context,
    over what its own mean and the shape common to all blocks predict.
    """

    contexts: tuple[int, ...]
    means: tuple[float, ...]
    relative: tuple[Floats, ...]


def mser5(values: ArrayLike) -> Truncation:
    """Return how many steps of warm-up to drop: the truncation with the smallest standard error of the rest.

    Batch means of 5, d = argmin sum_{i > d}(y_i - mean)^2/(m - d)^2 over the first half (White 1997, Simulation 69,
    323-334; Spratt 1998). An argmin at half the series means that it never settled. A trend is no warm-up: with
    times that grow with the context pass ``EqualContext.relative`` instead.

    Args:
        values: in time order, shape (n,), n >= 20.

    Raises:
        ValueError: fewer than 20 values, or a missing one.
    """
    series = sample(values, "values", at_least=20)
    batches = series[: series.size // 5 * 5].reshape(-1, 5).mean(axis=1)
    # Relative to the first batch, so that a constant series leaves exact zeros and drops nothing.
    tail = (batches - batches[0])[::-1]
    kept = np.arange(1, tail.size + 1)
    squares = np.cumsum(tail**2) - np.cumsum(tail) ** 2 / kept
    scores = (np.maximum(squares, 0.0) / kept**2)[::-1]
    half = batches.size // 2
    best = int(np.argmin(scores[: half + 1]))
    return Truncation(5 * best, best < half)


def steady_state(values: ArrayLike, tolerance: float = 0.005, confidence: float = 0.99) -> Steadiness:
    """Test a block for drift: the slope over ten batch means, as a relative change from its start to its end.

    Not steady means that the whole interval lies beyond the tolerance, so noise alone seldom condemns a block. Batch
    means stand for the autocorrelated steps inside them (t, 8 degrees of freedom). Growth with the context is
    expected, and is removed first by passing ``EqualContext.relative``.

    Args:
        values: step times in time order, positive, shape (n,), n >= 20.
        tolerance: relative change that is of no interest.
        confidence: two-sided level.

    Raises:
        ValueError: fewer than 20 values, a missing or non-positive one, or a level outside (0, 1).
    """
    series = _positive(values, "values", at_least=20)
    level = open_unit(confidence, "confidence")
    means = np.array([part.mean() for part in np.array_split(series, _BATCHES)])
    means -= means[0]
    place = (np.arange(_BATCHES) - (_BATCHES - 1) / 2.0) / _BATCHES
    weight = float(place @ place)
    slope = float(place @ means) / weight
    rest = means - means.mean() - slope * place
    error = math.sqrt(float(rest @ rest) / (_BATCHES - 2) / weight)
    half = -float(special.stdtrit(_BATCHES - 2, (1.0 - level) / 2.0)) * error
    scale = float(series.mean())
    low, high = (slope - half) / scale, (slope + half) / scale
    return Steadiness(slope / scale, low, high, level, not (low > tolerance or high < -tolerance))


def _positive(values: ArrayLike, name: str, at_least: int) -> Floats:
    times = sample(values, name, at_least)
    if times.min() <= 0.0:
        msg = f"{name} are step times and positive"
        raise ValueError(msg)
    return times


def two_levels(values: ArrayLike) -> TwoLevels:
    """Say whether step times jump between two levels, and give the levels and the share of the lower one.

    The steps are parted where the variance between the parts is largest (Otsu 1979), 5 % at each end clipped against
    spikes. Two levels are found where no unimodal distribution would lead one to expect it: around the middle of the
    two medians lie at most half as many steps as around the rarer median (a unimodal density is never lower between
    two points than at both of them), and at least 35 % of each part lies within an eighth of the gap from its median
    (the tail of a skewed distribution does not). Order in time is not used, so autocorrelation cannot pose as a level
    unless it is too long for the block to average over.

    Levels four of their own SDs apart are found about half the time at equal shares, six apart nearly always. Fewer
    than 100 steps are not tested (``tested`` false, ``found`` false).

    Args:
        values: step times, positive, shape (n,), n >= 1.

    Raises:
        ValueError: no values, a missing or non-positive one.
    """
    ordered = np.sort(_positive(values, "values", at_least=1))
    if ordered.size < LEAST_STEPS:
        return TwoLevels(False, False, *[math.nan] * 5)
    split = _widest_split(ordered)
    parts = ordered[:split], ordered[split:]
    low, high = float(np.median(parts[0])), float(np.median(parts[1]))
    gap = high - low
    boundary = low + gap / 2.0
    around = [_within(ordered, centre, _WINDOW * gap / 2.0) for centre in (low, boundary, high)]
    concentrated = around[0] >= _CONCENTRATION * split and around[2] >= _CONCENTRATION * parts[1].size
    parted = around[1] <= _VALLEY * min(around[0], around[2])
    if not (concentrated and parted and gap >= LEAST_SEPARATION * low):
        return TwoLevels(False, True, *[math.nan] * 5)
    return TwoLevels(True, True, low, high, split / ordered.size, gap / low, boundary)


def _widest_split(ordered: Floats) -> int:
    """Number of steps in the lower part of Otsu's split, each part large enough to be a level."""
    n = ordered.size
    clipped = np.clip(ordered, *np.quantile(ordered, (LEAST_SHARE, 1.0 - LEAST_SHARE)))
    below = np.arange(1, n)
    mean = float(clipped.mean())
    between = np.cumsum(clipped - mean)[:-1] ** 2 / (below * (n - below))
    least = max(LEAST_LEVEL_STEPS, math.ceil(LEAST_SHARE * n))
    return int(np.argmax(between[least - 1 : n - least])) + least


def _within(ordered: Floats, centre: float, reach: float) -> int:
    first, last = np.searchsorted(ordered, (centre - reach, centre + reach), side="left").tolist()
    return int(last - first)


def low_share(values: ArrayLike, boundary: float) -> float:
    """Return the share of steps below a boundary that ``two_levels`` found, for one block or one arm.

    Raises:
        ValueError: no values, or a missing one.
    """
    return float(np.mean(sample(values, "values") < boundary))


def equal_context(blocks: Iterable[tuple[ArrayLike, ArrayLike]]) -> EqualContext:
    """Compare blocks over the contexts that all of them visited.

    Step time grows with the context (about 1 % over 200 tokens), so two block means over different contexts differ
    without any difference of the arms. Steps of one block at the same context are averaged first.

    Args:
        blocks: (context tokens, step times) of each block, the two of equal length, times positive.

    Raises:
        ValueError: no blocks, lists of unequal length, a missing or non-positive time, or no context common to all.
    """
    tables = [_by_context(contexts, times) for contexts, times in blocks]
    if not tables:
        msg = "no blocks have no context in common"
        raise ValueError(msg)
    common = sorted(set.intersection(*(set(table) for table in tables)))
    if not common:
        msg = "the blocks visited no common context, so their steps cannot be compared"
        raise ValueError(msg)
    times = np.array([[table[context] for context in common] for table in tables])
    means = times.mean(axis=1)
    scaled = times / means[:, None]
    shape = np.exp(np.log(scaled).mean(axis=0))
    return EqualContext(tuple(common), tuple(means.tolist()), tuple(scaled / shape))


def _by_context(contexts: ArrayLike, times: ArrayLike) -> dict[int, float]:
    """Mean step time at each context of one block."""
    where = sample(contexts, "contexts").astype(np.int64)
    steps = _positive(times, "times", at_least=1)
    if where.size != steps.size:
        msg = f"{steps.size} step times need as many contexts, not {where.size}"
        raise ValueError(msg)
    names, place, visits = np.unique(where, return_inverse=True, return_counts=True)
    return dict(zip(names.tolist(), (np.bincount(place, weights=steps) / visits).tolist(), strict=True))
