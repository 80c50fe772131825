"""Goodput's interval where two launch pairs make one unit: it covers, and a planted difference is seen through a gap.

Requests take log-normal times per token; the second device set is slower, and launches differ. The truth of each case
is worked out from the normal distribution, averaged over both device sets.
"""

import math
from functools import cache

import numpy as np
import pytest
from scipy.special import ndtr

from equipoise_evals.decode.schedule import device_sets, pair_blocks
from equipoise_evals.judge import judge
from equipoise_evals.model import BlockRecord, ClientTiming, Goodput, Record, Slo
from tests.support import records as make
from tests.support.guarantees import require_at_least, require_at_most

pytestmark = pytest.mark.guarantee

RUNS, PAIRS, REQUESTS = 300, 6, 16
GAP, LAUNCH_SD, REQUEST_SD = 0.6, 0.05, 0.4
"""On the log scale: the second device set against the first, launches of one arm, requests of one block."""
LATENCY = make.LATENCY.model_copy(
    update={"batch_sizes": (REQUESTS,), "primary_batch": REQUESTS, "quads_per_pair": 1, "slo": Slo(tpot_ms=10)}
)
PLAN = make.plan(PAIRS, accuracy=None, latency=LATENCY, layout="crossover")
STEPS = make.block_steps(REQUESTS, [10_000.0] * LATENCY.steps_per_block, LATENCY)


def truth_pp(effect: float) -> float:
    """What the candidate's share within the objective is above the baseline's, over all launches and requests."""
    sd = math.hypot(LAUNCH_SD, REQUEST_SD)
    shares = [[ndtr(-(shift + gap) / sd) for gap in (0.0, GAP)] for shift in (0.0, effect)]
    return 100 * float(np.mean(shares[1]) - np.mean(shares[0]))


def compared(effect: float, seed: int, pairs: int = PAIRS) -> Goodput:
    """One comparison whose candidate takes ``effect`` longer per token, on the log scale."""
    rng = np.random.default_rng((10, seed))
    blocks: list[Record] = []
    for pair in range(1, pairs + 1):
        at = device_sets(PLAN, pair)
        level = {role: effect * (role == "B") + GAP * at[role] + rng.normal(0, LAUNCH_SD) for role in at}
        for planned in pair_blocks(PLAN, pair):
            tpot_us = 10_000 * np.exp(rng.normal(level[planned.role], REQUEST_SD, REQUESTS))
            client = tuple(ClientTiming(ttft_us=1_000, tpot_us=us, output_tokens=24) for us in tpot_us.tolist())
            blocks.append(BlockRecord(**(planned.model_dump() | {"pair": pair, "steps": STEPS, "client": client})))
    verdict = judge(make.together(make.launches(PLAN, pairs), make.treatment(), blocks), PLAN).latency
    assert verdict is not None
    assert verdict.evidence.goodput is not None
    return verdict.evidence.goodput


@cache
def many(effect: float) -> list[Goodput]:
    return [compared(effect, seed) for seed in range(RUNS)]


@pytest.mark.parametrize("effect", [0.0, 0.5])
def test_the_interval_covers_the_true_difference(effect: float) -> None:
    intervals = [found.interval_pp for found in many(effect)]
    covered = [one is not None and one.low <= truth_pp(effect) <= one.high for one in intervals]
    require_at_least(0.95, sum(covered), RUNS)


def test_device_sets_that_differ_are_seldom_taken_for_arms_and_a_planted_difference_is_seen() -> None:
    """Pair by pair the gap of the device sets, 26 points, would drown the 23 that the candidate lacks."""

    def excludes_0(found: Goodput) -> bool:
        return found.interval_pp is not None and not found.interval_pp.low <= 0 <= found.interval_pp.high

    require_at_most(0.05, sum(map(excludes_0, many(0.0))), RUNS)
    require_at_least(0.8, sum(map(excludes_0, many(0.5))), RUNS)


def test_half_a_unit_counts_for_nothing() -> None:
    assert compared(0.0, 1, pairs=5).pairs == 4
    assert compared(0.0, 1, pairs=5) == compared(0.0, 1, pairs=4)
