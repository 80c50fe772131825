"""Paired accuracy against enumeration, numerical maximisation and statsmodels; edges by the written policy."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize, stats
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from equipoise_evals.stats import equality, paired
from equipoise_evals.stats.paired import (
    clustered_mean,
    constrained_loss_rate,
    mcnemar,
    mcnemar_detectable_effect,
    mcnemar_sample_size,
    newcombe_interval,
    tango_interval,
    tango_noninferiority,
)

TABLES = [(0, 0, 16), (0, 1, 44), (1, 0, 1), (9, 3, 32), (5, 0, 5), (0, 5, 5), (5, 5, 10), (39, 27, 1319), (0, 7, 7)]


def enumerated(b: int, c: int) -> tuple[Fraction, Fraction]:
    """Exact and mid-p by summing all binomial terms: those less probable, and half of those as probable."""
    n = b + c
    terms = [Fraction(math.comb(n, k), 2**n) for k in range(n + 1)]
    tail = sum(terms[: min(b, c) + 1], Fraction(0))
    more_extreme = sum((term for term in terms if term < terms[b]), Fraction(0))
    as_extreme = sum((term for term in terms if term == terms[b]), Fraction(0))
    return min(Fraction(1), 2 * tail), more_extreme + as_extreme / 2 if n else Fraction(1)


def test_mcnemar_enumerated() -> None:
    """Every table up to 14 discordant questions a side, exact and mid-p."""
    for b in range(15):
        for c in range(15):
            exact, midp = enumerated(b, c)
            result = mcnemar(b, c)
            assert (result.exact_p, result.midp) == pytest.approx((float(exact), float(midp)), rel=1e-12)


@pytest.mark.parametrize(("b", "c"), [(3, 1), (12, 4), (0, 9), (150, 86), (600, 500)])
def test_mcnemar_statsmodels(b: int, c: int) -> None:
    """statsmodels on the same table."""
    table, result = [[10, b], [c, 10]], mcnemar(b, c)
    assert result.exact_p == pytest.approx(statsmodels_mcnemar(table, exact=True).pvalue, rel=1e-9)
    asymptotic = statsmodels_mcnemar(table, exact=False, correction=False)
    assert (result.chi2, result.asymptotic_p) == pytest.approx((asymptotic.statistic, asymptotic.pvalue), rel=1e-9)
    corrected = statsmodels_mcnemar(table, exact=False, correction=True)
    assert (result.chi2_corrected, result.corrected_p) == pytest.approx((corrected.statistic, corrected.pvalue))


def test_mcnemar_edges() -> None:
    """Nothing speaks against equality where b = c; large counts do not overflow."""
    assert mcnemar(0, 0) == (1.0, 1.0, 1.0, 1.0, 0.0, 0.0)
    for discordant in (1, 7, 10_000_000):
        tie = mcnemar(discordant, discordant)
        assert (tie.exact_p, tie.asymptotic_p, tie.corrected_p) == (1.0, 1.0, 1.0)
    # contingencytables::McNemar_midP_test_paired_2x2: 1 - dbinom(b, 2b, 1/2)/2 where b = c.
    assert mcnemar(1, 1).midp == pytest.approx(0.75, rel=1e-12)
    assert mcnemar(10_000_000, 10_000_000).midp == pytest.approx(1 - 0.5 / math.sqrt(math.pi * 1e7), rel=1e-9)
    assert mcnemar(600, 500).exact_p == pytest.approx(0.00282, abs=5e-6)
    twelve_four = mcnemar(12, 4)
    assert (twelve_four.exact_p, twelve_four.midp) == pytest.approx((0.0768, 0.0490), abs=5e-5)
    assert mcnemar(2_000_000, 1_000_000).exact_p == 0.0
    assert all(type(value) is float for value in mcnemar(np.int64(3), np.int64(9)))  # type: ignore[arg-type]


@pytest.mark.parametrize(("b", "c"), [(-1, 2), (1, -2), (1.5, 2), (math.nan, 1), (math.inf, 1)])
def test_mcnemar_refuses(b: float, c: float) -> None:
    with pytest.raises(ValueError, match="count"):
        mcnemar(b, c)  # type: ignore[arg-type]


def likeliest(b: int, c: int, n: int, delta: float) -> float:
    """P(c) that maximises the multinomial likelihood under P(b) - P(c) = delta, numerically."""

    def minus_log(rate: float) -> float:
        cells = ((b, rate + delta), (c, rate), (n - b - c, 1 - 2 * rate - delta))
        return -sum(count * math.log(max(p, 1e-300)) for count, p in cells if count)

    bounds = (max(0.0, -delta), (1 - delta) / 2)
    return float(optimize.minimize_scalar(minus_log, bounds=bounds, method="bounded", options={"xatol": 1e-12}).x)


@pytest.mark.parametrize("delta", [-0.9, -0.3, -0.01, 0.0, 0.01, 0.3, 0.9])
@pytest.mark.parametrize(("b", "c", "n"), TABLES)
def test_constrained_rate_maximises(b: int, c: int, n: int, delta: float) -> None:
    """Against numerical maximisation of the likelihood."""
    assert constrained_loss_rate(b, c, n, delta) == pytest.approx(likeliest(b, c, n, delta), abs=2e-5)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize(("b", "c", "n"), TABLES)
def test_tango_inverts_the_score_test(b: int, c: int, n: int, confidence: float) -> None:
    """At each interior limit the score with the numerically likeliest rate is exactly the critical value."""
    interval = tango_interval(b, c, n, confidence)
    z = stats.norm.isf((1 - confidence) / 2)
    for limit, score in ((interval.low, z), (interval.high, -z)):
        if abs(limit) < 1:
            variance = n * (2 * likeliest(b, c, n, limit) + limit * (1 - limit))
            assert (b - c - n * limit) / math.sqrt(variance) == pytest.approx(score, abs=1e-3)
    assert (interval.low == -1) == (c == n)
    assert (interval.high == 1) == (b == n)


def test_tango_closed_forms() -> None:
    """-+ z^2/(n + z^2) without discordant questions; Wilson-like (n - z^2)/(n + z^2) where all are."""
    z2 = stats.norm.isf(0.05) ** 2
    assert tango_interval(0, 0, 16, 0.90) == pytest.approx((-z2 / (16 + z2), z2 / (16 + z2)), rel=1e-12)
    assert tango_interval(5, 0, 5, 0.90) == pytest.approx(((5 - z2) / (5 + z2), 1.0), rel=1e-12)
    assert tango_interval(0, 1, 1, 0.90).low == -1.0
    # 16 concordant questions cannot show 1 pp (DESIGN section 4: -14 pp).
    assert tango_interval(0, 0, 16, 0.90).low == pytest.approx(-0.14, abs=0.005)


def test_tango_contains_its_estimate_at_tiny_levels() -> None:
    assert tango_interval(9, 3, 32, 1e-12) == pytest.approx((6 / 32, 6 / 32), abs=1e-9)
    low, high = tango_interval(2, 1, 3, 1e-300)
    assert low <= 1 / 3 <= high


@pytest.mark.parametrize(
    ("b", "c", "n", "confidence"), [(1, 1, 0, 0.95), (0, 0, 0, 0.95), (3, 3, 5, 0.95), (1, 1, 9, 1.0), (1, 1, 9, 0.0)]
)
def test_tango_refuses(b: int, c: int, n: int, confidence: float) -> None:
    with pytest.raises(ValueError, match=r"no questions|cannot exceed|strictly between"):
        tango_interval(b, c, n, confidence)


def test_noninferiority_at_zero_is_mcnemar() -> None:
    """With margin 0 the score is (b - c)/sqrt(b + c)."""
    result = tango_noninferiority(39, 27, 1319, 0.0)
    assert result.statistic == pytest.approx(12 / math.sqrt(66), rel=1e-12)
    assert 2 * result.p_value == pytest.approx(mcnemar(39, 27).asymptotic_p, rel=1e-9)


def test_noninferiority_edges() -> None:
    """No discordant question and margin 0: the limit of small margins; a negative margin asks for a gain."""
    assert tango_noninferiority(0, 0, 16, 0.0) == (0.0, 0.5)
    assert tango_noninferiority(0, 0, 16, 1e-12).statistic == pytest.approx(0.0, abs=1e-4)
    assert tango_noninferiority(12, 0, 100, -0.5).p_value > 0.999
    assert tango_noninferiority(16, 0, 16, 0.01).p_value < 0.001
    for margin in (1.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="margin"):
            tango_noninferiority(1, 1, 10, margin)


@pytest.mark.parametrize(("a", "b", "c", "d"), [(5, 5, 5, 5), (10, 12, 9, 12), (1, 1, 7, 12), (8, 5, 12, 9)])
def test_newcombe_uncorrelated_is_independent(a: int, b: int, c: int, d: int) -> None:
    """Where 0 <= ad - bc <= n/2 the correlation counts as 0: statsmodels' interval for independent proportions."""
    n = a + b + c + d
    assert 0 <= a * d - b * c <= n / 2
    low, high = confint_proportions_2indep(a + b, n, a + c, n, method="newcomb", compare="diff")
    assert newcombe_interval(a, b, c, d) == pytest.approx((low, high), abs=1e-9)


