"""Launch-level latency against scipy, plain Python and numerical integration."""

import math
import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, optimize, stats

from equipoise_evals.stats.latency import (
    abba_contrast,
    effect_difference,
    quantile_contrast,
    quantile_hd,
    quantile_supported,
    ratio_interval,
    repetition_plan,
    variance_components,
)


@pytest.mark.parametrize("confidence", [0.5, 0.9792, 0.999])
def test_ratio_interval_scipy(confidence: float) -> None:
    """scipy's one-sample t interval on the log scale."""
    logs = [-0.0164, -0.0170, -0.0158, -0.0171]
    expected = stats.ttest_1samp(logs, 0).confidence_interval(confidence)
    result = ratio_interval(logs, confidence)
    assert (result.low, result.high) == pytest.approx((math.exp(expected.low), math.exp(expected.high)), rel=1e-12)
    assert result.ratio == pytest.approx(statistics.geometric_mean([math.exp(x) for x in logs]), rel=1e-12)
    assert (result.estimate, result.sd) == pytest.approx((statistics.fmean(logs), statistics.stdev(logs)), rel=1e-12)
    assert (result.n, result.level) == (4, confidence)


def test_ratio_interval_edges() -> None:
    """One pair: a ratio, no interval. Equal pairs: a point. Pairs too far apart for a float: infinity."""
    one = ratio_interval([-0.0164])
    assert one.ratio == math.exp(-0.0164)
    assert all(math.isnan(value) for value in (one.low, one.high, one.sd))
    same = ratio_interval(np.array([0.1, 0.1, 0.1]))
    assert same.low == same.ratio == same.high == math.exp(0.1)
    wild = ratio_interval([-3, 3], 0.9999)
    assert (wild.low, wild.high) == (0.0, math.inf)
    assert all(type(value) in {float, int} for value in ratio_interval(np.array([1, 2])))
    for logs, confidence in (([], 0.95), ([math.nan], 0.95), ([0.1, math.inf], 0.95), ([0.1, 0.2], 1.0)):
        with pytest.raises(ValueError, match=r"needs at least|missing|strictly between"):
            ratio_interval(logs, confidence)


def test_abba_contrast() -> None:
    blocks = [("A", 1162.5), ("B", 1052.1), ("B", 1053.0), ("A", 1161.0)]
    expected = (math.log(1052.1) + math.log(1053.0) - math.log(1162.5) - math.log(1161.0)) / 2
    assert abba_contrast(blocks) == pytest.approx(expected, abs=1e-15)
    swapped = [("B" if arm == "A" else "A", mean) for arm, mean in blocks]
    assert abba_contrast(swapped) == -abba_contrast(blocks)
    assert abba_contrast([("B", np.float64(2.0)), ("A", 1)]) == math.log(2)


@pytest.mark.parametrize("order", ["ABBA", "BAAB"])
def test_abba_cancels_linear_drift(order: str) -> None:
    """A drift of 1 % per block leaves less than its square of a 2 % effect."""
    blocks = [(arm, (100.0 if arm == "A" else 98.0) * (1 + 0.01 * place)) for place, arm in enumerate(order)]
    assert abba_contrast(blocks) == pytest.approx(math.log(0.98), abs=2e-4)


@pytest.mark.parametrize(
    "blocks",
    [[], [("A", 1.0)], [("A", 1.0), ("B", 1.0), ("B", 1.0)], [("A", 1.0), ("C", 1.0)], [("A", 1.0), ("B", 0.0)]],
)
def test_abba_refuses(blocks: list[tuple[str, float]]) -> None:
    with pytest.raises(ValueError, match=r"as many A as B|belongs to arm|positive"):
        abba_contrast(blocks)


def test_abba_refuses_missing() -> None:
    for time in (math.nan, math.inf, -1.0):
        with pytest.raises(ValueError, match="positive and finite"):
            abba_contrast([("A", 1.0), ("B", time)])


def level_mean(tree: object) -> float:
    return statistics.fmean(level_mean(part) for part in tree) if isinstance(tree, list) else float(tree)  # type: ignore[arg-type]


def level_variance(tree: object, depth: int) -> float:
    """Mean, over the branches at a depth, of the variance of their children's means."""
    assert isinstance(tree, list)
    if depth == 0:
        return statistics.variance([level_mean(part) for part in tree])
    return statistics.fmean(level_variance(part, depth - 1) for part in tree)


@pytest.mark.parametrize("shape", [(5,), (3, 4), (3, 2, 5), (2, 3, 2, 3)])
def test_variance_components_plain(shape: tuple[int, ...]) -> None:
    """By recursion over nested lists, in plain Python."""
    tree = np.random.default_rng(3).standard_normal(shape).tolist()
    result = variance_components(tree)
    s2 = [level_variance(tree, depth) for depth in reversed(range(len(shape)))]
    assert result.s2 == pytest.approx(s2, rel=1e-12)
    assert result.t2[0] == result.s2[0]
    for level in range(1, len(shape)):
        assert result.t2[level] == pytest.approx(s2[level] - s2[level - 1] / shape[-level], rel=1e-9)
    means = [level_mean(part) for part in tree]
    interval = stats.ttest_1samp(means, 0).confidence_interval(0.95)
    assert (result.mean, result.low, result.high) == pytest.approx((level_mean(tree), interval.low, interval.high))


