"""``alternating`` and ``crossover`` recover a planted 1.64 % although the device sets, or the hours, differ by 1 %.

Simulated worlds through the production schedule, measure and judge, looks and stopping included. The rates are those
that DESIGN states for every layout: 5 % for a difference that is not there, 5 % for an equivalence that is not there,
95 % coverage; each judged by an exact binomial bound at a fixed seed.
"""

from functools import cache

import numpy as np
import pytest

from equipoise_evals.calibrate.latency import LatencyOutcome, latency_plan, simulate_latency
from equipoise_evals.calibrate.worlds import LatencyWorld, pair_blocks
from equipoise_evals.judge import judge
from equipoise_evals.model import Layout, Records
from tests.support.guarantees import require_at_least, require_at_most

pytestmark = pytest.mark.guarantee

RUNS = 300
# Device sets that differ by 1 %, and, for engines that run one after the other, a drift of 1 % from launch to launch.
PLANTED: dict[Layout, LatencyWorld] = {
    "alternating": LatencyWorld(device_gap=0.01, drift=0.02),
    "crossover": LatencyWorld(device_gap=0.01, drift=0.0),
}
LAYOUTS = list(PLANTED)


@cache
def outcomes(layout: Layout, effect: float, launch_sd: float) -> list[LatencyOutcome]:
    world = PLANTED[layout].model_copy(update={"effect": effect, "launch_sd": launch_sd})
    plan = latency_plan(layout=layout)
    return [
        simulate_latency(
            world, plan, np.random.default_rng((9, LAYOUTS.index(layout), round(-effect * 1e5) + 1000, run))
        )
        for run in range(RUNS)
    ]


def words(layout: Layout, effect: float, launch_sd: float, *wanted: str) -> int:
    return sum(outcome.word in wanted for outcome in outcomes(layout, effect, launch_sd))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_planted_gain_is_found_and_covered(layout: Layout) -> None:
    require_at_least(0.95, words(layout, -0.0164, 0.0015, "faster"), RUNS)
    covered = [outcome.covered for outcome in outcomes(layout, -0.0164, 0.0015)]
    require_at_least(0.95, sum(bool(one) for one in covered), RUNS)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_devices_that_differ_are_not_taken_for_arms_that_differ(layout: Layout) -> None:
    require_at_most(0.05, words(layout, 0.0, 0.0015, "faster", "slower"), RUNS)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_change_of_the_margin_is_not_called_equivalent(layout: Layout) -> None:
    require_at_most(0.05, words(layout, 0.005, 0.0015, "equivalent"), RUNS)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_was_planted_stands_in_the_pairs_and_is_gone_from_the_units(layout: Layout) -> None:
    """Without noise: the gap is in each pair, one way in one and the other way in the next."""
    plan, rng = latency_plan(layout=layout), np.random.default_rng(1)
    quiet = {"step_cv": 0.0, "step_ar1": 0.0, "launch_sd": 0.0, "effect": -0.0164}
    world = PLANTED[layout].model_copy(update=quiet)
    blocks = [block for pair in range(1, 9) for block in pair_blocks(world, plan, pair, rng)]
    verdict = judge(Records(records=tuple(blocks)), plan)
    assert verdict.latency is not None
    busy = verdict.latency.evidence.busy
    off = [effect + 0.0164 for effect in busy.per_pair]
    assert min(map(abs, off)) > 0.009
    assert all(a * b < 0 for a, b in zip(off[::2], off[1::2], strict=True))
    assert busy.effect == pytest.approx(-0.0164, abs=1e-4)
    assert (busy.pairs, busy.units) == (8, 4)
    assert busy.launch_sd == pytest.approx(0.0, abs=1e-6)
    assert verdict.latency.word == "faster"
