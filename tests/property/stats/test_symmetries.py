"""What must hold for any data: mirrored arms, permuted units, unchanged units of time, more of the same evidence."""

import math
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from equipoise_evals.stats.equality import launch_permutation, mismatch_upper, output_shift
from equipoise_evals.stats.exact import sign_flip_exact, tost_paired
from equipoise_evals.stats.latency import abba_contrast, quantile_hd, ratio_interval, variance_components
from equipoise_evals.stats.moderated import LaunchPrior, moderated_interval
from equipoise_evals.stats.multiple import holm
from equipoise_evals.stats.paired import (
    clustered_mean,
    mcnemar,
    newcombe_interval,
    tango_interval,
    tango_noninferiority,
)
from equipoise_evals.stats.sequential import gsprt, spending_bounds
from equipoise_evals.stats.steady import equal_context, mser5, steady_state, two_levels

counts = st.integers(0, 1500)
levels = st.floats(0.5, 0.999)
times = st.floats(1e-3, 1e6)
logs = st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=12)
scales = st.floats(1e-3, 1e3)


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, int, int, int]:
    cells = draw(st.tuples(counts, counts, counts, counts))
    assume(sum(cells) > 0)
    return cells


# --- paired accuracy ---------------------------------------------------------------------------------------------


@given(counts, counts)
def test_mcnemar_mirrors(b: int, c: int) -> None:
    result = mcnemar(b, c)
    assert result == mcnemar(c, b)
    for p in (result.exact_p, result.midp, result.asymptotic_p, result.corrected_p):
        assert 0 <= p <= 1
    assert result.midp <= result.exact_p
    assert result.asymptotic_p <= result.corrected_p


@given(tables(), levels)
@example((0, 5, 0, 0), 0.95)
@example((0, 0, 5, 0), 0.95)
@example((0, 0, 0, 1), 0.95)
def test_tango_mirrors_and_stays_inside(table: tuple[int, int, int, int], confidence: float) -> None:
    a, b, c, d = table
    n = a + b + c + d
    low, high = tango_interval(b, c, n, confidence)
    mirrored = tango_interval(c, b, n, confidence)
    assert (low, high) == (-mirrored.high, -mirrored.low)
    assert -1 <= low <= (b - c) / n <= high <= 1
    assert low < high


@given(tables(), levels)
def test_newcombe_mirrors_and_stays_inside(table: tuple[int, int, int, int], confidence: float) -> None:
    a, b, c, d = table
    low, high = newcombe_interval(a, b, c, d, confidence)
    mirrored = newcombe_interval(a, c, b, d, confidence)
    assert (low, high) == pytest.approx((-mirrored.high, -mirrored.low), abs=1e-12)
    assert -1 <= low <= (b - c) / (a + b + c + d) + 1e-12
    assert low < high <= 1


@given(tables(), levels, st.integers(2, 5))
def test_more_of_the_same_answers_never_widen(table: tuple[int, int, int, int], confidence: float, times: int) -> None:
    a, b, c, d = table
    more = [times * cell for cell in table]
    few, many = tango_interval(b, c, sum(table), confidence), tango_interval(more[1], more[2], sum(more), confidence)
    assert many.low >= few.low - 1e-12
    assert many.high <= few.high + 1e-12
    narrow = newcombe_interval(times * a, times * b, times * c, times * d, confidence)
    wide = newcombe_interval(a, b, c, d, confidence)
    assert narrow.high - narrow.low <= wide.high - wide.low + 1e-12


@given(tables(), st.floats(0.001, 0.5), st.floats(0.55, 0.99))
def test_noninferiority_agrees_with_its_interval(
    table: tuple[int, int, int, int], margin: float, confidence: float
) -> None:
    """p < alpha exactly where the lower limit at 1 - 2 alpha is above -margin."""
    _, b, c, _ = table
    low = tango_interval(b, c, sum(table), confidence).low
    assume(abs(low + margin) > 1e-9)
    assert (tango_noninferiority(b, c, sum(table), margin).p_value < (1 - confidence) / 2) == (low > -margin)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=40), st.randoms())
