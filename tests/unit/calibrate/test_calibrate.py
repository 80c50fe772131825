"""The calibration's own parts: worlds that are what they say, counts that add up, bounds that are exact."""

import numpy as np
import pytest
from scipy.stats import binomtest

from equipoise_evals.calibrate.accuracy import AccuracyWorld, accuracy_plan, simulate_accuracy
from equipoise_evals.calibrate.grid import ACCURACY_CELLS, LATENCY_CELLS
from equipoise_evals.calibrate.latency import joined, latency_plan, simulate_latency
from equipoise_evals.calibrate.run import clopper_pearson, count_cell, result
from equipoise_evals.calibrate.table import page
from equipoise_evals.calibrate.worlds import LatencyWorld, launch_log_ratio, pair_blocks
from equipoise_evals.judge import measure
from equipoise_evals.model import Records


@pytest.mark.parametrize("shape", ["normal", "t3", "bimodal", "rare"])
def test_launches_spread_as_stated(shape: str) -> None:
    rng = np.random.default_rng(3)
    world = LatencyWorld.model_validate({"launch_shape": shape, "launch_sd": 0.003, "effect": -0.01})
    logs = [launch_log_ratio(world, rng) for _ in range(20_000)]
    assert np.mean(logs) == pytest.approx(np.log(0.99), abs=2e-4)
    # t with 3 degrees of freedom has a finite variance but a wild sample variance.
    assert np.std(logs) == pytest.approx(0.003, rel=0.25 if shape == "t3" else 0.03)


def test_a_world_with_next_to_no_noise_recovers_its_effect() -> None:
    # A hair of noise: launch pairs that agree to the last digit would be copies, and decide nothing.
    world = LatencyWorld(effect=-0.0164, launch_sd=1e-12, step_cv=0.0, step_ar1=0.0)
    outcome = simulate_latency(world, latency_plan(), np.random.default_rng(1))
    assert (outcome.word, outcome.pairs) == ("faster", 3)


def test_two_levels_drift_warm_up_and_spikes_shape_the_steps() -> None:
    plan = latency_plan(steps_per_block=512)
    assert plan.latency is not None
    quiet = {"step_cv": 0.0, "step_ar1": 0.0, "launch_sd": 0.0}
    blocks = pair_blocks(LatencyWorld.model_validate(quiet | {"level_gap": 0.04}), plan, 1, np.random.default_rng(2))
    assert set(np.round(blocks[0].steps.busy_us, 6)) == {4650.0, 4464.0}
    warm = pair_blocks(LatencyWorld.model_validate(quiet | {"warmup": 0.2}), plan, 1, np.random.default_rng(2))
    assert warm[0].steps.busy_us[0] == pytest.approx(1.2 * 4650)
    drift = pair_blocks(LatencyWorld.model_validate(quiet | {"drift": 0.02}), plan, 1, np.random.default_rng(2))
    assert drift[-1].steps.busy_us[0] > drift[0].steps.busy_us[0]
    spiky = LatencyWorld.model_validate(quiet | {"spike_share": 0.05, "spike": 0.5})
    assert max(pair_blocks(spiky, plan, 1, np.random.default_rng(2))[0].steps.busy_us) == 1.5 * 4650


def test_pairs_measured_one_by_one_and_joined_are_what_all_of_them_measured_together_are() -> None:
    plan, rng = latency_plan(steps_per_block=128), np.random.default_rng(5)
    assert plan.latency is not None
    world = LatencyWorld(level_gap=0.043, level_share_sd=0.15)
    pairs = [tuple(pair_blocks(world, plan, pair, rng)) for pair in (1, 2, 3)]
    one_by_one = [measure(Records(records=pair), plan) for pair in pairs]
    together = measure(Records(records=sum(pairs, ())), plan)
    assert joined(joined(one_by_one[0], one_by_one[1]), one_by_one[2]) == together
    assert len(together.levels) == 3
    assert any(levels.low_us is not None for levels in together.levels)


def test_equal_answers_are_identical_and_a_loss_is_found() -> None:
    rng = np.random.default_rng(4)
    same, loss = AccuracyWorld(discordance=0.0), AccuracyWorld(discordance=0.08, difference=-0.05)
    assert simulate_accuracy(same, accuracy_plan(latency_plan(), same, 2), rng).word == "identical"
    assert simulate_accuracy(loss, accuracy_plan(latency_plan(), loss, 2), rng).word == "regression"


def test_few_questions_that_differ_stay_open_to_the_last_pass() -> None:
    few = AccuracyWorld(questions=40, discordance=0.2)
    outcome = simulate_accuracy(few, accuracy_plan(latency_plan(), few, 2), np.random.default_rng(8))
    assert (outcome.word, outcome.passes) == ("inconclusive", 2)


def test_plans_that_cannot_end_are_refused() -> None:
    with pytest.raises(ValueError, match="no look"):
        simulate_latency(LatencyWorld(), latency_plan(pairs_max=2), np.random.default_rng(1))
    with pytest.raises(ValueError, match="no accuracy half"):
        simulate_accuracy(AccuracyWorld(), latency_plan(), np.random.default_rng(1))


def test_counts_add_up_and_do_not_depend_on_the_batches() -> None:
    for cell in (LATENCY_CELLS[2], LATENCY_CELLS[11], ACCURACY_CELLS[0], ACCURACY_CELLS[-1]):
        first, second = count_cell(cell, 3, (1, 0)), count_cell(cell, 2, (1, 3))
        both = first.plus(second)
        assert both.runs == 5
        assert sum(both.words.values()) == 5
        assert count_cell(cell, 3, (1, 0)) == first


@pytest.mark.parametrize(("hits", "runs"), [(0, 50), (3, 50), (50, 50)])
def test_bounds_are_clopper_pearson(hits: int, runs: int) -> None:
    low, high = clopper_pearson(hits, runs)
    # A one-sided 99 % bound each way is the two-sided 98 % interval of the same construction.
    exact = binomtest(hits, runs).proportion_ci(0.98, method="exact")
    assert (low, high) == pytest.approx((exact.low, exact.high))


def test_a_row_that_only_shows_where_a_rule_ends_claims_no_coverage() -> None:
    """No interval of a fixed number of launches that saw no rare state covers the mean over all launches."""
    cell = next(cell for cell in LATENCY_CELLS if cell.world.launch_shape == "rare")
    shown = result(cell, count_cell(cell, 40, (3,)))
    assert shown.counted.fixed_covered[0] < 0.8 * 40
    assert (shown.holds, shown.coverage_holds) == (None, True)
    assert not result(cell.model_copy(update={"limit": 0.05}), shown.counted).coverage_holds


def test_the_table_says_which_limit_holds() -> None:
    results = [
        result(cell, count_cell(cell, 2, (7,))) for cell in (LATENCY_CELLS[2], LATENCY_CELLS[-1], ACCURACY_CELLS[0])
    ]
    text = page(results, "Made by hand.")
    assert text.startswith("# Calibration")
    assert "Made by hand." in text
    assert LATENCY_CELLS[2].name in text
    assert ACCURACY_CELLS[0].name in text
    assert [r.holds for r in results] == [True, None, True]
