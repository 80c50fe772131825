"""Paired accuracy: the same questions asked of two arms.

Owns the tests and intervals on the discordant counts (``b`` = only the first arm is right, ``c`` = only the second),
the standard error of a mean over clusters, and the sample size of McNemar's test. ``output_shift`` lives in
``equality`` and is offered here too, because it is the paired question asked of texts instead of scores.
Owns no decision: margins and levels are arguments, and ``judge`` says what follows.

All counts are whole numbers of questions; a question without an answer in either arm belongs to none of them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from numpy.typing import ArrayLike
from scipy import optimize, special, stats

from equipoise_evals.stats.checks import Interval, count, open_unit, sample
from equipoise_evals.stats.equality import OutputShift, output_shift

__all__ = [
    "ClusteredMean",
    "McNemar",
    "NonInferiority",
    "OutputShift",
    "clustered_mean",
    "constrained_loss_rate",
    "mcnemar",
    "mcnemar_detectable_effect",
    "mcnemar_sample_size",
    "newcombe_interval",
    "output_shift",
    "tango_interval",
    "tango_noninferiority",
]


class McNemar(NamedTuple):
    """Two-sided p-values of McNemar's test; ``midp`` is the one to read first."""

    exact_p: float
    midp: float
    asymptotic_p: float
    corrected_p: float
    chi2: float
    chi2_corrected: float


class NonInferiority(NamedTuple):
    """One-sided score test of H0: (b - c)/n <= -margin."""

    statistic: float
    p_value: float


class ClusteredMean(NamedTuple):
    """A mean with its standard error under three assumptions; ``se_corrected`` is the one to use."""

    mean: float
    se_naive: float
    se_clustered: float
    se_corrected: float
    n: int
    clusters: int

    def interval(self, confidence: float = 0.95) -> Interval:
        """Return the t interval on clusters - 1 degrees of freedom; (nan, nan) with a single cluster."""
        if self.clusters < 2:
            return Interval(math.nan, math.nan)
        tail = (1.0 - open_unit(confidence, "confidence")) / 2.0
        half = -float(special.stdtrit(self.clusters - 1, tail)) * self.se_corrected
        return Interval(self.mean - half, self.mean + half)


def mcnemar(b: int, c: int) -> McNemar:
    """Test that both arms are right equally often, from the discordant counts.

    Exact: binomial(b + c, 1/2), twice the smaller tail. Mid-p: the same with half the weight on the observed count
    (Fagerland, Lydersen & Laake 2013, eq. 5). Asymptotic: (b - c)^2/(b + c). Corrected: Edwards' continuity
    correction, which never moves |b - c| below 0.

    Where b = c no outcome is less extreme, and every p but the mid-p is exactly 1; the mid-p is 1 less half the
    probability of the observed count, as in that paper and in the authors' R package contingencytables. Without a
    discordant pair there is no evidence at all: every p is 1.

    Args:
        b: questions only the first arm answers correctly.
        c: questions only the second arm answers correctly.

    Raises:
        ValueError: a count is negative or fractional.
    """
    b, c = count(b, "b"), count(c, "c")
    if b == c:
        return McNemar(1.0, 1.0 - _central_probability(b) / 2.0 if b else 1.0, 1.0, 1.0, 0.0, 0.0)
    fewer, discordant = min(b, c), b + c
    at_most = float(special.bdtr(float(fewer), discordant, 0.5))
    below = float(special.bdtr(float(fewer - 1), discordant, 0.5)) if fewer else 0.0
    chi2 = (b - c) ** 2 / discordant
    corrected = (abs(b - c) - 1) ** 2 / discordant
    return McNemar(
        exact_p=min(1.0, 2.0 * at_most),
        midp=min(1.0, at_most + below),
        asymptotic_p=float(special.chdtrc(1, chi2)),
        corrected_p=float(special.chdtrc(1, corrected)),
        chi2=chi2,
        chi2_corrected=corrected,
    )


def _central_probability(k: int) -> float:
    """Probability of exactly k successes in 2k tosses of a fair coin."""
    return math.exp(math.lgamma(2 * k + 1) - 2 * math.lgamma(k + 1) - 2 * k * math.log(2))


def constrained_loss_rate(b: int, c: int, n: int, delta: float) -> float:
    """Return the maximum-likelihood P(only the second arm is right) under P(b) - P(c) = delta.

    Larger root of Tango's quadratic (Tango 1998, section 3): 2n q^2 + B q - c delta (1 - delta) = 0 with
    B = -b - c + (2n - b + c) delta. Written so that no difference of near-equal numbers is taken, and for a negative
    delta through the mirrored table, so that swapping the arms mirrors the result to the last bit.

    Args:
        b: questions only the first arm answers correctly.
        c: questions only the second arm answers correctly.
        n: all questions of the pair, at least b + c.
        delta: the difference of proportions, in [-1, 1].
    """
    if delta < 0.0:
        return constrained_loss_rate(c, b, n, -delta) - delta
    linear = -(b + c) + (2 * n - b + c) * delta
    constant = c * delta * (1.0 - delta)
    root = math.sqrt(linear * linear + 8.0 * n * constant)
    rate = (root - linear) / (4.0 * n) if linear <= 0.0 else 2.0 * constant / (linear + root)
    return min(rate, (1.0 - delta) / 2.0)