def test_newcombe_negative_correlation() -> None:
    """A negative correlation is used as it is: against numpy's correlation of the written-out answers."""
    a, b, c, d = 3, 20, 18, 2
    first = np.repeat([1, 1, 0, 0], (a, b, c, d))
    second = np.repeat([1, 0, 1, 0], (a, b, c, d))
    phi = float(np.corrcoef(first, second)[0, 1])
    p1, p2 = float(first.mean()), float(second.mean())
    l1, u1 = proportion_confint(a + b, 43, method="wilson")
    l2, u2 = proportion_confint(a + c, 43, method="wilson")
    below = math.sqrt((p1 - l1) ** 2 - 2 * phi * (p1 - l1) * (u2 - p2) + (u2 - p2) ** 2)
    above = math.sqrt((u1 - p1) ** 2 - 2 * phi * (u1 - p1) * (p2 - l2) + (p2 - l2) ** 2)
    assert newcombe_interval(a, b, c, d) == pytest.approx((p1 - p2 - below, p1 - p2 + above), rel=1e-9)


def test_newcombe_edges() -> None:
    """Empty margins have no correlation; all questions alike still leave room on both sides."""
    low, high = newcombe_interval(16, 0, 0, 0)
    assert low == pytest.approx(-high)
    assert high > 0
    assert newcombe_interval(0, 5, 0, 0).high == pytest.approx(1.0)
    with pytest.raises(ValueError, match="no questions"):
        newcombe_interval(0, 0, 0, 0)