def test_clustered_mean_ignores_order(data: list[tuple[int, int]], random: Random) -> None:
    shuffled = list(data)
    random.shuffle(shuffled)
    first = clustered_mean([v for _, v in data], [k for k, _ in data])
    second = clustered_mean([v for _, v in shuffled], [f"cluster {k}" for k, _ in shuffled])
    assert repr(first) == repr(second)
    assert math.isnan(first.se_corrected) == (first.clusters < 2)
    assert math.isnan(first.se_naive) == (first.n < 2)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=2, max_size=30))
def test_more_of_the_same_clusters_never_widen(data: list[tuple[int, int]]) -> None:
    once = clustered_mean([v for _, v in data], [k for k, _ in data])
    assume(once.clusters >= 2)
    twice = clustered_mean([v for _, v in data] * 2, [(i, k) for i in range(2) for k, _ in data])
    assert twice.se_corrected <= once.se_corrected + 1e-12
    assert twice.mean == pytest.approx(once.mean)


@given(counts, counts, counts, st.floats(-0.5, 0.49), st.floats(0.001, 0.4))
def test_gsprt_mirrors(losses: int, draws: int, wins: int, low: float, width: float) -> None:
    """Swapping the arms swaps the hypotheses, so the evidence changes its sign."""
    high = low + width
    first, second = gsprt(losses, draws, wins, low, high), gsprt(wins, draws, losses, -high, -low)
    assert math.isfinite(first.llr)
    assert first.llr == pytest.approx(-second.llr, rel=1e-9, abs=1e-9)
    assert (first.lower, first.upper) == (-second.upper, -second.lower)


# --- output equality ---------------------------------------------------------------------------------------------

texts = st.lists(st.tuples(*[st.sampled_from("abc")] * 4), min_size=1, max_size=40)


@given(texts, st.randoms())
def test_output_shift_mirrors(fours: list[tuple[str, ...]], random: Random) -> None:
    """Swapping arms, the launches of an arm, or the order of questions changes nothing but the names."""
    a1, a2, b1, b2 = zip(*fours, strict=True)
    result = output_shift(a1, a2, b1, b2, np.random.default_rng(0), 50)
    swapped = output_shift(b2, b1, a1, a2, np.random.default_rng(0), 50)
    assert swapped == result._replace(match_aa=result.match_bb, match_bb=result.match_aa)
    shuffled = list(fours)
    random.shuffle(shuffled)
    s1, s2, t1, t2 = zip(*shuffled, strict=True)
    assert output_shift(s1, s2, t1, t2, np.random.default_rng(0), 50) == result
    assert 0 < result.exact_p <= 1
    assert 0 < result.p_value <= 1


@given(texts)
def test_output_shift_against_itself(fours: list[tuple[str, ...]]) -> None:
    """The same two runs as both arms: cross matches contain the equal pairs, so the shift is never positive."""
    a1, a2, _, _ = zip(*fours, strict=True)
    assert output_shift(a1, a2, a1, a2, np.random.default_rng(0), 50).statistic <= 0


@settings(max_examples=20)
@given(arrays.arrays(np.int64, (10, 6), elements=st.integers(0, 2)), st.permutations(range(6)))
def test_launch_permutation_mirrors(outputs: NDArray[np.int64], order: list[int]) -> None:
    runs = outputs.tolist()
    result = launch_permutation(runs[:5], runs[5:])
    swapped = launch_permutation(runs[5:], runs[:5])
    assert swapped.statistic == pytest.approx(result.statistic, abs=1e-12)
    assert swapped.p_value == result.p_value
    shuffled = outputs[:, order].tolist()
    assert launch_permutation(shuffled[:5], shuffled[5:]) == result


