"""``alternating`` and ``crossover`` recover a planted 1.64 % although the hours, or the device sets, differ by 1 %.

Simulated worlds through the production schedule, measure and judge, looks and stopping included. The rates are those
that DESIGN states for every layout: 5 % for a difference that is not there, 5 % for an equivalence that is not there,
95 % coverage; each judged by an exact binomial bound at a fixed seed.
"""

from collections.abc import Iterator
from functools import cache
from statistics import stdev

import numpy as np
import pytest

from equipoise_evals.calibrate.latency import LatencyOutcome, latency_plan, simulate_latency
from equipoise_evals.calibrate.worlds import LatencyWorld, pair_blocks
from equipoise_evals.judge import judge, measure
from equipoise_evals.model import BlockRecord, LatencyContrast, LaunchHistory, Plan, Records, looks_up_to
from equipoise_evals.stats.moderated import launch_prior
from tests.support.guarantees import require_at_least, require_at_most

pytestmark = pytest.mark.guarantee

RUNS = 300
GAIN = -0.0164
LAUNCH_SD = 0.0015


def drifting(per_launch: float) -> LatencyWorld:
    """Steps get longer by so much from one launch to the next; a world's ``drift`` is over both launches of a pair."""
    return LatencyWorld(drift=2 * per_launch)


# Engines one after the other, at these drifts from launch to launch; and device sets that differ by 1 %.
DRIFTS = (0.0, 0.002, 0.01)
WORLDS = [
    *((latency_plan(layout="alternating"), drifting(drift)) for drift in DRIFTS),
    (latency_plan(layout="crossover"), LatencyWorld(device_gap=0.01)),
]
IDS = [*(f"alternating, {drift:.1%} a launch" for drift in DRIFTS), "crossover, 1% between devices"]
in_every_world = pytest.mark.parametrize("place", range(len(WORLDS)), ids=IDS)


def simulated(plan: Plan, world: LatencyWorld, effect: float, *seed: int) -> list[LatencyOutcome]:
    world = world.model_copy(update={"effect": effect, "launch_sd": LAUNCH_SD})
    seeds = [(9, *seed, round(-effect * 1e5) + 1000, run) for run in range(RUNS)]
    return [simulate_latency(world, plan, np.random.default_rng(seed)) for seed in seeds]


@cache
def outcomes(place: int, effect: float) -> list[LatencyOutcome]:
    return simulated(*WORLDS[place], effect, place)


def words(found: list[LatencyOutcome], *wanted: str) -> int:
    return sum(outcome.word in wanted for outcome in found)


@in_every_world
def test_a_planted_gain_is_found_and_covered(place: int) -> None:
    found = outcomes(place, GAIN)
    require_at_least(0.95, words(found, "faster"), RUNS)
    require_at_least(0.95, sum(bool(outcome.covered) for outcome in found), RUNS)


@in_every_world
def test_devices_or_hours_that_differ_are_not_taken_for_arms_that_differ(place: int) -> None:
    found = outcomes(place, 0.0)
    require_at_most(0.05, words(found, "faster", "slower"), RUNS)
    require_at_least(0.95, sum(bool(outcome.covered) for outcome in found), RUNS)


@in_every_world
def test_a_change_of_the_margin_is_not_called_equivalent(place: int) -> None:
    require_at_most(0.05, words(outcomes(place, 0.005), "equivalent"), RUNS)


@cache
def borrowing(history_drift: float) -> Plan:
    """An ``alternating`` plan with the history of five A/A comparisons of four pairs each, at this drift."""
    plan = latency_plan(layout="alternating")
    world = drifting(history_drift).model_copy(update={"launch_sd": LAUNCH_SD})
    rng = np.random.default_rng((10, round(history_drift * 1e4)))
    measured = [measure(Records(records=tuple(blocks_of(world, plan, 4, rng))), plan) for _ in range(5)]
    sds = [stdev(one.log_ratio for one in past.contrasts["busy", 16]) for past in measured]
    prior = launch_prior(sds, [4] * len(sds))
    history = LaunchHistory(d0=prior.d0, s0=prior.s0, histories=prior.histories, source="simulated")
    looks = looks_up_to(plan.pairs_max, with_history=True, layout="alternating")
    return plan.model_copy(update={"history": dict.fromkeys(("busy", "period"), history), "looks": looks})