def _score_variance(b: int, c: int, n: int, delta: float) -> float:
    """Variance of b - c when the true difference of proportions is delta, all else at its likeliest."""
    return n * max(0.0, 2.0 * constrained_loss_rate(b, c, n, delta) + delta * (1.0 - delta))


def _tango_upper(b: int, c: int, n: int, z: float) -> float:
    """Largest delta that the score test does not reject; closed forms where the score has no interior root."""
    if b == n:
        return 1.0
    if b == 0 and c in (0, n):
        return (z * z - c) / (z * z + n)

    def excess(delta: float) -> float:
        return (b - c) - n * delta + z * math.sqrt(_score_variance(b, c, n, delta))

    estimate = (b - c) / n
    if excess(estimate) <= 0.0:
        return estimate
    return float(optimize.brentq(excess, estimate, 1.0, xtol=1e-15, rtol=1e-15))


def _discordance(b: int, c: int, n: int) -> tuple[int, int, int]:
    b, c, n = count(b, "b"), count(c, "c"), count(n, "n")
    if n == 0:
        msg = "a difference of proportions over no questions has no value"
        raise ValueError(msg)
    if b + c > n:
        msg = f"b + c = {b + c} discordant questions cannot exceed n = {n}"
        raise ValueError(msg)
    return b, c, n


def tango_interval(b: int, c: int, n: int, confidence: float = 0.95) -> Interval:
    """Return Tango's score interval of (b - c)/n.

    The set of differences that the score test (b - c - n delta)/sqrt(n (2q + delta (1 - delta))), q from
    ``constrained_loss_rate``, does not reject (Tango 1998, Statistics in Medicine 17, 891-908). It stays inside
    [-1, 1] and has positive width even with b = c = 0: there it is -+ z^2/(n + z^2).

    Args:
        b: questions only the first arm answers correctly.
        c: questions only the second arm answers correctly.
        n: all questions of the pair.
        confidence: two-sided level; use 0.90 for a one-sided 95 % limit.

    Raises:
        ValueError: counts that are negative, fractional or impossible, n = 0, or a level outside (0, 1).
    """
    b, c, n = _discordance(b, c, n)
    z = -float(special.ndtri((1.0 - open_unit(confidence, "confidence")) / 2.0))
    return Interval(-_tango_upper(c, b, n, z), _tango_upper(b, c, n, z))


def tango_noninferiority(b: int, c: int, n: int, margin: float) -> NonInferiority:
    """Test H0: (b - c)/n <= -margin by Tango's score statistic (Tango 1998, eq. 3); small p: not inferior.

    The p-value is below alpha exactly when the lower limit of ``tango_interval`` at 1 - 2 alpha is above -margin.
    With margin 0 and no discordant question the statistic takes its limit 0, hence p = 0.5.

    Args:
        b: questions only the arm under test answers correctly.
        c: questions only the reference arm answers correctly.
        n: all questions of the pair.
        margin: the loss of accuracy that would still be tolerated, as a proportion (0.01 = 1 pp); a negative margin
            asks for a gain.

    Raises:
        ValueError: impossible counts, or a margin outside (-1, 1).
    """
    b, c, n = _discordance(b, c, n)
    if not -1.0 < margin < 1.0:
        msg = f"a margin is a proportion between -1 and 1, so {margin!r} is refused"
        raise ValueError(msg)
    variance = _score_variance(b, c, n, -float(margin))
    statistic = (b - c + n * float(margin)) / math.sqrt(variance) if variance > 0.0 else 0.0
    return NonInferiority(statistic, float(special.ndtr(-statistic)))


def _wilson(successes: int, n: int, confidence: float) -> Interval:
    interval = stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    return Interval(float(interval.low), float(interval.high))


def newcombe_interval(a: int, b: int, c: int, d: int, confidence: float = 0.95) -> Interval:
    """Return Newcombe's interval for the difference (b - c)/n of two paired proportions (method 10).

    Wilson limits of the two margins squared and added, less their correlation, which is corrected for continuity
    where positive (Newcombe 1998, Statistics in Medicine 17, 2635-2650, method 10). The correlation is 0 where a
    margin is empty.

    Args:
        a: questions both arms answer correctly.
        b: questions only the first arm answers correctly.
        c: questions only the second arm answers correctly.
        d: questions neither arm answers correctly.
        confidence: two-sided level.

    Raises:
        ValueError: negative or fractional counts, no questions at all, or a level outside (0, 1).
    """
    a, d = count(a, "a"), count(d, "d")
    b, c, n = _discordance(b, c, a + d + count(b, "b") + count(c, "c"))
    level = open_unit(confidence, "confidence")
    first, second = (a + b) / n, (a + c) / n
    low1, high1 = _wilson(a + b, n, level)
    low2, high2 = _wilson(a + c, n, level)
    phi = _corrected_correlation(a, b, c, d)
    below = _joint_width(first - low1, high2 - second, phi)
    above = _joint_width(high1 - first, second - low2, phi)
    difference = (b - c) / n
    return Interval(max(-1.0, difference - below), min(1.0, difference + above))


