"""Right answers of the two arms compared: the declared pair of passes, or several passes with questions as clusters.

The rule is fixed before anything runs: Tango's interval on (A1, B1), until there are several passes and at least 30
questions differ between the arms; then the clustered interval over all passes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    """The comparison; the attributes are those of ``AccuracyEvidence``.

    ``worst_low_pp`` and ``worst_lower_pp`` are the lower end of the interval and the one-sided limit if each missing
    answer were as bad for the candidate as it can be; None where none is missing.
    """

    graded: int
    compared: int | None
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
    worst_low_pp: float | None
    worst_lower_pp: float | None


@dataclass(frozen=True)
class _Effect:
    """Candidate minus baseline as a share, with its limits at the look's levels."""

    method: Literal["tango", "clustered"]
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
    """Compare the arms over as many passes of each, all of which have a question in common."""
    common = sorted(baseline[0].right.keys() & candidate[0].right.keys())
    both, only_a, only_b = _table(baseline[0], candidate[0], common)
    passes = len(baseline)
    levels = _levels(alpha, accuracy, passes)
    changes = _changes(baseline, candidate)
    differing = sum(change != 0 for change in changes)
    effect = _effect(changes, (only_a, only_b, len(common)), passes, levels)
    worst = _worst(baseline, candidate, levels)
    return Scores(
        graded=len(common),
        compared=len(changes) if effect.method == "clustered" else None,
        both=both,
        only_baseline=only_a,
        only_candidate=only_b,
        by_pass={graded.name: fmean(graded.right.values()) for graded in (*baseline, *candidate)},
        sd_pp=_sd_pp(baseline, candidate),
        binomial_sd_pp=_binomial_sd_pp(baseline[0]),
        difference_pp=100 * effect.difference,
        interval_pp=Interval(low=100 * effect.low, high=100 * effect.high, level=levels.difference),
        lower_pp=100 * effect.lower,
        method=effect.method,
        p_value=effect.p_value,
        sign_flip_p=sign_flip_exact(changes).p_two if passes > 1 and differing < CLUSTERED_FROM else None,
        differing=differing,
        detectable_pp=_detectable_pp(alpha, len(common), only_a + only_b),
        worst_low_pp=100 * worst.low if worst else None,
        worst_lower_pp=100 * worst.lower if worst else None,
    )


def _effect(changes: Sequence[float], table: tuple[int, int, int], passes: int, levels: _Levels) -> _Effect:
    """By the rule fixed beforehand, from the questions' changes or the first passes' table (only A, only B, n)."""
    differing = sum(change != 0 for change in changes)
    # Questions that all change alike leave the clustered error without any spread to go by: it would claim certainty.
    spread = len(set(changes)) > 1
    clustered = passes > 1 and differing >= CLUSTERED_FROM and spread
    return _clustered(changes, levels) if clustered else _tango(*table, levels)


def _worst(baseline: Sequence[GradedPass], candidate: Sequence[GradedPass], levels: _Levels) -> _Effect | None:
    """The effect if the baseline had been right, and the candidate wrong, wherever an answer is missing."""
    if not any(graded.missing for graded in (*baseline, *candidate)):
        return None
    a, b = ([_filled(graded) for graded in arm] for arm in (baseline, candidate))
    _, only_a, only_b = _table(a[0], b[0], sorted(a[0].right))
    return _effect(_changes(a, b), (only_a, only_b, len(a[0].right)), len(a), levels)


def _filled(graded: GradedPass) -> GradedPass:
    return replace(graded, right=graded.right | dict.fromkeys(graded.missing, graded.role == "A"))


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


def _changes(baseline: Sequence[GradedPass], candidate: Sequence[GradedPass]) -> list[float]:
    """Per question, in order: candidate minus baseline, its mean over the passes in which both arms answered it.

    A change stays within the launch pair that both answers are of, so what a pair's engines share cancels also where
    answers are missing; and every question counts once, however many of its answers there are.
    """
    changes: dict[int, list[int]] = {}
    for a, b in zip(baseline, candidate, strict=True):
        for question in a.right.keys() & b.right.keys():
            changes.setdefault(question, []).append(int(b.right[question]) - int(a.right[question]))
    return [fmean(changes[question]) for question in sorted(changes)]


def _tango(only_a: int, only_b: int, n: int, levels: _Levels) -> _Effect:
    low, high = tango_interval(only_b, only_a, n, confidence=levels.difference)
    lower, _ = tango_interval(only_b, only_a, n, confidence=levels.one_sided)
    return _Effect("tango", (only_b - only_a) / n, low, high, lower, mcnemar(only_a, only_b).midp)


def _clustered(changes: Sequence[float], levels: _Levels) -> _Effect:
    fitted = clustered_mean(changes, range(len(changes)))
    se = fitted.se_corrected

    def half(level: float) -> float:
        return float(ndtri((1 + level) / 2)) * se

    return _Effect(
        method="clustered",
        difference=fitted.mean,
        low=fitted.mean - half(levels.difference),
        high=fitted.mean + half(levels.difference),
        lower=fitted.mean - half(levels.one_sided),
        p_value=2 * float(ndtr(-abs(fitted.mean) / se)),
    )


def _sd_pp(baseline: Sequence[GradedPass], candidate: Sequence[GradedPass]) -> float | None:
    """SD of a pass's score over launches, pooled over the arms, in percentage points."""
    arms = [[fmean(graded.right.values()) for graded in arm] for arm in (baseline, candidate)]
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
