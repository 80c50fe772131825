"""Chances of limits that are not measured yet, against simulation of the interval itself and against SciPy."""

import math

import numpy as np
import pytest
from scipy import stats

from equipoise_evals.stats.latency import ratio_interval
from equipoise_evals.stats.power import FAR_T, chance_below, chance_between, fewest_pairs
from tests.support.guarantees import require_at_least, require_at_most

RUNS = 4_000


def simulated(mean: float, sd: float, pairs: int, level: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([pairs, int(1e6 * sd)])
    fits = [ratio_interval(row, level) for row in mean + sd * rng.standard_normal((RUNS, pairs))]
    return np.log([fit.low for fit in fits]), np.log([fit.high for fit in fits])


@pytest.mark.parametrize(
    ("mean", "sd", "pairs", "level"),
    [(-0.005, 0.003, 5, 0.975), (-0.016, 0.01, 3, 0.98), (0.002, 0.004, 10, 0.95), (-0.01, 0.02, 2, 0.9)],
)
def test_chances_are_those_of_the_interval(mean: float, sd: float, pairs: int, level: float) -> None:
    low, high = simulated(mean, sd, pairs, level)
    for seen, chance in (
        (high < 0.0, chance_below(0.0, mean, sd, pairs, level)),
        (low > 0.001, chance_below(-0.001, -mean, sd, pairs, level)),
        ((low > -0.01) & (high < 0.01), chance_between((-0.01, 0.01), mean, sd, pairs, level)),
    ):
        hits = int(seen.sum())
        require_at_most(chance, hits, RUNS)
        require_at_least(chance, hits, RUNS)


@pytest.mark.parametrize("shift", [-2.0, 0.0, 1.0, 4.0])
def test_chance_below_is_the_noncentral_t(shift: float) -> None:
    expected = stats.nct.sf(stats.t.ppf(0.975, 5), 5, shift)
    assert chance_below(shift / math.sqrt(6), 0.0, 1.0, 6) == pytest.approx(expected, abs=1e-9)


def test_a_far_critical_value_is_approximated_and_meets_the_exact_one() -> None:
    # P(T > t) for t just on either side of the change; two pairs, so one degree of freedom.
    levels = [1 - 2 * stats.t.sf(FAR_T * factor, 1) for factor in (0.999, 1.001)]
    exact, approximate = (chance_below(20.0, 0.0, 1.0, 2, level) for level in levels)
    assert exact == pytest.approx(approximate, abs=1e-3)
    assert chance_below(-1.0, 0.0, 1.0, 2, 1 - 1e-6) == 0.0


def test_without_spread_the_interval_is_the_mean() -> None:
    assert [chance_below(0.0, mean, 0.0, 3) for mean in (-0.1, 0.0, 0.1)] == [1.0, 0.0, 0.0]
    assert [chance_between((-0.1, 0.1), mean, 0.0, 3) for mean in (-0.1, 0.0, 0.1)] == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(("sd", "pairs"), [(-0.1, 3), (math.nan, 3), (0.1, 1)])
def test_what_has_no_chance_is_refused(sd: float, pairs: int) -> None:
    with pytest.raises(ValueError, match="launch SD and at least 2 pairs"):
        chance_below(0.0, 0.0, sd, pairs)
    with pytest.raises(ValueError, match="launch SD and at least 2 pairs"):
        chance_between((-1.0, 1.0), 0.0, sd, pairs)


@pytest.mark.parametrize("sd", [0.002, 0.01, 0.03])
def test_fewest_pairs_is_the_first_that_reaches_it(sd: float) -> None:
    def chance(pairs: int) -> float:
        return chance_below(0.0, -0.01, sd, pairs)

    first = next(pairs for pairs in range(3, 201) if chance(pairs) >= 0.8)
    assert fewest_pairs(chance, 0.8, least=3, most=200) == first
    assert fewest_pairs(chance, 0.8, least=first, most=first) == first
    assert fewest_pairs(chance, 0.8, least=3, most=2) is None


def test_no_number_within_reach_is_none() -> None:
    assert fewest_pairs(lambda pairs: pairs / 1_000, 0.8, least=3, most=200) is None
