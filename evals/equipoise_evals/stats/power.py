"""Chances that a t interval over launch pairs will come out on one side of a bound, or between two.

Owns the distribution of limits that are not measured yet, for normal log-ratios of known mean and SD and one look on
its own. Owns no plan, no looks and no words.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy import special

from equipoise_evals.stats.checks import Floats, count, open_unit

FAR_T = 100.0
"""Critical values beyond which a noncentral t is its noncentrality over chi to 1e-4, and SciPy takes minutes."""

_NODES = (np.arange(500) + 0.5) / 500


def chance_below(bound: float, mean: float, sd: float, pairs: int, confidence: float = 0.95) -> float:
    """Return P(upper limit of the t interval < bound) for log-ratios of this mean and SD.

    The limit lies below the bound exactly when a noncentral t on pairs - 1 degrees of freedom, noncentrality
    (bound - mean)/(sd/sqrt(pairs)), exceeds the critical value. P(lower limit > bound) is ``chance_below(-bound,
    -mean, ...)``.

    Args:
        bound: on the log scale, as ``mean`` and ``sd``.
        mean: true mean of the log-ratios.
        sd: true SD of the log-ratios between launch pairs; at 0 the interval is the mean itself.
        pairs: launch pairs, at least 2.
        confidence: two-sided level of the interval.

    Raises:
        ValueError: a negative or missing SD, fewer than 2 pairs, or a level outside (0, 1).
    """
    critical, se = _scale(sd, pairs, confidence)
    if se == 0.0:
        return float(mean < bound)
    shift = (bound - mean) / se
    if critical > FAR_T:
        return float(special.chdtr(pairs - 1, (pairs - 1) * (shift / critical) ** 2)) if shift > 0.0 else 0.0
    return min(1.0, max(0.0, 1.0 - float(special.nctdtr(pairs - 1, shift, critical))))


def chance_between(bounds: tuple[float, float], mean: float, sd: float, pairs: int, confidence: float = 0.9) -> float:
    """Return P(both limits of the t interval lie between two bounds) for log-ratios of this mean and SD.

    Integrated over the distribution of the sample SD at 500 quantiles; given it, the sample mean must lie within
    what the bounds leave. For equivalence tests pass the level 1 - 2 alpha.

    Raises:
        ValueError: what ``chance_below`` refuses.
    """
    critical, se = _scale(sd, pairs, confidence)
    low, high = bounds
    if se == 0.0:
        return float(low < mean < high)
    half = critical * se * _sample_sd(pairs)
    inside = special.ndtr((high - half - mean) / se) - special.ndtr((low + half - mean) / se)
    return float(np.maximum(inside, 0.0).mean())


@lru_cache(maxsize=256)
def _sample_sd(pairs: int) -> Floats:
    """Quantiles of the sample SD of so many pairs, in units of the true one."""
    return np.asarray(np.sqrt(2.0 * special.gammaincinv((pairs - 1) / 2.0, _NODES) / (pairs - 1)), dtype=np.float64)


def fewest_pairs(chance: Callable[[int], float], wanted: float, *, least: int, most: int) -> int | None:
    """Return the fewest launch pairs from ``least`` to ``most`` whose chance reaches what is wanted; None if none do.

    Bisected, since a chance rises with the pairs.
    """
    if most < least or chance(most) < wanted:
        return None
    return least + bisect.bisect_left(range(least, most), True, key=lambda pairs: chance(pairs) >= wanted)


def _scale(sd: float, pairs: int, confidence: float) -> tuple[float, float]:
    """Critical value and standard error."""
    n, tail = count(pairs, "pairs"), (1.0 - open_unit(confidence, "confidence")) / 2.0
    if not 0.0 <= sd < math.inf or n < 2:
        msg = f"a chance needs a launch SD and at least 2 pairs, not {sd!r} and {n}"
        raise ValueError(msg)
    return -float(special.stdtrit(n - 1, tail)), sd / math.sqrt(n)
