"""Latency of launches: log-ratios of block means, their interval over launch pairs, variance components, quantiles.

Owns the contrast inside one launch pair (ABBA) and everything whose unit is the launch. Owns no test of a single
block (``steady``), no stopping rule (``sequential``) and no decision. Times may be in any unit, the same throughout.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.stats import mstats

from equipoise_evals.stats.checks import Floats, count, mean_sd, open_unit, sample


class RatioInterval(NamedTuple):
    """A ratio candidate/baseline with its interval; ``estimate`` and ``sd`` are on the log scale."""

    ratio: float
    low: float
    high: float
    estimate: float
    sd: float
    n: int
    level: float


class VarianceComponents(NamedTuple):
    """Kalibera & Jones' variances, innermost level first, and the mean they bound."""

    s2: tuple[float, ...]
    t2: tuple[float, ...]
    mean: float
    low: float
    high: float


def ratio_interval(log_ratios: ArrayLike, confidence: float = 0.95) -> RatioInterval:
    """Return the geometric mean ratio over launch pairs and its t interval, n - 1 degrees of freedom.

    Assumes that the log-ratios of launch pairs are independent and roughly normal; it knows nothing of the steps
    inside a launch, whose spread says nothing about other launches. One pair has a ratio and no interval: the limits
    and the SD are ``nan``.

    Args:
        log_ratios: log(candidate/baseline), one per launch pair, shape (n,).
        confidence: two-sided level; the caller passes the level of the look.

    Raises:
        ValueError: no pair, a missing value, or a level outside (0, 1).
    """
    logs: list[float] = sample(log_ratios, "log_ratios").tolist()
    level = open_unit(confidence, "confidence")
    estimate, sd = mean_sd(logs)
    half = t_half_width(sd, len(logs), level)
    low, high = exp_or_inf(estimate - half), exp_or_inf(estimate + half)
    return RatioInterval(exp_or_inf(estimate), low, high, estimate, sd, len(logs), level)


class EffectDifference(NamedTuple):
    """How far a second ratio is from a first, as their ratio, with its interval; ``df`` are Welch's."""

    ratio: float
    low: float
    high: float
    df: float


def effect_difference(first: ArrayLike, second: ArrayLike, confidence: float = 0.95) -> EffectDifference:
    """Return the ratio of two independent experiments' geometric mean ratios, second to first, and Welch's interval.

    The variances may differ; degrees of freedom after Welch (1947) and Satterthwaite (1946). With fewer than two launch
    pairs in either the limits are ``nan``; without any spread in both they are the estimate.

    Args:
        first: log(candidate/baseline) of the first experiment, one per launch pair, shape (n,).
        second: The same of the second, shape (m,).
        confidence: two-sided level.

    Raises:
        ValueError: no pair, a missing value, or a level outside (0, 1).
    """
    samples = [sample(logs, name).tolist() for logs, name in ((first, "first"), (second, "second"))]
    level = open_unit(confidence, "confidence")
    (mean_1, sd_1), (mean_2, sd_2) = (mean_sd(logs) for logs in samples)
    difference = mean_2 - mean_1
    ratio = exp_or_inf(difference)
    if min(map(len, samples)) < 2:
        return EffectDifference(ratio, math.nan, math.nan, math.nan)
    parts = [sd * sd / len(logs) for sd, logs in zip((sd_1, sd_2), samples, strict=True)]
    if sum(parts) == 0.0:
        return EffectDifference(ratio, ratio, ratio, math.inf)
    df = sum(parts) ** 2 / sum(part * part / (len(logs) - 1) for part, logs in zip(parts, samples, strict=True))
    half = -float(special.stdtrit(df, (1.0 - level) / 2.0)) * math.sqrt(sum(parts))
    return EffectDifference(ratio, exp_or_inf(difference - half), exp_or_inf(difference + half), df)


def exp_or_inf(log_ratio: float) -> float:
    """Exponential that ends in infinity instead of an error: two pairs at a strict level have limits that far out."""
    return math.exp(log_ratio) if not log_ratio > 709.0 else math.inf


def t_half_width(sd: float, n: int, confidence: float) -> float:
    """Return t_{n-1} times the standard error of a mean of n values; ``nan`` below two values."""
    if n < 2:
        return math.nan
    return -float(special.stdtrit(n - 1, (1.0 - confidence) / 2.0)) * sd / math.sqrt(n)


def abba_contrast(blocks: Iterable[tuple[str, float]]) -> float:
    """Return log(B/A) of one quad: the mean log of the B blocks less the mean log of the A blocks.

    In the orders ABBA and BAAB a drift that is linear in time cancels (to first order in the drift's size).

    Args:
        blocks: (arm, mean step time) in the order run, arm "A" (baseline) or "B" (candidate), times positive.

    Raises:
        ValueError: another arm, a time that is not positive and finite, or unequal numbers of blocks of the two arms.
    """
    logs: dict[str, list[float]] = {"A": [], "B": []}
    for arm, mean in blocks:
        if arm not in logs:
            msg = f"a block belongs to arm 'A' or 'B', not {arm!r}"
            raise ValueError(msg)
        if not 0.0 < mean < math.inf:
            msg = f"a block's mean step time is positive and finite, so {mean!r} is refused"
            raise ValueError(msg)
        logs[arm].append(math.log(mean))
    if len(logs["A"]) != len(logs["B"]) or not logs["A"]:
        msg = f"a contrast needs as many A as B blocks, not {len(logs['A'])} and {len(logs['B'])}"
        raise ValueError(msg)
    return math.fsum(logs["B"]) / len(logs["B"]) - math.fsum(logs["A"]) / len(logs["A"])


