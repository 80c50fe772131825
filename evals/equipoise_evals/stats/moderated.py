"""A launch variance borrowed from A/A history, so that few launch pairs can decide.

Owns the empirical-Bayes prior (limma's scaled inverse chi-square), the interval that uses it, and the guard that drops
it when the pairs at hand contradict it. Owns no choice of history: which A/A runs are comparable (host, GPU, driver,
SGLang, model class, age) is the caller's rule.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from equipoise_evals.stats.checks import mean_sd, open_unit, sample
from equipoise_evals.stats.latency import exp_or_inf, ratio_interval

LEAST_HISTORIES = 3
"""A/A comparisons below which the spread of launch variances itself is unknown."""

INFLATION = 1.5
"""Factor on the historical launch SD: today's launches may be that much less alike before errors exceed their level."""

GUARD_ALPHA = 0.15
"""Level of the guard: at most how often agreeing pairs are sent back to the plain t."""

MOST_DF = 4.0
"""Degrees of freedom that history counts for at most, so that soon the pairs at hand outweigh it."""


class LaunchPrior(NamedTuple):
    """What history says about the launch SD: ``s0`` worth ``d0`` degrees of freedom."""

    d0: float
    s0: float
    histories: int


class ModeratedInterval(NamedTuple):
    """A ratio with its interval; ``borrowed`` says whether history took part, ``sd`` is the one used."""

    ratio: float
    low: float
    high: float
    estimate: float
    sd: float
    n: int
    level: float
    df: float
    borrowed: bool
    guard_p: float


def launch_prior(sds: ArrayLike, pairs: ArrayLike) -> LaunchPrior:
    """Fit the prior of launch variances to the SDs of A/A comparisons.

    Moments of log variances (Smyth 2004, Statistical Applications in Genetics and Molecular Biology 3(1), section
    6.2). Two departures, both cautious: ``d0`` never exceeds the degrees of freedom that the history holds, and fewer
    than 3 histories are refused. ``s0`` is as estimated; ``moderated_interval`` inflates it.

    Args:
        sds: SD of log-ratios over launch pairs of each A/A comparison, positive, shape (h,).
        pairs: launch pairs of each, at least 2, shape (h,).

    Raises:
        ValueError: fewer than 3 histories, lists of different lengths, an SD that is not positive, or a single pair.
    """
    spread = sample(sds, "sds", at_least=LEAST_HISTORIES)
    df = sample(pairs, "pairs", at_least=LEAST_HISTORIES) - 1.0
    if spread.size != df.size or spread.min() <= 0.0 or df.min() < 1.0:
        msg = "each A/A comparison gives a positive SD over at least 2 launch pairs"
        raise ValueError(msg)
    centred = 2.0 * np.log(spread) - special.digamma(df / 2.0) + np.log(df / 2.0)
    mean = math.fsum(centred.tolist()) / spread.size
    excess = mean_sd(centred.tolist())[1] ** 2 - float(np.mean(special.polygamma(1, df / 2.0)))
    most = float(df.sum())
    d0 = min(most, 2.0 * _trigamma_inverse(excess)) if excess > 0.0 else most
    log_variance = mean + (float(special.digamma(d0 / 2.0)) - math.log(d0 / 2.0) if excess > 0.0 else 0.0)
    return LaunchPrior(d0, math.exp(log_variance / 2.0), int(spread.size))


def _trigamma_inverse(value: float) -> float:
    """The x > 0 whose trigamma is ``value``; between 1/x and 1/x + 1/x^2, which brackets it."""
    low, high = 1.0 / value, 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * value)) / value
    return float(optimize.brentq(lambda x: float(special.polygamma(1, x)) - value, low, high, rtol=1e-12))


def moderated_interval(
    log_ratios: ArrayLike,
    prior: LaunchPrior,
    confidence: float = 0.95,
    *,
    inflation: float = INFLATION,
    guard_alpha: float = GUARD_ALPHA,
    most_df: float = MOST_DF,
) -> ModeratedInterval:
    """Return the ratio over launch pairs with a t interval whose variance is shared with history.

    s~^2 = (d0 s0^2 + d s^2)/(d0 + d), d = n - 1, on d0 + d degrees of freedom (Smyth 2004, eq. 1), with s0 inflated and
    d0 at most ``most_df``.
    Guard: where d s^2/s0^2 exceeds the upper ``guard_alpha`` point of chi-square on d degrees of freedom, the pairs
    contradict the history and the plain t interval is returned, ``borrowed`` false. A single pair cannot be checked
    against history, so it has no interval here either.

    Args:
        log_ratios: log(candidate/baseline), one per launch pair, shape (n,).
        prior: from ``launch_prior``.
        confidence: two-sided level; the caller passes the level of the look.
        inflation: factor on ``prior.s0``, at least 1.
        guard_alpha: level of the guard.
        most_df: most degrees of freedom that the history counts for, positive.

    Raises:
        ValueError: what ``ratio_interval`` refuses, an inflation below 1, or a prior without a positive SD.
    """
    plain = ratio_interval(log_ratios, confidence)
    guard = open_unit(guard_alpha, "guard_alpha")
    if inflation < 1.0 or not (prior.s0 > 0.0 and min(prior.d0, most_df) > 0.0):
        msg = f"history is borrowed with a positive SD, inflated by at least 1, not {prior} and {inflation!r}"
        raise ValueError(msg)
    df = plain.n - 1
    s0 = prior.s0 * inflation
    guard_p = float(special.chdtrc(df, df * (plain.sd / s0) ** 2)) if df else math.nan
    if not guard_p >= guard:
        return ModeratedInterval(*plain, df=float(df), borrowed=False, guard_p=guard_p)
    d0 = min(prior.d0, most_df)
    sd = math.sqrt((d0 * s0 * s0 + df * plain.sd**2) / (d0 + df))
    half = -float(special.stdtrit(d0 + df, (1.0 - plain.level) / 2.0)) * sd / math.sqrt(plain.n)
    return ModeratedInterval(
        plain.ratio,
        exp_or_inf(plain.estimate - half),
        exp_or_inf(plain.estimate + half),
        plain.estimate,
        sd,
        plain.n,
        plain.level,
        df=d0 + df,
        borrowed=True,
        guard_p=guard_p,
    )
