"""Right answers of the two arms compared: the declared pair of passes, or several passes with questions as clusters.

The rule is fixed before anything runs: Tango's interval on (A1, B1), until there are several passes and at least 30
questions differ between the arms; then the clustered interval over all passes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Literal

from scipy.special import ndtr, ndtri

from equipoise_evals.judge.grades import GradedPass
from equipoise_evals.model import AccuracyPlan, Interval
from equipoise_evals.stats.exact import sign_flip_exact
from equipoise_evals.stats.looks import look_level
from equipoise_evals.stats.paired import clustered_mean, mcnemar, tango_interval

CLUSTERED_FROM = 30
"""Differing questions from which the normal approximation of the clustered interval serves."""

POWER = 0.8


@dataclass(frozen=True)
class Scores:
    """The comparison; the attributes are those of ``AccuracyEvidence``."""

    graded: int
    both: int
    only_baseline: int
    only_candidate: int
    by_pass: dict[str, float]
    sd_pp: float | None
    binomial_sd_pp: float
    difference_pp: float
    interval_pp: Interval
    lower_pp: float
    method: Literal["tango", "clustered"]
    p_value: float
    sign_flip_p: float | None
    differing: int
    detectable_pp: float | None


@dataclass(frozen=True)
class _Effect:
    """Candidate minus baseline as a share, with its limits at the look's levels."""

    difference: float
    low: float
    high: float
    lower: float
    p_value: float


@dataclass(frozen=True)
class _Levels:
    """Two-sided confidence for the difference, and the one whose lower end is the one-sided limit."""

    difference: float
    one_sided: float


def compare_scores(
    alpha: float, accuracy: AccuracyPlan, baseline: Sequence[GradedPass], candidate: Sequence[GradedPass]
) -> Scores:
    """Compare the arms over as many passes of each; the first ones have a question answered in both."""
    common = sorted(baseline[0].right.keys() & candidate[0].right.keys())
    both, only_a, only_b = _table(baseline[0], candidate[0], common)
    passes = len(baseline)
    levels = _levels(alpha, accuracy, passes)
    changes = _changes(baseline, candidate)
    differing = sum(sum(change) != 0 for change in changes.values())
    # Questions that all change alike leave the clustered error without any spread to go by: it would claim certainty.
    spread = len({sum(change) for change in changes.values()}) > 1
    clustered = passes > 1 and differing >= CLUSTERED_FROM and spread
    effect = _clustered(changes, levels) if clustered else _tango(only_a, only_b, len(common), levels)
    flips = [sum(change) / len(change) for change in changes.values()]
    return Scores(
        graded=len(common),
        both=both,
        only_baseline=only_a,
        only_candidate=only_b,
        by_pass={graded.name: fmean(graded.right.values()) for graded in (*baseline, *candidate) if graded.right},
        sd_pp=_sd_pp(baseline, candidate),
        binomial_sd_pp=_binomial_sd_pp(baseline[0]),
        difference_pp=100 * effect.difference,
        interval_pp=Interval(low=100 * effect.low, high=100 * effect.high, level=levels.difference),
        lower_pp=100 * effect.lower,
        method="clustered" if clustered else "tango",
        p_value=effect.p_value,
        sign_flip_p=sign_flip_exact(flips).p_two if flips and passes > 1 and differing < CLUSTERED_FROM else None,
        differing=differing,
        detectable_pp=_detectable_pp(alpha, len(common), only_a + only_b),
    )


def _table(first: GradedPass, second: GradedPass, common: Sequence[int]) -> tuple[int, int, int]:
    """Questions right in both, only in the first, only in the second."""
    both = sum(first.right[q] and second.right[q] for q in common)
    only_first = sum(first.right[q] and not second.right[q] for q in common)
    only_second = sum(second.right[q] and not first.right[q] for q in common)
    return both, only_first, only_second


def _levels(alpha: float, accuracy: AccuracyPlan, passes: int) -> _Levels:
    """The look's levels; before the first look those of a single one, for reading only."""
    if passes not in accuracy.looks:
        return _Levels(difference=1 - alpha, one_sided=1 - 2 * alpha)
    return _Levels(
        difference=look_level(passes, accuracy.looks, alpha / 2, variance="known").level,
        one_sided=look_level(passes, accuracy.looks, alpha, variance="known").level,
    )


def _changes(baseline: Sequence[GradedPass], candidate: Sequence[GradedPass]) -> dict[int, list[int]]:
    """Per question answered in every pass: candidate minus baseline, pass by pass."""
    complete = set.intersection(*(set(graded.right) for graded in (*baseline, *candidate)))
    return {
        q: [int(b.right[q]) - int(a.right[q]) for a, b in zip(baseline, candidate, strict=True)]
        for q in sorted(complete)
    }


def _tango(only_a: int, only_b: int, n: int, levels: _Levels) -> _Effect:
    low, high = tango_interval(only_b, only_a, n, confidence=levels.difference)
    lower, _ = tango_interval(only_b, only_a, n, confidence=levels.one_sided)
    return _Effect((only_b - only_a) / n, low, high, lower, mcnemar(only_a, only_b).midp)


def _clustered(changes: dict[int, list[int]], levels: _Levels) -> _Effect:
    values = [change for question in changes.values() for change in question]
    clusters = [question for question, change in changes.items() for _ in change]
    fitted = clustered_mean(values, clusters)
    se = fitted.se_corrected

    def half(level: float) -> float:
        return float(ndtri((1 + level) / 2)) * se

    return _Effect(
        difference=fitted.mean,
        low=fitted.mean - half(levels.difference),
        high=fitted.mean + half(levels.difference),
        lower=fitted.mean - half(levels.one_sided),
        p_value=2 * float(ndtr(-abs(fitted.mean) / se)),
    )


def _sd_pp(baseline: Sequence[GradedPass], candidate: Sequence[GradedPass]) -> float | None:
    """SD of a pass's score over launches, pooled over the arms, in percentage points."""
    arms = [[fmean(graded.right.values()) for graded in arm if graded.right] for arm in (baseline, candidate)]
    spreads = [(len(arm) - 1, variance(arm)) for arm in arms if len(arm) > 1]
    if not spreads:
        return None
    return 100 * math.sqrt(sum(df * spread for df, spread in spreads) / sum(df for df, _ in spreads))


def _binomial_sd_pp(graded: GradedPass) -> float:
    share = fmean(graded.right.values())
    return 100 * math.sqrt(share * (1 - share) / len(graded.right))


def _detectable_pp(alpha: float, n: int, discordant: int) -> float | None:
    """Normal approximation with the discordance seen, (z_alpha + z_power) sqrt(b + c) / n; None without any."""
    if discordant == 0:
        return None
    return 100 * float(ndtri(1 - alpha / 2) + ndtri(POWER)) * math.sqrt(discordant) / n
