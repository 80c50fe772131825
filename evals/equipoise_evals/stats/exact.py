"""Exact tests for small samples, equivalence of two means, and the sizes that a design can detect.

Owns what needs no large-sample argument (sign-flip) and the planning formulas beside McNemar's, which is in
``paired``. Owns no plan: costs and stopping live with the caller.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from equipoise_evals.stats.checks import Floats, count, mean_sd, open_unit, sample
from equipoise_evals.stats.latency import t_half_width
from equipoise_evals.stats.power import FAR_T

MOST_FLIPS = 40
"""Non-zero differences that are enumerated (two halves of 2^20 sums); above, the clustered interval serves."""


class SignFlip(NamedTuple):
    """Exact sign-flip test of a sum; of ``total`` sign patterns ``count_ge`` have a sum at least as large."""

    p_two: float
    p_greater: float
    p_less: float
    count_ge: int
    total: int


class Equivalence(NamedTuple):
    """Two one-sided t tests of a mean paired difference; ``low``/``high`` are its interval at 1 - 2 alpha."""

    p_value: float
    estimate: float
    low: float
    high: float
    t_lower: float
    p_lower: float
    t_upper: float
    p_upper: float


def sign_flip_exact(differences: ArrayLike) -> SignFlip:
    """Test that paired differences are symmetric about 0, by all 2^m sign patterns of the m that are not 0.

    Fisher 1935, "The design of experiments", section 21. Sums of the two halves are enumerated and matched, so m may
    reach 40. Sums that differ by less than 1e-9 of the largest count as equal. Without a non-zero difference every
    p is 1.

    Args:
        differences: one per question (candidate minus baseline), shape (n,).

    Raises:
        ValueError: no differences, a missing value, or more than 40 that are not 0.
    """
    values = sample(differences, "differences")
    values = values[values != 0.0]
    if values.size > MOST_FLIPS:
        msg = f"{values.size} questions changed; sign patterns are enumerated up to {MOST_FLIPS}"
        raise ValueError(msg)
    total = 2**values.size
    observed = math.fsum(values.tolist())
    slack = 1e-9 * math.fsum(np.abs(values).tolist())
    halves = _signed_sums(values[::2]), _signed_sums(values[1::2])
    at_least = _count_at_least(*halves, observed - slack)
    at_most = _count_at_least(*halves, -observed - slack)
    return SignFlip(
        p_two=min(1.0, 2 * min(at_least, at_most) / total),
        p_greater=at_least / total,
        p_less=at_most / total,
        count_ge=at_least,
        total=total,
    )


def _signed_sums(values: Floats) -> Floats:
    """All sums of +-values, sorted."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate((sums - value, sums + value))
    sums.sort()
    return sums


def _count_at_least(first: Floats, second: Floats, threshold: float) -> int:
    """Pairs of one sum from each half that reach the threshold."""
    below = np.searchsorted(second, threshold - first, side="left")
    return int(first.size * second.size - below.sum())


def tost_paired(x: ArrayLike, y: ArrayLike, low: float, high: float, alpha: float = 0.05) -> Equivalence:
    """Test that the mean of x - y lies inside (low, high), by two one-sided t tests (Schuirmann 1987).

    ``p_value`` is the larger of the two; it is below ``alpha`` exactly when the 1 - 2 alpha interval lies inside the
    bounds. Constant differences have a standard error of 0: each one-sided p is then 0 inside its bound, 1 otherwise.

    Args:
        x: shape (n,), n >= 2.
        y: shape (n,), paired with x.
        low: lower bound of equivalence.
        high: upper bound of equivalence, above ``low``.
        alpha: level of each one-sided test, below 0.5.

    Raises:
        ValueError: fewer than two pairs, unequal lengths, a missing value, or bounds or level out of order.
    """
    first, second = sample(x, "x", at_least=2), sample(y, "y", at_least=2)
    if first.size != second.size or not low < high or not 0.0 < alpha < 0.5:
        msg = "equivalence needs paired samples, low < high and a level below 0.5"
        raise ValueError(msg)
    mean, sd = mean_sd((first - second).tolist())
    df, se = first.size - 1, sd / math.sqrt(first.size)
    t_lower, t_upper = _ratio(mean - low, se), _ratio(mean - high, se)
    p_lower, p_upper = float(special.stdtr(df, -t_lower)), float(special.stdtr(df, t_upper))
    half = t_half_width(sd, first.size, 1.0 - 2.0 * alpha)
    return Equivalence(max(p_lower, p_upper), mean, mean - half, mean + half, t_lower, p_lower, t_upper, p_upper)


