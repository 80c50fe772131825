"""Pairs of several nodes on which the change is of unequal size: what the interval over pairs still promises.

Log-ratios are drawn, not blocks: what is tested is that the plain t interval, at the looks' levels, keeps its word with
the node as a fixed stratum, as docs/decisions/2026-11-30-pairs-apart.md derives.
"""

from statistics import fmean

import numpy as np
import pytest

from equipoise_evals.judge.levels import look_levels
from equipoise_evals.stats.latency import ratio_interval
from equipoise_evals.stats.strata import strata_p
from tests.support import records as make
from tests.support.guarantees import require_at_least, require_at_most
from tests.support.rates import exactly

pytestmark = pytest.mark.guarantee

RUNS = 4_000
SD = 0.001
"""Of a pair's log-ratio on one node."""


def drawn(effects: list[float], pairs: int, run: int) -> list[float]:
    """Log-ratios of pairs that ran on one node after the other, in turn."""
    noise = np.random.default_rng((10, pairs, run)).normal(0.0, SD, pairs)
    return [effects[pair % len(effects)] + noise[pair] for pair in range(pairs)]


@pytest.mark.parametrize("effects", [[0.0], [-0.018, -0.015], [-0.02, -0.016, -0.01]])
def test_the_mean_over_the_nodes_that_were_used_is_covered(effects: list[float]) -> None:
    covered = 0
    for run in range(RUNS):
        found = ratio_interval(drawn(effects, 6, run), confidence=0.95)
        covered += found.low <= np.exp(fmean(effects)) <= found.high
    require_at_least(0.95, covered, RUNS)


def test_where_no_node_is_faster_no_look_calls_them_faster_too_often() -> None:
    plan = make.plan(accuracy=None)
    faster = 0
    for run in range(RUNS):
        logs = drawn([0.0, 0.004, 0.0], plan.pairs_max, run)
        looks = (ratio_interval(logs[:look], confidence=look_levels(plan, look).difference) for look in plan.looks)
        faster += any(found.high < 1 for found in looks)
    require_at_most(0.025, faster, RUNS)


def test_nodes_that_do_not_differ_are_said_to_as_often_as_p_says() -> None:
    p_values = [strata_p({"x": logs[:3], "y": logs[3:]}) for run in range(RUNS) if (logs := drawn([0.0], 6, run))]
    assert exactly(sum(p is not None and p < 0.05 for p in p_values), RUNS, 0.05)