def blocks_of(world: LatencyWorld, plan: Plan, pairs: int, rng: np.random.Generator) -> Iterator[BlockRecord]:
    for pair in range(1, pairs + 1):
        yield from pair_blocks(world, plan, pair, rng)


@pytest.mark.parametrize(("history_drift", "drift"), [(0.002, 0.002), (0.01, 0.01), (0.0, 0.01)])
def test_with_history_two_pairs_may_decide_and_err_no_more_often(history_drift: float, drift: float) -> None:
    """The last: a drift that the history did not have; the spread of the pairs at hand has it, or the guard sees it."""
    plan, world = borrowing(history_drift), drifting(drift)
    assert plan.looks == (2, 4, 6, 8, 10)
    equal = simulated(plan, world, 0.0, 11, round(drift * 1e4), round(history_drift * 1e4))
    require_at_most(0.05, words(equal, "faster", "slower"), RUNS)
    faster = simulated(plan, world, GAIN, 12, round(drift * 1e4), round(history_drift * 1e4))
    require_at_least(0.95, words(faster, "faster"), RUNS)
    require_at_least(0.95, sum(bool(outcome.covered) for outcome in faster), RUNS)
    if drift < 0.01:  # at two pairs a drift is a larger part of the spread than in the history, and the guard sees that
        require_at_least(0.8, sum(outcome.pairs == 2 for outcome in faster), RUNS)


def quiet_busy(place: int, pairs: int) -> LatencyContrast:
    """The judged contrast of so many pairs of a world with a hair of noise: units that are copies decide nothing."""
    plan, world = WORLDS[place]
    quiet = {"step_cv": 0.0, "step_ar1": 0.0, "launch_sd": 1e-9, "effect": GAIN}
    blocks = blocks_of(world.model_copy(update=quiet), plan, pairs, np.random.default_rng(1))
    verdict = judge(Records(records=tuple(blocks)), plan)
    assert verdict.latency is not None
    assert verdict.latency.word == "faster"
    return verdict.latency.evidence.busy


def off_by(busy: LatencyContrast) -> list[float]:
    """What stands in each pair beside the effect; it must be there, one way in one pair and the other in the next."""
    off = [float(np.log1p(effect) - np.log1p(GAIN)) for effect in busy.per_pair]
    assert min(map(abs, off)) > 0.009
    assert all(a * b < 0 for a, b in zip(off[::2], off[1::2], strict=True))
    return off


def test_a_difference_between_devices_is_gone_from_the_units_of_a_crossover() -> None:
    busy = quiet_busy(len(WORLDS) - 1, 8)
    off_by(busy)
    assert busy.effect == pytest.approx(GAIN, abs=1e-4)
    assert (busy.pairs, busy.units) == (8, 4)
    assert busy.launch_sd == pytest.approx(0.0, abs=1e-6)


def test_a_drift_is_gone_from_the_mean_of_alternating_pairs_and_widens_their_spread() -> None:
    """With delta in each pair, its sign turned round, the sample variance is delta^2 n / (n - 1)."""
    busy = quiet_busy(DRIFTS.index(0.01), 8)
    delta = float(np.mean(np.abs(off_by(busy))))
    assert busy.effect == pytest.approx(GAIN, abs=1e-4)
    assert (busy.pairs, busy.units) == (8, 8)
    assert busy.launch_sd == pytest.approx(delta * (8 / 7) ** 0.5, rel=1e-3)
