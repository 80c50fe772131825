"""One metric at one batch size over units of launch pairs: effect, intervals, spread, and what could have been seen."""

import math
from collections.abc import Sequence
from statistics import fmean, geometric_mean

from equipoise_evals.judge.contrasts import Unit
from equipoise_evals.judge.levels import LookLevels
from equipoise_evals.model import Interval, LatencyContrast, LaunchHistory, Metric
from equipoise_evals.stats.exact import detectable_log_ratio
from equipoise_evals.stats.latency import RatioInterval, ratio_interval
from equipoise_evals.stats.moderated import LaunchPrior, ModeratedInterval, moderated_interval

POWER = 0.8
LARGEST_LOG = math.log(100)
"""A detectable effect beyond a hundredfold is none."""


def pooled(
    units: Sequence[Unit], metric: Metric, batch: int | None, levels: LookLevels, history: LaunchHistory | None
) -> LatencyContrast:
    """Pool units of launch pairs into one contrast; intervals are by t, moderated by history where there is one."""
    pairs = [pair for unit in units for pair in unit]
    logs = [fmean(pair.log_ratio for pair in unit) for unit in units]
    several = len(logs) > 1
    difference = _fit(logs, levels.difference, history)
    return LatencyContrast(
        metric=metric,
        batch=batch,
        pairs=len(pairs),
        effect=difference.ratio - 1,
        interval=_interval(difference) if several else None,
        equivalence=_interval(_fit(logs, levels.equivalence, history)) if several else None,
        launch_sd=difference.sd if several else None,
        per_pair=tuple(math.expm1(pair.log_ratio) for pair in pairs),
        baseline_us=geometric_mean([pair.baseline_us for pair in pairs]),
        candidate_us=geometric_mean([pair.candidate_us for pair in pairs]),
        median_effect=math.expm1(fmean(pair.median_log_ratio for pair in pairs)),
        detectable=_detectable(difference.sd, len(logs), levels.difference) if several else None,
        pairs_per_unit=len(units[0]),
        borrowed=isinstance(difference, ModeratedInterval) and difference.borrowed,
    )


def _fit(logs: Sequence[float], level: float, history: LaunchHistory | None) -> RatioInterval | ModeratedInterval:
    if history is None:
        return ratio_interval(logs, confidence=level)
    prior = LaunchPrior(d0=history.d0, s0=history.s0, histories=history.histories)
    return moderated_interval(logs, prior, confidence=level)


def _interval(fitted: RatioInterval | ModeratedInterval) -> Interval | None:
    """The interval of the effect; None where two wildly different pairs at a strict level bound nothing."""
    if not math.isfinite(fitted.high):
        return None
    return Interval(low=fitted.low - 1, high=fitted.high - 1, level=fitted.level)


def _detectable(sd: float, units: int, level: float) -> float | None:
    if sd == 0:
        return 0.0
    log_ratio = detectable_log_ratio(sd, units, confidence=level, power=POWER)
    return math.expm1(log_ratio) if log_ratio < LARGEST_LOG else None
