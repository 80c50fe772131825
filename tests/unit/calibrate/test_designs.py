"""Designs beside each other: the same launch pairs, at the same cost, and who is right how often."""

import numpy as np
import pytest

from equipoise_evals.calibrate.designs import (
    COST_CELLS,
    DESIGNS,
    MARGIN,
    REFERENCE,
    CostCell,
    Costs,
    Tally,
    cost_table,
    machine_histories,
    naive_word,
    simulate_designs,
    tally_cell,
)
from equipoise_evals.calibrate.latency import latency_plan
from equipoise_evals.calibrate.worlds import LatencyWorld, pair_blocks
from tests.support import records as make

RUN_ONCE, FIVE, TEN, OURS, BORROWING = (design.name for design in DESIGNS)
CALM_GAIN = COST_CELLS[1]


def test_every_design_pays_for_the_pairs_that_it_saw() -> None:
    """Costs without spread: a pair is two starts of 70 s and 10 s of blocks."""
    history = machine_histories(CALM_GAIN, np.random.default_rng(1), machines=1)[0]
    costs = Costs(start_s=(70, 70), measuring_s=(10, 10))
    ended = simulate_designs(CALM_GAIN.world, history, costs, np.random.default_rng(2))
    assert [ended[name].pairs for name in (RUN_ONCE, FIVE, TEN)] == [1, 5, 10]
    assert {one.device_s / one.pairs for one in ended.values()} == {150.0}
    assert (ended[OURS].pairs, ended[BORROWING].pairs) == (3, 2)
    assert {one.word for one in ended.values()} == {"faster"}


def test_a_world_too_noisy_for_a_word_ends_at_the_last_look() -> None:
    cell = CostCell(name="wild", effect=0.0, launch_sd=0.05, history_sd=0.05)
    history = machine_histories(cell, np.random.default_rng(1), machines=1)[0]
    ended = simulate_designs(cell.world, history, Costs(), np.random.default_rng(1))
    assert {name: (ended[name].word, ended[name].pairs) for name in (FIVE, OURS)} == {
        FIVE: ("inconclusive", 5),
        OURS: ("inconclusive", 10),
    }


def test_histories_tell_the_spread_of_the_worlds_they_come_from() -> None:
    """Launches of 0.3 % and 0.02 % of steps; the median over machines of an SD fitted to 12 degrees of freedom."""
    cell = CostCell(name="aa", effect=-0.5, launch_sd=0.1, history_sd=0.003)
    fitted = [history["busy"].s0 for history in machine_histories(cell, np.random.default_rng(3), machines=20)]
    assert 0.0024 < np.median(fitted) < 0.0036


@pytest.mark.parametrize(
    ("effect", "step_cv", "word"),
    [
        (-0.05, 0.001, "faster"),
        (0.05, 0.001, "slower"),
        (0.0, 0.001, "equivalent"),
        (0.0, 0.2, "inconclusive"),
    ],
)
def test_the_naive_design_says_what_the_steps_of_one_launch_say(effect: float, step_cv: float, word: str) -> None:
    plan = latency_plan(MARGIN)
    assert plan.latency is not None
    world = LatencyWorld(effect=effect, launch_sd=0.0, step_cv=step_cv, step_ar1=0.0)
    # Within one draw of noise: seed 1 has no significant difference by chance.
    assert naive_word(pair_blocks(world, plan, 1, np.random.default_rng(1)), plan) == word


def test_designs_need_a_latency_half() -> None:
    plan = make.plan(latency=None)
    blocks = pair_blocks(LatencyWorld(), make.plan(), 1, np.random.default_rng(1))
    with pytest.raises(ValueError, match="no latency half"):
        naive_word(blocks, plan)


def test_tallies_count_right_and_wrong_words_and_add_up() -> None:
    tallies = tally_cell(CALM_GAIN, 2, (1, 2))
    assert tallies == tally_cell(CALM_GAIN, 2, (1, 2), Costs())
    assert (tallies[OURS].runs, tallies[OURS].right, tallies[OURS].wrong) == (2, 2, 0)
    first, second = (Tally(runs=1, wrong=1, pairs=3, device_s=s, device_s_squared=s * s) for s in (100.0, 300.0))
    both = first.plus(second)
    # Mean 200, population SD 100, over two runs.
    assert (both.runs, both.wrong, both.pairs, both.mean_s) == (2, 2, 6, 200.0)
    assert both.error_s == pytest.approx(100 / 2**0.5)
    assert {cell.right for cell in COST_CELLS} == {"faster", "equivalent"}
    assert CALM_GAIN.wrong == {"slower", "equivalent"}


def test_the_table_says_what_part_of_the_reference_each_design_costs() -> None:
    half = Tally(runs=10, right=9, wrong=1, pairs=30, device_s=5_000, device_s_squared=2_500_000)
    whole = half.model_copy(update={"device_s": 10_000, "device_s_squared": 10_000_000})
    lines = cost_table({"a world": {REFERENCE: whole, OURS: half}})
    assert lines[2:] == [
        "| a world | 10 + 10 launches | 10 | 90.0% | 10.00% | 3.00 | 1000 ± 0 | 1/1.00 |",
        "| a world | Equipoise | 10 | 90.0% | 10.00% | 3.00 | 500 ± 0 | 1/2.00 |",
    ]