def test_variance_components_edges() -> None:
    """A level with one repetition has no variance, nor has what is derived from it."""
    result = variance_components([[1.0], [3.0]])
    assert math.isnan(result.s2[0])
    assert result.s2[1] == 2.0
    assert all(math.isnan(value) for value in result.t2)
    assert result.mean == 2.0
    single = variance_components([[1.0, 2.0]])
    assert (single.s2[0], single.mean) == (0.5, 1.5)
    assert all(math.isnan(value) for value in (single.s2[1], single.low, single.high))
    for nested in ([[1, 2], [3]], [], 3.0, [[1, math.nan], [1, 2]]):
        with pytest.raises(ValueError, match=r"balanced|finite"):
            variance_components(nested)  # type: ignore[arg-type]


def test_repetition_plan_minimises() -> None:
    """Numerical minimum of cost x variance over the continuous counts, rounded up."""
    t2, costs = [4.0, 0.5, 0.02], [0.001, 0.5, 60.0]

    def bill(logs: NDArray[np.float64], /) -> float:
        steps, blocks = np.exp(logs)
        variance = t2[0] / (steps * blocks) + t2[1] / blocks + t2[2]
        return float(np.log((costs[0] * steps * blocks + costs[1] * blocks + costs[2]) * variance))

    best = np.exp(optimize.minimize(bill, [2.0, 2.0], tol=1e-12).x)
    assert repetition_plan(t2, costs, most=10_000) == tuple(math.ceil(count) for count in best)


def test_repetition_plan_edges() -> None:
    """No variance: once. Nothing above adds variance: as often as allowed. Else weighed against the next that does."""
    assert repetition_plan([0.0, 1.0], [1.0, 100.0], most=50) == (1,)
    assert repetition_plan([1.0, -0.1], [1.0, 100.0], most=50) == (50,)
    assert repetition_plan([1.0, -0.1, 1.0], [1.0, 5.0, 100.0], most=50) == (10, 1)
    assert repetition_plan([1.0, 1e9], [1.0, 1.0], most=50) == (1,)
    for t2, costs, most in (([1.0, 1.0], [1.0], 5), ([1.0], [0.0], 5), ([1.0], [1.0], 0), ([math.nan], [1.0], 5)):
        with pytest.raises(ValueError, match=r"repetition plan|missing"):
            repetition_plan(t2, costs, most)


def integrated_quantile(values: Sequence[float], q: float) -> float:
    """Harrell-Davis by numerical integration of the beta density over the empirical quantile function."""
    ordered, n = sorted(values), len(values)
    density = stats.beta((n + 1) * q, (n + 1) * (1 - q)).pdf
    return sum(x * integrate.quad(density, i / n, (i + 1) / n, epsabs=1e-13)[0] for i, x in enumerate(ordered))


@pytest.mark.parametrize("q", [0.05, 0.5, 0.9, 0.99])
def test_quantile_hd_integrated(q: float) -> None:
    values = np.random.default_rng(4).lognormal(0, 0.5, 25).tolist()
    assert quantile_hd(values, q) == pytest.approx(integrated_quantile(values, q), rel=1e-8)


def test_quantile_hd_edges() -> None:
    """The ends are the extremes, a single value every quantile of itself; whole numbers are taken."""
    values = np.array([3, 1, 2])
    assert (quantile_hd(values, 0), quantile_hd(values, 1)) == (1.0, 3.0)
    assert quantile_hd(values, 0.5) == pytest.approx(2.0)
    assert [quantile_hd([7], q) for q in (0, 0.3, 1)] == [7.0, 7.0, 7.0]
    for numbers, q in (([], 0.5), ([1.0], -0.1), ([1.0], 1.1), ([1.0], math.nan), ([math.nan], 0.5)):
        with pytest.raises(ValueError, match=r"needs at least|asked for q|missing"):
            quantile_hd(numbers, q)


@pytest.mark.parametrize(
    ("steps", "q", "supported"),
    [(100, 0.9, True), (99, 0.9, False), (1000, 0.99, True), (999, 0.99, False), (10, 0.0, True), (10**6, 1.0, False)],
)
def test_quantile_supported(steps: int, q: float, supported: bool) -> None:
    """steps (1 - q) >= 10, in spite of 100 x (1 - 0.9) = 9.999999999999998."""
    assert quantile_supported(steps, q) is supported


def test_quantile_contrast() -> None:
    """Of a sample and its multiple: the log of the factor. Too few steps: nan, refused."""
    steps = np.random.default_rng(5).lognormal(0, 0.1, 200)
    assert quantile_contrast(steps, 0.98 * steps, 0.9) == pytest.approx(math.log(0.98), abs=1e-12)
    assert math.isnan(quantile_contrast(steps, steps[:99], 0.9))
    with pytest.raises(ValueError, match="positive"):
        quantile_contrast([1.0, 0.0], [1.0], 0.5)


def test_effect_difference_is_welchs_interval_as_scipy_has_it() -> None:
    first, second = [-0.021, -0.018, -0.025, -0.019], [-0.010, -0.016, -0.002]
    found = effect_difference(first, second, 0.9)
    test = stats.ttest_ind(second, first, equal_var=False)
    interval = test.confidence_interval(0.9)
    assert math.log(found.ratio) == pytest.approx(np.mean(second) - np.mean(first))
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert found.df == pytest.approx(test.df)
    swapped = effect_difference(second, first, 0.9)
    assert (swapped.low, swapped.high) == pytest.approx((1 / found.high, 1 / found.low))


def test_effect_difference_of_one_pair_has_no_interval_and_without_spread_no_width() -> None:
    alone = effect_difference([0.1], [0.2, 0.3])
    assert alone.ratio == pytest.approx(math.exp(0.15))
    assert all(math.isnan(one) for one in (alone.low, alone.high, alone.df))
    assert effect_difference([0.0, 0.0], [0.0, 0.0]) == (1.0, 1.0, 1.0, math.inf)
    with pytest.raises(ValueError, match="first"):
        effect_difference([], [0.1])