@given(st.integers(1, 3000), st.data(), levels)
def test_mismatch_upper_is_a_bound(n: int, data: st.DataObject, confidence: float) -> None:
    mismatches = data.draw(st.integers(0, n))
    upper = mismatch_upper(mismatches, n, confidence)
    assert mismatches / n < upper <= 1 or mismatches == n
    assert mismatch_upper(2 * mismatches, 2 * n, confidence) <= upper + 1e-12


# --- exact tests -------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=14), st.randoms())
def test_sign_flip_mirrors(values: list[int], random: Random) -> None:
    result = sign_flip_exact(values)
    mirrored = sign_flip_exact([-v for v in values])
    assert (result.p_two, result.p_greater, result.p_less) == (mirrored.p_two, mirrored.p_less, mirrored.p_greater)
    shuffled = list(values)
    random.shuffle(shuffled)
    assert sign_flip_exact(shuffled) == result
    assert sign_flip_exact([v * 7 for v in values]) == result
    assert sign_flip_exact([*values, 0]) == result


@given(logs, logs, st.floats(0.001, 1.0))
def test_tost_mirrors(x: list[float], y: list[float], bound: float) -> None:
    n = min(len(x), len(y))
    result, mirrored = tost_paired(x[:n], y[:n], -bound, bound), tost_paired(y[:n], x[:n], -bound, bound)
    assert mirrored.p_value == result.p_value
    assert (mirrored.low, mirrored.high) == pytest.approx((-result.high, -result.low), abs=1e-12)
    assert not any(math.isnan(value) for value in result)


# --- latency -----------------------------------------------------------------------------------------------------


@given(logs, levels, st.randoms())
def test_ratio_interval_mirrors(values: list[float], confidence: float, random: Random) -> None:
    result = ratio_interval(values, confidence)
    mirrored = ratio_interval([-v for v in values], confidence)
    assert result.estimate == -mirrored.estimate
    assert result.sd == mirrored.sd
    assert result.ratio * mirrored.ratio == pytest.approx(1)
    assert result.low <= result.ratio <= result.high
    shuffled = list(values)
    random.shuffle(shuffled)
    assert ratio_interval(shuffled, confidence) == result


@given(logs, levels, st.integers(2, 4))
def test_more_of_the_same_pairs_never_widen(values: list[float], confidence: float, times: int) -> None:
    few, many = ratio_interval(values, confidence), ratio_interval(values * times, confidence)
    assert many.high - many.low <= (few.high - few.low) * (1 + 1e-9)
    assert many.ratio == pytest.approx(few.ratio)


@given(st.floats(-0.5, 0.5), st.integers(2, 10), levels)
def test_equal_pairs_are_a_point(value: float, pairs: int, confidence: float) -> None:
    result = ratio_interval([value] * pairs, confidence)
    assert result.low == result.ratio == result.high


@given(st.lists(times, min_size=1, max_size=8), st.randoms(), scales)
def test_abba_mirrors(means: list[float], random: Random, scale: float) -> None:
    """Against itself exactly 0; swapped arms change the sign; another unit of time or order changes nothing."""
    other = [mean * 1.01 for mean in means]
    blocks = [("A", mean) for mean in means] + [("B", mean) for mean in other]
    shuffled = list(means)
    random.shuffle(shuffled)
    assert abba_contrast([("A", m) for m in means] + [("B", m) for m in shuffled]) == 0
    contrast = abba_contrast(blocks)
    assert contrast == pytest.approx(math.log(1.01), abs=1e-9)
    assert abba_contrast([("B" if arm == "A" else "A", mean) for arm, mean in blocks]) == -contrast
    assert abba_contrast([(arm, mean * scale) for arm, mean in blocks]) == pytest.approx(contrast, abs=1e-9)


