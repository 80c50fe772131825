"""Spending bounds against the multivariate normal, GSPRT against numerical maximisation."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import optimize, stats

from equipoise_evals.stats.sequential import Spending, gsprt, spending_bounds, spent_alpha, wald_bounds

KINDS: tuple[Spending, ...] = ("obrien_fleming", "pocock")


def stopped_by(fractions: Sequence[float], bounds: Sequence[float]) -> float:
    """P(any Z_k above its bound), by scipy's multivariate normal."""
    covariance = [[math.sqrt(min(s, t) / max(s, t)) for s in fractions] for t in fractions]
    mean, rng = np.zeros(len(bounds)), np.random.default_rng(0)
    return 1 - float(stats.multivariate_normal.cdf(bounds, mean, np.array(covariance), abseps=1e-9, rng=rng))


@pytest.mark.parametrize("alpha", [0.005, 0.025, 0.05, 0.3])
@pytest.mark.parametrize("fractions", [[0.3, 0.4], [0.25, 0.5, 1.0], [0.3, 0.31, 0.9]])
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_spend_their_alpha(kind: Spending, fractions: list[float], alpha: float) -> None:
    """Up to each look the multivariate normal has the spent error above the bounds (scipy integrates to about 1e-5)."""
    bounds = spending_bounds(kind, fractions, alpha)
    for look, spent in enumerate(spent_alpha(kind, fractions, alpha), start=1):
        assert stopped_by(fractions[:look], bounds[:look]) == pytest.approx(spent, abs=3e-5)


def test_pocock_bounds_published() -> None:
    """The five equally spaced Pocock-type bounds of Lan & DeMets 1983, as ldbounds and rpact (asP) print them."""
    expected = [2.438, 2.427, 2.410, 2.397, 2.386]
    assert spending_bounds("pocock", [0.2, 0.4, 0.6, 0.8, 1]) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_single_look_is_the_plain_test(kind: Spending) -> None:
    assert spending_bounds(kind, [1], 0.05) == pytest.approx([stats.norm.isf(0.05)], abs=1e-8)
    assert spent_alpha(kind, [0.5, 1.0], 0.025)[-1] == pytest.approx(0.025, rel=1e-12)


def test_bounds_early_and_close_looks() -> None:
    """Bounds of looks that spend next to nothing are far out, and infinite where a float holds nothing of it."""
    early = spending_bounds("obrien_fleming", [0.0005, 0.001, 0.01, 1.0])
    assert early[:2] == [math.inf, math.inf]
    assert 20 < early[2] < 30
    assert early[3] == pytest.approx(stats.norm.isf(0.025), abs=1e-6)
    close = spending_bounds("pocock", [0.5, 0.50001, 1.0])
    assert close[2] == pytest.approx(spending_bounds("pocock", [0.5, 1.0])[1], abs=1e-3)


def test_bounds_inputs() -> None:
    """Arrays and whole numbers are taken; kinds, orders and levels out of range are refused."""
    bounds = spending_bounds("pocock", np.array([0.5, 1]))
    assert isinstance(bounds, list)
    assert all(type(bound) is float for bound in bounds)
    for fractions, alpha in (([], 0.025), ([0.5, 0.5], 0.025), ([0.0, 1.0], 0.025), ([0.5, 1.1], 0.025), ([1.0], 1.0)):
        with pytest.raises(ValueError, match=r"increase strictly|strictly between"):
            spending_bounds("pocock", fractions, alpha)
    with pytest.raises(ValueError, match="one of"):
        spending_bounds("haybittle", [1.0])  # type: ignore[arg-type]


def profile(losses: int, draws: int, wins: int, mean: float) -> float:
    """Largest multinomial log-likelihood at a mean score, by numerical maximisation over P(loss)."""

    def minus(rate: float) -> float:
        cells = ((losses, rate), (draws, 1 - 2 * rate - mean), (wins, rate + mean))
        return -sum(count * math.log(max(p, 1e-300)) for count, p in cells if count)

    bounds = (max(0.0, -mean), (1 - mean) / 2)
    inner = optimize.minimize_scalar(minus, bounds=bounds, method="bounded", options={"xatol": 1e-13})
    return -min(float(inner.fun), *map(minus, bounds))


COUNTS = [(55, 1221, 43), (0, 1319, 0), (0, 1300, 19), (19, 1300, 0), (3, 0, 5), (0, 0, 7), (1, 0, 0)]


@pytest.mark.parametrize(
    ("counts", "means"), list(itertools.product(COUNTS, [(-0.02, 0.0), (-0.01, 0.01), (0.1, 0.4)]))
)
def test_gsprt_maximised(counts: tuple[int, int, int], means: tuple[float, float]) -> None:
    low, high = means
    expected = profile(*counts, high) - profile(*counts, low)
    result = gsprt(*counts, low, high)
    assert result.llr == pytest.approx(expected, abs=1e-5)
    losses, draws, wins = counts
    assert result.estimate == (wins - losses) / (losses + draws + wins)


def test_gsprt_decides() -> None:
    """Strong evidence crosses a bound on its side; none at all is a ratio of 0 and no decision."""
    assert gsprt(10, 1000, 100, -0.01, 0.01).decision == "accept_high"
    assert gsprt(100, 1000, 10, -0.01, 0.01).decision == "accept_low"
    nothing = gsprt(0, 0, 0, -0.01, 0.01)
    assert (nothing.llr, nothing.decision) == (0.0, "continue")
    assert math.isnan(nothing.estimate)
    assert gsprt(5, 50, 5, -0.01, 0.01, 0.1, 0.2)[1:3] == wald_bounds(0.1, 0.2)


def test_gsprt_refuses() -> None:
    for low, high in ((0.0, 0.0), (0.1, 0.0), (-1.0, 0.0), (0.0, 1.0)):
        with pytest.raises(ValueError, match="low < high"):
            gsprt(1, 1, 1, low, high)
    with pytest.raises(ValueError, match="count"):
        gsprt(-1, 1, 1, 0.0, 0.1)
    with pytest.raises(ValueError, match="nothing between"):
        wald_bounds(0.6, 0.4)
    with pytest.raises(ValueError, match="strictly between"):
        wald_bounds(0.0, 0.4)
