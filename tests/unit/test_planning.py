"""What a plan promises, against simulation of the same look."""

import numpy as np
import pytest
from scipy.stats import binomtest

from equipoise_evals.planning import (
    Aim,
    Costs,
    chance_of_difference,
    chance_of_equivalence,
    pairs_that_decide,
    plan_looks,
)
from equipoise_evals.stats.latency import ratio_interval
from equipoise_evals.stats.looks import look_level

AIM = Aim(
    effect=-0.005, launch_sd=0.003, margin_latency=0.005, questions=1319, discordance=0.02, margin_pp=1.0, pairs_max=5
)
LOOKS = (3, 4, 5)
RUNS = 4_000


def test_the_chance_of_a_difference_is_that_of_the_look() -> None:
    rng = np.random.default_rng(5)
    level = look_level(5, LOOKS, 0.025).level
    logs = np.log1p(AIM.effect) + AIM.launch_sd * rng.standard_normal((RUNS, 5))
    hits = sum(ratio_interval(row, level).high < 1 for row in logs)
    assert binomtest(hits, RUNS, chance_of_difference(AIM, 5, LOOKS)).pvalue > 0.001


def test_the_chance_of_equivalence_is_that_of_the_look() -> None:
    rng = np.random.default_rng(6)
    level = look_level(5, LOOKS, 0.05).level
    hits = 0
    for row in AIM.launch_sd * rng.standard_normal((RUNS, 5)):
        fitted = ratio_interval(row, level)
        hits += -np.log1p(0.005) < np.log(fitted.low) and np.log(fitted.high) < np.log1p(0.005)
    assert binomtest(hits, RUNS, chance_of_equivalence(AIM, 5, LOOKS)).pvalue > 0.001


def test_cost_counts_starts_blocks_and_passes() -> None:
    looks = plan_looks(AIM, Costs(start_s=70, blocks_s=20, pass_s=30))
    assert [look.pairs for look in looks] == [3, 4, 5]
    assert looks[0].device_seconds == 3 * (2 * 70 + 20) + 2 * 3 * 30
    assert all(0 <= look.accuracy <= 1 for look in looks)


def test_more_pairs_never_lower_the_chance() -> None:
    for effect in (-0.0164, 0.0):
        looks = plan_looks(AIM.model_copy(update={"effect": effect}), Costs(start_s=1, blocks_s=1, pass_s=1))
        assert [look.latency for look in looks] == sorted(look.latency for look in looks)


def test_without_discordance_non_inferiority_is_certain() -> None:
    looks = plan_looks(AIM.model_copy(update={"discordance": 0.0}), Costs(start_s=1, blocks_s=1, pass_s=1))
    assert looks[0].accuracy == pytest.approx(1.0)


@pytest.mark.parametrize(("effect", "launch_sd"), [(-0.01, 0.01), (-0.005, 0.003), (0.0, 0.004)])
def test_the_pairs_that_decide_are_the_first_whose_own_plan_ends_with_that_chance(
    effect: float, launch_sd: float
) -> None:
    aim = AIM.model_copy(update={"effect": effect, "launch_sd": launch_sd})
    needed = pairs_that_decide(aim, 0.8)
    assert needed is not None
    assert needed > 3

    def chance(pairs: int) -> float:
        end = plan_looks(aim.model_copy(update={"pairs_max": pairs}), Costs(start_s=1, blocks_s=1, pass_s=1))[-1]
        assert end.pairs == pairs
        return end.latency

    assert chance(needed - 1) < 0.8 <= chance(needed)


def test_launches_that_differ_too_much_are_beyond_reach() -> None:
    assert pairs_that_decide(AIM.model_copy(update={"launch_sd": 0.5}), 0.8) is None