def _corrected_correlation(a: int, b: int, c: int, d: int) -> float:
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    if margins == 0:
        return 0.0
    covariance: float = a * d - b * c
    if covariance > 0:
        covariance = max(0.0, covariance - (a + b + c + d) / 2.0)
    return covariance / math.sqrt(margins)


def _joint_width(first: float, second: float, phi: float) -> float:
    return math.sqrt(max(0.0, first * first - 2.0 * phi * first * second + second * second))


def clustered_mean(values: ArrayLike, clusters: Iterable[Hashable]) -> ClusteredMean:
    """Return the mean of ``values`` and its standard error when values of one cluster may depend on each other.

    Several passes over the same questions are the case in hand: question = cluster. ``se_clustered`` sums residuals
    within clusters before squaring (Miller 2024, "Adding error bars to evals", appendix A); ``se_corrected``
    multiplies it by sqrt(C/(C - 1)), without which it is too small for few clusters. ``se_naive`` ignores the
    clusters (ddof 1). With every value its own cluster, ``se_corrected`` equals ``se_naive``.

    A single cluster has neither clustered error, and a single value no error at all: those are ``nan``.

    Args:
        values: numbers, shape (n,).
        clusters: the cluster of each value, any hashable names, n of them.

    Raises:
        ValueError: no values, a missing value, or as many clusters as values are not given.
    """
    numbers = sample(values, "values").tolist()
    names = list(clusters)
    if len(names) != len(numbers):
        msg = f"{len(numbers)} values need as many cluster names, not {len(names)}"
        raise ValueError(msg)
    n = len(numbers)
    mean = math.fsum(numbers) / n
    residuals: dict[Hashable, list[float]] = {}
    for name, value in zip(names, numbers, strict=True):
        residuals.setdefault(name, []).append(value - mean)
    total = len(residuals)
    naive = math.sqrt(math.fsum((v - mean) ** 2 for v in numbers) / (n - 1) / n) if n > 1 else math.nan
    clustered = math.sqrt(math.fsum(math.fsum(r) ** 2 for r in residuals.values())) / n if total > 1 else math.nan
    corrected = clustered * math.sqrt(total / (total - 1)) if total > 1 else math.nan
    return ClusteredMean(mean, naive, clustered, corrected, n, total)


def _two_sided_z(alpha: float, power: float) -> tuple[float, float]:
    z_alpha = -float(special.ndtri(open_unit(alpha, "alpha") / 2.0))
    return z_alpha, float(special.ndtri(open_unit(power, "power")))


def mcnemar_sample_size(p12: float, p21: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return the number of pairs, not rounded, that McNemar's asymptotic test needs.

    (z_{alpha/2} sqrt(p12 + p21) + z_power sqrt(p12 + p21 - (p12 - p21)^2))^2 / (p12 - p21)^2
    (Connor 1987, Biometrics 43, 207-211, after Miettinen 1968). Infinite where p12 = p21: no number of questions
    finds a difference that is not there.

    Args:
        p12: P(only the first arm is right).
        p21: P(only the second arm is right).
        alpha: two-sided level of the test.
        power: probability of rejection wanted.

    Raises:
        ValueError: probabilities that are negative or sum to more than 1, or levels outside (0, 1).
    """
    p12, p21 = float(p12), float(p21)
    if not (p12 >= 0.0 and p21 >= 0.0 and p12 + p21 <= 1.0):
        msg = f"p12 and p21 are probabilities with a sum of at most 1, so ({p12!r}, {p21!r}) is refused"
        raise ValueError(msg)
    z_alpha, z_power = _two_sided_z(alpha, power)
    discordance, difference = p12 + p21, p12 - p21
    if difference == 0.0:
        return math.inf
    spread = z_alpha * math.sqrt(discordance) + z_power * math.sqrt(max(0.0, discordance - difference**2))
    return (spread / difference) ** 2


def mcnemar_detectable_effect(discordance: float, n: int, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return the smallest |p12 - p21| that n pairs detect with the power asked: ``mcnemar_sample_size`` inverted.

    ``nan`` where even all discordant questions on one side would not be detected so often.

    Args:
        discordance: p12 + p21, the share of questions that differ, in (0, 1].
        n: questions.
        alpha: two-sided level of the test.
        power: probability of rejection wanted.

    Raises:
        ValueError: a share outside (0, 1], no questions, or levels outside (0, 1).
    """
    share, n = float(discordance), count(n, "n")
    if n == 0 or not 0.0 < share <= 1.0:
        msg = f"n = {n} questions of which a share of {share!r} differ detect nothing that has a size"
        raise ValueError(msg)
    z_alpha, z_power = _two_sided_z(alpha, power)
    inside = n + z_power**2 - z_alpha**2
    if inside < 0.0:
        return math.nan
    effect = math.sqrt(share) * (math.sqrt(n) * z_alpha + z_power * math.sqrt(inside)) / (n + z_power**2)
    return effect if effect <= share else math.nan
