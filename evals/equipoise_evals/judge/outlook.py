"""How much more evidence would decide, if the estimates and the spread between launches stayed as they are."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from equipoise_evals.judge.levels import LookLevels
from equipoise_evals.model import LatencyContrast, LatencyEvidence

PAIRS_WITHIN_REACH = 200
"""Beyond this many launch pairs nobody waits; the answer is then None."""

Floats = NDArray[np.float64]


class _Limits(NamedTuple):
    """Limits of one contrast at each number of pairs."""

    effect: float
    low: Floats
    high: Floats
    inside_low: Floats
    inside_high: Floats


def pairs_needed(evidence: LatencyEvidence, levels: LookLevels) -> int | None:
    """Fewest launch pairs at which a word would hold; None if no number within reach does."""
    pairs = np.arange(evidence.look + 1, PAIRS_WITHIN_REACH + 1)
    busy, period = (_limits(contrast, pairs, levels) for contrast in (evidence.busy, evidence.period))
    m = evidence.margin
    slower = (busy.low > m) | (period.low > m)
    faster = (busy.high < 0) & (period.high < m) & (period.effect < 0)
    equivalent = (np.minimum(busy.inside_low, period.inside_low) > -m) & (
        np.maximum(busy.inside_high, period.inside_high) < m
    )
    deciding = np.flatnonzero(slower | faster | equivalent)
    return int(pairs[deciding[0]]) if len(deciding) else None


def _limits(contrast: LatencyContrast, pairs: NDArray[np.int64], levels: LookLevels) -> _Limits:
    centre, se = np.log1p(contrast.effect), (contrast.launch_sd or 0.0) / np.sqrt(pairs)
    half, inside = (_quantiles(level)[pairs - 2] * se for level in (levels.difference, levels.equivalence))
    with np.errstate(over="ignore"):  # a limit beyond any float is infinite, and decides nothing
        return _Limits(
            effect=contrast.effect,
            low=np.expm1(centre - half),
            high=np.expm1(centre + half),
            inside_low=np.expm1(centre - inside),
            inside_high=np.expm1(centre + inside),
        )


@lru_cache(maxsize=64)
def _quantiles(level: float) -> Floats:
    """Two-sided t quantiles of a level for 2, 3, ... pairs."""
    return np.asarray(stdtrit(np.arange(1, PAIRS_WITHIN_REACH), (1 + level) / 2), dtype=np.float64)
