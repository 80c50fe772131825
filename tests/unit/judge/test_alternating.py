"""``alternating``: the launch pair is the unit, and only an even number of pairs, in which a drift cancels, decides."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from equipoise_evals.judge import judge
from equipoise_evals.model import (
    BlockRecord,
    EngineMetric,
    LatencyInconclusive,
    LatencyVerdict,
    LaunchHistory,
    Plan,
    Record,
    looks_up_to,
)
from tests.support import records as make

DRIFT = 0.003
METRICS: tuple[EngineMetric, ...] = ("busy", "period")


def planned(pairs_max: int = 10, **changes: Any) -> Plan:
    return make.plan(pairs_max, layout="alternating", accuracy=None, **changes)


def judged(plan: Plan, blocks: list[Record]) -> LatencyVerdict:
    pairs = max(block.pair for block in blocks if isinstance(block, BlockRecord))
    verdict = judge(make.together(make.launches(plan, pairs), make.treatment(), blocks), plan)
    assert verdict.latency is not None
    return verdict.latency


def drifting(pairs: int, log: float = -0.02) -> list[Record]:
    """Noiseless pairs of this log-ratio and a drift, one way in one pair and the other way round in the next."""
    return make.exact_blocks([log + DRIFT * (-1) ** pair for pair in range(pairs)], planned())


def borrowing(pairs_max: int = 10) -> Plan:
    history = dict.fromkeys(METRICS, LaunchHistory(d0=20, s0=DRIFT, histories=5, source="a test"))
    return planned(pairs_max, history=history, looks=looks_up_to(pairs_max, with_history=True, layout="alternating"))


@pytest.mark.parametrize("pairs", range(1, 11))
def test_an_odd_number_of_pairs_decides_nothing_and_an_even_one_may(pairs: int) -> None:
    latency = judged(planned(), drifting(pairs))
    assert latency.evidence.busy.units == pairs
    if pairs in {4, 6, 8, 10}:
        assert latency.word == "faster"
    else:
        assert isinstance(latency, LatencyInconclusive)
        following = max(4, pairs + pairs % 2)
        assert latency.why == f"{pairs} launch pairs finished; the next look is planned at {following}"
        assert latency.pairs_needed is not None
        assert latency.pairs_needed >= following
        assert latency.pairs_needed % 2 == 0


def test_a_drift_is_not_in_the_effect_and_widens_the_interval() -> None:
    """The interval by hand: mean -0.02, variance DRIFT^2 n / (n - 1), t on n - 1 degrees of freedom."""
    busy = judged(planned(), drifting(6)).evidence.busy
    assert busy.effect == pytest.approx(np.expm1(-0.02), rel=1e-9)
    assert busy.interval is not None
    half = stats.t.ppf((1 + busy.interval.level) / 2, 5) * DRIFT * (6 / 5) ** 0.5 / 6**0.5
    assert busy.interval.low == pytest.approx(np.expm1(-0.02 - half), rel=1e-6)
    assert busy.interval.high == pytest.approx(np.expm1(-0.02 + half), rel=1e-6)


def test_with_history_two_pairs_decide_and_one_or_three_do_not() -> None:
    assert [judged(borrowing(), drifting(pairs)).word for pairs in (1, 2, 3)] == [
        "inconclusive",
        "faster",
        "inconclusive",
    ]


def test_two_pairs_that_contradict_their_history_ask_for_two_more() -> None:
    latency = judged(borrowing(pairs_max=2), make.exact_blocks([-0.05, 0.02], planned()))
    assert isinstance(latency, LatencyInconclusive)
    assert latency.why == "2 of at most 2 launch pairs: at least 4 are needed to decide"


def test_a_plan_of_an_odd_number_of_pairs_asks_for_the_next_even_one() -> None:
    latency = judged(planned(5), drifting(5))
    assert isinstance(latency, LatencyInconclusive)
    assert latency.why == "5 of at most 5 launch pairs: at least 6 are needed to decide"


def test_pairs_that_would_decide_are_an_even_number() -> None:
    """The same log-ratios together, where any number of pairs can be looked at, are the oracle."""
    plans = planned(), make.plan(accuracy=None, looks=(4, 6, 8, 10))
    alone, together = (judged(plan, make.exact_blocks([-0.012, 0.004, -0.009, 0.003], plan)) for plan in plans)
    assert isinstance(alone, LatencyInconclusive)
    assert isinstance(together, LatencyInconclusive)
    assert together.pairs_needed is not None
    assert alone.pairs_needed == together.pairs_needed + together.pairs_needed % 2


def test_an_even_number_of_pairs_of_which_one_is_missing_between_decides_nothing() -> None:
    """Pairs 1, 3, 4 and 5: one arm ran first in three of them, so a drift does not cancel."""
    kept = [block for block in drifting(5) if isinstance(block, BlockRecord) and block.pair != 2]
    latency = judged(planned(), [*kept])
    assert latency.evidence.look == 4
    assert latency.word == "inconclusive"


def test_a_plan_of_before_whose_unit_was_two_pairs_opens_and_is_judged_at_its_own_looks() -> None:
    stored = planned().model_copy(update={"looks": (6, 8, 10)}).model_dump_json()
    plan = Plan.model_validate_json(stored)
    assert plan.model_dump_json() == stored
    assert [judged(plan, drifting(pairs)).word for pairs in (4, 6)] == ["inconclusive", "faster"]
    assert judged(plan, drifting(6)).evidence.busy.units == 6


@pytest.mark.parametrize("looks", [(3,), (4, 5), (4, 6, 7)])
def test_a_plan_that_looks_at_an_odd_number_of_pairs_is_refused(looks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must be even"):
        planned(looks=looks)
