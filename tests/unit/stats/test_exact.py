"""Exact tests and design sizes against enumeration, scipy and statsmodels."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.weightstats import ttost_paired

from equipoise_evals.stats.exact import (
    detectable_log_ratio,
    miller_detectable_effect,
    miller_sample_size,
    sign_flip_exact,
    tost_paired,
)


@pytest.mark.parametrize("seed", range(6))
def test_sign_flip_enumerated(seed: int) -> None:
    """All sign patterns, with ties (whole numbers) and without (normal deviates)."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 4, 9).tolist() if seed % 2 else rng.standard_normal(9).tolist()
    sums = [sum(s * v for s, v in zip(signs, values, strict=True)) for signs in itertools.product((-1, 1), repeat=9)]
    observed, total = sum(values), len(sums)
    greater = sum(s >= observed - 1e-9 for s in sums) / total
    less = sum(s <= observed + 1e-9 for s in sums) / total
    two = sum(abs(s) >= abs(observed) - 1e-9 for s in sums) / total
    result = sign_flip_exact(values)
    assert (result.p_greater, result.p_less, result.p_two) == pytest.approx((greater, less, two), rel=1e-12)


def test_sign_flip_scipy() -> None:
    """scipy's exact permutation test of paired samples."""
    values = np.array([0.5, -0.25, 1.0, 0.75, 0.125, -0.5])
    reference = stats.permutation_test(
        (values,),
        lambda x: float(np.sum(x)),
        permutation_type="samples",
        n_resamples=10**6,
        vectorized=False,
        alternative="greater",
    )
    assert sign_flip_exact(values).p_greater == pytest.approx(reference.pvalue, rel=1e-12)


def test_sign_flip_edges() -> None:
    """Zeros have no sign; without any difference every p is 1; 40 changed questions are the most enumerated."""
    assert sign_flip_exact([0, 0, 0]) == (1.0, 1.0, 1.0, 1, 1)
    assert sign_flip_exact([1, 0, 1, 0, 1]).p_greater == 1 / 8
    assert sign_flip_exact([1, -1]).p_two == 1.0
    assert sign_flip_exact([1] * 40).p_two == 2.0**-39
    for values in ([], [1] * 41, [1, math.nan]):
        with pytest.raises(ValueError, match=r"needs at least|up to 40|missing"):
            sign_flip_exact(values)


@pytest.mark.parametrize("seed", range(4))
def test_tost_statsmodels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal(12), rng.standard_normal(12)
    p, (t_low, p_low, _), (t_up, p_up, _) = ttost_paired(x, y, -0.6, 0.4)
    result = tost_paired(x, y, -0.6, 0.4)
    got = (result.p_value, result.t_lower, result.p_lower, result.t_upper, result.p_upper)
    assert got == pytest.approx((p, t_low, p_low, t_up, p_up), rel=1e-9)
    interval = stats.ttest_1samp(x - y, 0).confidence_interval(0.9)
    assert (result.low, result.high) == pytest.approx((interval.low, interval.high), rel=1e-9)


def test_tost_edges() -> None:
    """Constant differences: 0 inside the bounds, 1 outside, 0.5 on a bound as for any spread however small."""
    assert tost_paired([1, 2], [1, 2], -0.5, 0.5).p_value == 0.0
    assert tost_paired([2, 3], [1, 2], -0.5, 0.5).p_value == 1.0
    assert tost_paired([1, 2], [1, 2], 0, 0.5).p_value == 0.5
    for x, y, low, high, alpha in (
        ([1], [1], -1, 1, 0.05),
        ([1, 2], [1, 2, 3], -1, 1, 0.05),
        ([1, 2], [1, 2], 1, -1, 0.05),
        ([1, 2], [1, 2], -1, 1, 0.5),
    ):
        with pytest.raises(ValueError, match=r"needs at least|equivalence needs"):
            tost_paired(x, y, low, high, alpha)


@pytest.mark.parametrize(("pairs", "confidence", "power"), [(2, 0.95, 0.8), (3, 0.98, 0.95), (10, 0.95, 0.5)])
def test_detectable_log_ratio_has_its_power(pairs: int, confidence: float, power: float) -> None:
    """scipy's noncentral t at the returned effect."""
    effect = detectable_log_ratio(0.003, pairs, confidence, power)
    critical = stats.t.isf((1 - confidence) / 2, pairs - 1)
    assert stats.nct.sf(critical, pairs - 1, effect * math.sqrt(pairs) / 0.003) == pytest.approx(power, abs=1e-5)


def integrated_power(noncentrality: float, critical: float, df: int) -> float:
    """P(noncentral t > critical) by integration over the normal numerator; scipy's own takes minutes far out."""
    x = np.linspace(-9, 9, 20_001)
    ratio = np.maximum(0.0, (noncentrality + x) / critical)
    return float(np.trapezoid(stats.norm.pdf(x) * stats.chi2.cdf(df * ratio**2, df), x))


@pytest.mark.parametrize("pairs", [2, 3, 10])
@pytest.mark.parametrize("confidence", [0.9, 0.99, 0.999, 0.99999, 0.9999999])
def test_detectable_log_ratio_far_out(pairs: int, confidence: float) -> None:
    """Also at the strictest look the power is the one asked, by numerical integration."""
    effect = detectable_log_ratio(1.0, pairs, confidence, 0.9)
    critical = stats.t.isf((1 - confidence) / 2, pairs - 1)
    assert integrated_power(effect * math.sqrt(pairs), critical, pairs - 1) == pytest.approx(0.9, abs=1e-4)


def test_detectable_log_ratio_edges() -> None:
    assert detectable_log_ratio(0.0, 3) == 0.0
    for sd, pairs, power in ((0.1, 1, 0.8), (-0.1, 3, 0.8), (math.nan, 3, 0.8), (0.1, 3, 0.02)):
        with pytest.raises(ValueError, match="detectable effect"):
            detectable_log_ratio(sd, pairs, power=power)


def test_miller_inverts() -> None:
    effect = miller_detectable_effect(1319, 0.05, (0.1, 0.12), passes=4, alpha=0.1, power=0.9)
    n = miller_sample_size(effect, 0.05, (0.1, 0.12), passes=4, alpha=0.1, power=0.9)
    assert n == pytest.approx(1319, rel=1e-12)
    # Two-sided normal power at n, written out.
    standard_error = math.sqrt((0.05 + 0.22 / 4) / n)
    assert stats.norm.cdf(effect / standard_error - stats.norm.isf(0.05)) == pytest.approx(0.9, rel=1e-9)


def test_miller_edges() -> None:
    assert miller_sample_size(0, 0.1, (0.1, 0.1)) == math.inf
    assert miller_sample_size(-0.03, 0.1, (0.1, 0.1)) == miller_sample_size(0.03, 0.1, (0.1, 0.1))
    with pytest.raises(ValueError, match="not negative"):
        miller_sample_size(0.1, -0.1, (0.1, 0.1))
    with pytest.raises(ValueError, match="not negative"):
        miller_sample_size(0.1, 0.1, (0.1, 0.1), passes=0)
    with pytest.raises(ValueError, match="no questions"):
        miller_detectable_effect(0, 0.1, (0.1, 0.1))
