"""The inside of a block against brute force and scipy; planted warm-ups, drifts and levels."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import signal, stats

from equipoise_evals.stats.steady import equal_context, low_share, mser5, steady_state, two_levels


def autocorrelated(rng: np.random.Generator, n: int, rho: float) -> NDArray[np.float64]:
    """AR(1) with unit variance, started in its stationary state."""
    noise = rng.standard_normal(n + 300) * math.sqrt(1 - rho**2)
    return np.asarray(signal.lfilter([1.0], [1.0, -rho], noise)[300:], dtype=np.float64)


@pytest.mark.parametrize("seed", range(6))
def test_mser5_brute_force(seed: int) -> None:
    """The definition, one truncation at a time."""
    rng = np.random.default_rng(seed)
    series = 100 + autocorrelated(rng, 123, 0.5) + 8 * np.exp(-np.arange(123) / (3 + 5 * seed))
    batches = series[:120].reshape(24, 5).mean(axis=1)
    scores = [np.var(batches[d:]) / (24 - d) for d in range(13)]
    result = mser5(series)
    assert result.drop == 5 * int(np.argmin(scores))
    assert result.settled == (np.argmin(scores) < 12)


def test_mser5_edges() -> None:
    """A constant series drops nothing, a series that only rises never settles."""
    assert mser5([0.1] * 40) == (0, True)
    assert mser5(range(100)).settled is False
    with pytest.raises(ValueError, match="at least 20"):
        mser5([1.0] * 19)


def test_steady_state_scipy() -> None:
    """scipy's regression on the ten batch means."""
    series = 1000 + autocorrelated(np.random.default_rng(1), 200, 0.3) + 0.05 * np.arange(200)
    means = series.reshape(10, 20).mean(axis=1)
    line = stats.linregress(np.arange(10) / 10, means)
    half = stats.t.isf(0.005, 8) * line.stderr
    result = steady_state(series)
    expected = np.array([line.slope, line.slope - half, line.slope + half]) / series.mean()
    assert (result.drift, result.low, result.high) == pytest.approx(tuple(expected), rel=1e-9)


def test_steady_state_sees_drift() -> None:
    """2 % of drift with 0.5 % of noise is not steady, either way; the same noise alone is; a constant is."""
    noise = 1 + 0.005 * autocorrelated(np.random.default_rng(2), 256, 0.5)
    slope = 0.02 * np.arange(256) / 256
    assert steady_state(noise).steady
    assert not steady_state(noise + slope).steady
    assert not steady_state(noise - slope).steady
    assert steady_state(noise + slope, tolerance=0.03).steady
    assert steady_state([5.0] * 20) == (0.0, 0.0, 0.0, 0.99, True)
    for values in ([1.0] * 19, [1.0] * 19 + [0.0]):
        with pytest.raises(ValueError, match=r"at least 20|positive"):
            steady_state(values)


def h200_block(seed: int, share: float, n: int = 256) -> NDArray[np.float64]:
    """Steps that jump between 4390 and 4590 us, the second host of DESIGN section 1."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(n) < share, 4390.0, 4590.0) * (1 + 0.004 * autocorrelated(rng, n, 0.4))


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8])
def test_two_levels_found(share: float) -> None:
    """Levels within 0.3 %, share within what was drawn."""
    steps = h200_block(3, share)
    result = two_levels(steps)
    assert result.found
    assert (result.low, result.high) == pytest.approx((4390, 4590), rel=3e-3)
    assert result.separation == pytest.approx(200 / 4390, rel=0.1)
    assert result.share_low == pytest.approx(share, abs=0.08)
    assert low_share(steps, result.boundary) == pytest.approx(result.share_low, abs=1 / 128)


def test_two_levels_in_runs_and_under_spikes() -> None:
    """Long stays at a level and spikes of 2 % of the steps hide nothing."""
    rng = np.random.default_rng(4)
    steps = np.repeat(h200_block(5, 0.4, 16), 16) * (1 + 0.003 * rng.standard_normal(256))
    steps[rng.choice(256, 5, replace=False)] *= 3
    result = two_levels(steps)
    assert result.found
    assert (result.low, result.high) == pytest.approx((4390, 4590), rel=6e-3)


def test_two_levels_not_found() -> None:
    """Noise, growth with the context, and levels closer than 1 %: tested, and no levels reported."""
    rng = np.random.default_rng(6)
    noise = 4500 * (1 + 0.01 * autocorrelated(rng, 400, 0.6))
    close = np.where(rng.random(400) < 0.5, 1162.0, 1163.0)
    for steps in (noise, noise * (1 + 0.01 * np.arange(400) / 200), close, np.full(400, 7.0)):
        result = two_levels(steps)
        assert (result.found, result.tested) == (False, True)
        assert all(math.isnan(value) for value in result[2:])


def test_two_levels_edges() -> None:
    """Fewer than 100 steps are not tested."""
    few = two_levels([1.0, 2.0] * 49)
    assert (few.found, few.tested) == (False, False)
    assert two_levels([1.0, 2.0] * 50).found
    for values in ([], [0.0] * 100, [math.nan] * 100):
        with pytest.raises(ValueError, match=r"needs at least|positive|missing"):
            two_levels(values)


def test_equal_context_removes_unequal_starts() -> None:
    """Same engine, one block started 50 tokens later: plain means differ, means at equal context do not."""
    contexts = [np.arange(100, 300), np.arange(150, 350)]
    blocks = [(c, 1000 * (1 + 0.01 * (c - 100) / 200)) for c in contexts]
    result = equal_context(blocks)
    assert blocks[1][1].mean() / blocks[0][1].mean() > 1.002
    assert result.means[0] == pytest.approx(result.means[1], rel=1e-12)
    assert result.contexts == tuple(range(150, 300))
    for relative in result.relative:
        assert relative == pytest.approx(np.ones(150), rel=1e-12)


def test_equal_context_shows_a_drifting_block() -> None:
    """Growth common to all blocks is gone from ``relative``; what one block does alone is left."""
    contexts = np.arange(200)
    growth = 1000 * (1 + 0.01 * contexts / 200)
    rng = np.random.default_rng(7)
    blocks = [(contexts, growth * (1 + 0.003 * rng.standard_normal(200))) for _ in range(8)]
    blocks[2] = (contexts, blocks[2][1] * (1 + 0.03 * contexts / 200))
    steady = [steady_state(relative).steady for relative in equal_context(blocks).relative]
    assert steady == [True, True, False, True, True, True, True, True]


def test_equal_context_averages_repeats() -> None:
    """Two steps at one context count as one; every context weighs the same."""
    result = equal_context([([5, 5, 6], [1.0, 3.0, 10.0]), ([6, 5, 9], [4.0, 2.0, 1.0])])
    assert result.means == (6.0, 3.0)
    assert result.contexts == (5, 6)


def test_equal_context_refuses() -> None:
    for blocks in ([], [([1], [1.0]), ([2], [1.0])], [([1, 2], [1.0])], [([1], [0.0])]):
        with pytest.raises(ValueError, match=r"common|as many contexts|positive"):
            equal_context(blocks)