def _ratio(distance: float, se: float) -> float:
    """Distance in standard errors: without spread infinite, and on the bound itself 0 as for any smaller spread."""
    if se > 0.0:
        return distance / se
    return math.copysign(math.inf, distance) if distance else 0.0


def detectable_log_ratio(sd: float, pairs: int, confidence: float = 0.95, power: float = 0.8) -> float:
    """Return the true log-ratio whose t interval excludes 0 with the power asked, on the side of the effect.

    The noncentrality at which a noncentral t on pairs - 1 degrees of freedom exceeds the critical value with that
    power, times the standard error; exact for normal log-ratios, for one look at the level given.

    Args:
        sd: standard deviation of log-ratios between launch pairs.
        pairs: launch pairs, at least 2.
        confidence: two-sided level of the interval.
        power: above (1 - confidence)/2.

    Raises:
        ValueError: a negative or missing SD, fewer than 2 pairs, or levels outside their range.
    """
    n, tail = count(pairs, "pairs"), (1.0 - open_unit(confidence, "confidence")) / 2.0
    if not 0.0 <= sd < math.inf or n < 2 or not tail < open_unit(power, "power"):
        msg = f"a detectable effect needs a launch SD and at least 2 pairs, not {sd!r} and {n}"
        raise ValueError(msg)
    critical = -float(special.stdtrit(n - 1, tail))
    if critical > FAR_T:
        noncentrality = critical * math.sqrt(float(special.chdtri(n - 1, 1.0 - power)) / (n - 1))
    else:
        noncentrality = float(special.nctdtrinc(n - 1, 1.0 - power, critical))
    return noncentrality * float(sd) / math.sqrt(n)


def _paired_variance(between: float, within: tuple[float, float], passes: int) -> float:
    """Variance of one question's mean difference over ``passes`` answers per arm."""
    if min(between, *within) < 0.0 or count(passes, "passes") < 1:
        msg = "variances are not negative, and every question is asked at least once"
        raise ValueError(msg)
    return float(between + (within[0] + within[1]) / passes)


def _z_sum(alpha: float, power: float) -> float:
    return float(special.ndtri(open_unit(power, "power")) - special.ndtri(open_unit(alpha, "alpha") / 2.0))


def miller_sample_size(
    effect: float,
    between: float,
    within: tuple[float, float],
    *,
    passes: int = 1,
    alpha: float = 0.05,
    power: float = 0.8,
) -> float:
    """Return the questions, not rounded, that find a difference of mean scores with the power asked.

    (z_{alpha/2} + z_power)^2 (omega^2 + sigma_A^2/K + sigma_B^2/K)/effect^2 (Miller 2024, "Adding error bars to
    evals", section 5). Infinite where the effect is 0.

    Args:
        effect: difference of mean scores, as a proportion.
        between: omega^2, variance over questions of the true difference.
        within: sigma_A^2 and sigma_B^2, variance of one answer about its question's mean, in each arm.
        passes: K, answers per question in each arm.
        alpha: two-sided level.
        power: probability of detection wanted.

    Raises:
        ValueError: a negative variance, no passes, or levels outside (0, 1).
    """
    variance = _paired_variance(between, within, passes)
    z = _z_sum(alpha, power)
    return z * z * variance / (effect * effect) if effect else math.inf


def miller_detectable_effect(
    questions: int,
    between: float,
    within: tuple[float, float],
    *,
    passes: int = 1,
    alpha: float = 0.05,
    power: float = 0.8,
) -> float:
    """Return the difference of mean scores that so many questions detect: ``miller_sample_size`` solved for it.

    Raises:
        ValueError: no questions, or what ``miller_sample_size`` refuses.
    """
    if count(questions, "questions") < 1:
        msg = "no questions detect nothing"
        raise ValueError(msg)
    return _z_sum(alpha, power) * math.sqrt(_paired_variance(between, within, passes) / questions)