def test_clustered_mean_statsmodels() -> None:
    """OLS on a constant with cluster covariance; its small-sample correction is C/(C - 1)."""
    rng = np.random.default_rng(1)
    clusters = rng.integers(0, 40, 300)
    values = rng.standard_normal(300) + clusters / 10
    result = clustered_mean(values, clusters.tolist())
    ones = np.ones_like(values)
    for corrected, expected in ((False, result.se_clustered), (True, result.se_corrected)):
        options = {"groups": clusters, "use_correction": corrected}
        fitted = OLS(values, ones).fit(cov_type="cluster", cov_kwds=options)
        assert float(fitted.bse[0]) == pytest.approx(expected, rel=1e-9)
    assert result.se_naive == pytest.approx(stats.sem(values), rel=1e-12)
    assert (result.n, result.clusters) == (300, len(set(clusters.tolist())))


def test_clustered_mean_interval() -> None:
    """t on C - 1: every value its own cluster gives scipy's interval of a mean."""
    values = [0.0, 1.0, 1.0, 0.0, 1.0]
    interval = clustered_mean(values, range(5)).interval(0.9)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.9)
    assert interval == pytest.approx((expected.low, expected.high), rel=1e-12)


def test_clustered_mean_edges() -> None:
    """One cluster has no clustered error, one value no error at all; constants have an error of 0."""
    one = clustered_mean([1.0, 0.0, 1.0], ["q", "q", "q"])
    assert math.isnan(one.se_clustered)
    assert math.isnan(one.se_corrected)
    assert one.se_naive > 0
    assert all(math.isnan(limit) for limit in one.interval())
    single = clustered_mean([1], [0])
    assert (single.mean, single.n) == (1.0, 1)
    assert math.isnan(single.se_naive)
    assert clustered_mean([0.3, 0.3, 0.3], ["a", "b", "b"]).se_corrected == pytest.approx(0.0, abs=1e-16)
    assert clustered_mean(np.array([True, False]), np.array(["a", "b"])).mean == 0.5
    for values, clusters in (([], []), ([1.0], [1, 2]), ([1.0, None], [1, 2]), ([[1.0], [2.0]], [1, 2])):
        with pytest.raises(ValueError, match=r"needs at least|cluster names|missing|one list"):
            clustered_mean(values, clusters)  # type: ignore[arg-type]


@pytest.mark.parametrize(("p12", "p21"), [(0.2, 0.1), (0.02, 0.03), (0.0, 0.05), (0.9, 0.1)])
def test_sample_size_has_its_power(p12: float, p21: float) -> None:
    """Miettinen's normal approximation at the returned n gives back the power asked."""
    n = mcnemar_sample_size(p12, p21, alpha=0.02, power=0.9)
    discordance, difference = p12 + p21, abs(p12 - p21)
    spread = math.sqrt(discordance - difference**2)
    z = stats.norm.isf(0.01) * math.sqrt(discordance)
    assert stats.norm.cdf((difference * math.sqrt(n) - z) / spread) == pytest.approx(0.9, rel=1e-9)


def test_sample_size_edges() -> None:
    assert mcnemar_sample_size(0.1, 0.1) == math.inf
    assert mcnemar_sample_size(0, 0) == math.inf
    assert mcnemar_sample_size(1, 0) == pytest.approx(stats.norm.isf(0.025) ** 2)
    for p12, p21 in ((-0.1, 0.1), (0.6, 0.6), (math.nan, 0.1)):
        with pytest.raises(ValueError, match="probabilities"):
            mcnemar_sample_size(p12, p21)


@pytest.mark.parametrize("discordance", [0.02, 0.05, 0.3, 1.0])
def test_detectable_effect_inverts_the_sample_size(discordance: float) -> None:
    effect = mcnemar_detectable_effect(discordance, 1319)
    n = mcnemar_sample_size((discordance + effect) / 2, (discordance - effect) / 2)
    assert n == pytest.approx(1319, rel=1e-9)


def test_detectable_effect_edges() -> None:
    """Where even a one-sided split is not found so often, there is no such effect."""
    assert math.isnan(mcnemar_detectable_effect(0.001, 1319))
    assert math.isnan(mcnemar_detectable_effect(1.0, 1, power=0.5))
    for discordance, n in ((0.0, 10), (1.1, 10), (0.1, 0)):
        with pytest.raises(ValueError, match="detect nothing"):
            mcnemar_detectable_effect(discordance, n)


def test_output_shift_is_offered_here() -> None:
    assert paired.output_shift is equality.output_shift