def variance_components(nested: ArrayLike, confidence: float = 0.95) -> VarianceComponents:
    """Split the variance of a balanced nested experiment by level.

    ``s2[i]`` is the mean variance of the level's means (ddof 1), ``t2[i] = s2[i] - s2[i-1]/r[i-1]`` the part that
    the level itself adds; an unbiased estimate, so it can be negative. The interval of the overall mean uses the
    outermost level alone: t_{n-1} sqrt(s2[-1]/n) (Kalibera & Jones 2013, "Rigorous benchmarking in reasonable time",
    sections 6.1-6.2 and their technical report).

    A level with one repetition has no variance: its ``s2``, and every ``t2`` that needs it, is ``nan``.

    Args:
        nested: numbers nested outermost first (launches, blocks, steps), equal counts at each level.
        confidence: two-sided level of the interval of the mean.

    Raises:
        ValueError: lists of unequal length, no numbers, or a missing value.
    """
    try:
        array = np.asarray(nested, dtype=np.float64)
    except ValueError as error:
        msg = "variance components need a balanced experiment: equal counts at each level"
        raise ValueError(msg) from error
    if array.ndim == 0 or array.size == 0 or not np.isfinite(array).all():
        msg = "variance components need nested lists of finite numbers"
        raise ValueError(msg)
    level = open_unit(confidence, "confidence")
    s2: list[float] = []
    t2: list[float] = []
    means: Floats = array
    below = 0.0
    while means.ndim:
        repetitions = means.shape[-1]
        s2.append(float(np.mean(np.var(means, axis=-1, ddof=1))) if repetitions > 1 else math.nan)
        t2.append(s2[-1] - below)
        below = s2[-1] / repetitions
        means = np.mean(means, axis=-1)
    mean = float(means)
    half = t_half_width(math.sqrt(s2[-1]), array.shape[0], level)
    return VarianceComponents(tuple(s2), tuple(t2), mean, mean - half, mean + half)


def repetition_plan(t2: Sequence[float], costs: Sequence[float], most: int) -> tuple[int, ...]:
    """Return the repetitions per level, innermost first, that buy most precision per unit of cost.

    r[i] = ceil(sqrt(cost[i+1]/cost[i] * t2[i]/t2[i+1])) (Kalibera & Jones 2013, section 6.3); the outermost count is
    left out, because it follows from the precision wanted. A level that adds no variance is not repeated, and the
    level below is weighed against the next one that does; where none above does, ``most`` is all that bounds it.

    Args:
        t2: variance added by each level, innermost first, as ``variance_components`` gives it.
        costs: time of one more repetition at each level: a step, a block's set-up, a launch; as many as ``t2``.
        most: upper bound of each count.

    Raises:
        ValueError: a missing component, a cost that is not positive, or lists of different lengths.
    """
    components = sample(t2, "t2").tolist()
    prices = sample(costs, "costs").tolist()
    if len(prices) != len(components) or min(prices) <= 0.0 or count(most, "most") < 1:
        msg = "a repetition plan needs one positive cost per level and room for one repetition"
        raise ValueError(msg)
    plan = []
    for level in range(len(components) - 1):
        above = next((j for j in range(level + 1, len(components)) if components[j] > 0.0), None)
        if components[level] <= 0.0:
            plan.append(1)
        elif above is None:
            plan.append(most)
        else:
            best = math.sqrt(prices[above] / prices[level] * components[level] / components[above])
            plan.append(min(most, max(1, math.ceil(best))))
    return tuple(plan)


def quantile_hd(values: ArrayLike, q: float) -> float:
    """Return the Harrell-Davis estimate of the q quantile: a beta-weighted mean of the order statistics.

    Harrell & Davis 1982, Biometrika 69, 635-640. At q = 0 and q = 1 it is the minimum and the maximum, and a single
    value is every quantile of itself. ``quantile_supported`` says whether the sample carries the quantile asked.

    Args:
        values: step times, shape (n,), n >= 1.
        q: in [0, 1].

    Raises:
        ValueError: no values, a missing value, or q outside [0, 1].
    """
    numbers = sample(values, "values")
    if not 0.0 <= q <= 1.0:
        msg = f"a quantile is asked for q in [0, 1], not {q!r}"
        raise ValueError(msg)
    if numbers.size == 1 or q in (0.0, 1.0):
        return float(np.min(numbers) if q < 1.0 else np.max(numbers))
    return float(mstats.hdquantiles(numbers, prob=[float(q)])[0])


def quantile_supported(steps: int, q: float) -> bool:
    """Say whether at least 10 steps lie above the q quantile; a quantile with fewer is refused, not reported.

    The comparison allows for the rounding of 1 - q: 100 steps carry q = 0.9.
    """
    return count(steps, "steps") * (1.0 - q) >= 10.0 - 1e-9


def quantile_contrast(baseline: ArrayLike, candidate: ArrayLike, q: float) -> float:
    """Return log(candidate/baseline) of the Harrell-Davis q quantiles of one launch pair; ``nan`` where unsupported.

    Args:
        baseline: step times of the baseline arm, shape (n,), positive.
        candidate: step times of the candidate arm, shape (m,), positive.
        q: in [0, 1].

    Raises:
        ValueError: an empty sample, a missing value, or times that are not positive.
    """
    before, after = sample(baseline, "baseline"), sample(candidate, "candidate")
    if min(before.min(), after.min()) <= 0.0:
        msg = "step times are positive"
        raise ValueError(msg)
    if not quantile_supported(min(before.size, after.size), q):
        return math.nan
    return math.log(quantile_hd(after, q)) - math.log(quantile_hd(before, q))