@given(arrays.arrays(np.float64, (3, 2, 4), elements=st.floats(-1e3, 1e3)), scales, st.permutations(range(3)))
def test_variance_components_scale(tree: NDArray[np.float64], scale: float, order: list[int]) -> None:
    result = variance_components(tree)
    scaled = variance_components(tree * scale)
    assert scaled.s2 == pytest.approx([s * scale**2 for s in result.s2], rel=1e-6, abs=1e-6 * scale**2)
    assert variance_components(tree[order]).s2 == pytest.approx(result.s2, rel=1e-9, abs=1e-9)
    assert all(s >= 0 for s in result.s2)


@given(st.lists(times, min_size=1, max_size=40), st.floats(0, 1), scales)
def test_quantile_scales(values: list[float], q: float, scale: float) -> None:
    quantile = quantile_hd(values, q)
    assert min(values) * (1 - 1e-9) <= quantile <= max(values) * (1 + 1e-9)
    assert quantile_hd([v * scale for v in values], q) == pytest.approx(quantile * scale, rel=1e-9)
    assert quantile_hd(values[::-1], q) == quantile


@given(logs, st.floats(0.5, 100), st.floats(1e-4, 0.1), levels)
def test_moderated_mirrors(values: list[float], d0: float, s0: float, confidence: float) -> None:
    prior = LaunchPrior(d0, s0, 10)
    result = moderated_interval(values, prior, confidence)
    mirrored = moderated_interval([-v for v in values], prior, confidence)
    assert (result.sd, result.df, result.borrowed) == (mirrored.sd, mirrored.df, mirrored.borrowed)
    assert result.low * mirrored.high == pytest.approx(1)
    assert result.low <= result.ratio <= result.high


# --- blocks ------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), scales, st.sampled_from([0.0, 0.3, 0.5]))
def test_blocks_know_no_unit(seed: int, scale: float, share: float) -> None:
    """Scaling all times leaves truncation, drift, level shares and contrasts at equal context unchanged."""
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random(200) < share, 4390.0, 4590.0) * (1 + 0.004 * rng.standard_normal(200))
    assert mser5(steps * scale) == mser5(steps)
    assert steady_state(steps * scale)[:3] == pytest.approx(steady_state(steps)[:3], rel=1e-6, abs=1e-12)
    levels, scaled = two_levels(steps), two_levels(steps * scale)
    assert (levels.found, levels.tested) == (scaled.found, scaled.tested)
    if levels.found:
        assert (scaled.share_low, scaled.low / scale) == pytest.approx((levels.share_low, levels.low))
    blocks = [(range(200), steps), (range(200), steps[::-1])]
    means = equal_context([(c, t * scale) for c, t in blocks]).means
    assert means == pytest.approx([m * scale for m in equal_context(blocks).means])


# --- looks and families ------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["pocock", "obrien_fleming"]),
    st.lists(st.integers(1, 20), min_size=1, max_size=5, unique=True),
    st.floats(0.001, 0.2),
)
def test_bounds_are_finite_and_in_range(kind: str, sizes: list[int], alpha: float) -> None:
    """No bound spends more than the whole, and a plan cut short has the same bounds up to there."""
    fractions = [size / 20 for size in sorted(sizes)]
    bounds = spending_bounds(kind, fractions, alpha)  # type: ignore[arg-type]
    assert len(bounds) == len(fractions)
    single = spending_bounds(kind, [1.0], alpha)[0]  # type: ignore[arg-type]
    assert all(bound >= single - 1e-6 for bound in bounds)
    assert spending_bounds(kind, fractions[:-1] or fractions, alpha) == bounds[: max(1, len(bounds) - 1)]  # type: ignore[arg-type]


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_keeps_order(p_values: Sequence[float]) -> None:
    adjusted = holm(p_values)
    for (p, q), (r, s) in pairwise(zip(p_values, adjusted, strict=True)):
        assert (p <= r and q <= s) or (p >= r and q >= s)
    assert all(p <= q <= 1 for p, q in zip(p_values, adjusted, strict=True))
