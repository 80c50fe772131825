"""When a look ends a half or the whole run, and how many launch pairs are still expected."""

import numpy as np

from equipoise_evals.experiment import (
    is_decided,
    of_first_pairs,
    open_halves,
    pairs_expected,
)
from equipoise_evals.judge import judge
from equipoise_evals.model import (
    ROLES,
    BlockRecord,
    Invalid,
    LatencyInconclusive,
    PassRecord,
)
from tests.support import records as make
from tests.support.experiment import run


async def test_a_half_that_a_look_decided_is_measured_no_further() -> None:
    """Four equal answers are `identical` at the look at 2 passes; the speed is decided at the look at 3 pairs."""
    verdict, records, plan = await run(accuracy=make.accuracy_plan(4, passes_max=10))
    assert plan.accuracy is not None
    assert plan.accuracy.looks == (2, 4, 8, 10)
    assert verdict.overall.word == "ship"
    assert {one.pair for one in records.of(PassRecord)} == {1, 2}
    assert {block.pair for block in records.of(BlockRecord)} == {1, 2, 3}
    assert verdict == judge(records, plan)


def test_what_stays_open_is_measured_on() -> None:
    """An undecided half stays, and a decided one whose outputs are suspected; disturbed blocks reopen no passes."""
    plan = make.plan(accuracy=make.accuracy_plan(200, passes_max=10))
    passes = [make.one_pass(pair, role, [True] * 200) for pair in (1, 2) for role in ROLES]
    verdict = judge(make.together([make.questions(200)], make.launches(plan, 2), make.treatment(), passes), plan)
    assert verdict.accuracy is not None
    assert verdict.accuracy.word == "identical"
    assert open_halves(plan, verdict, 2) == plan.model_copy(update={"accuracy": None})
    evidence = verdict.accuracy.evidence.model_copy(update={"output_shift_p": 0.001})
    suspected = verdict.model_copy(update={"accuracy": verdict.accuracy.model_copy(update={"evidence": evidence})})
    assert open_halves(plan, suspected, 2) == plan
    unjudged = verdict.model_copy(update={"overall": Invalid(reason="disturbed", detail="levels")})
    assert open_halves(plan, unjudged, 2) == plan.model_copy(update={"accuracy": None})


def test_the_pairs_expected_are_those_of_the_half_that_needs_most_at_a_look() -> None:
    plan = make.plan(accuracy=make.accuracy_plan(200))
    blocks = make.blocks(plan, 1, np.random.default_rng(1))
    verdict = judge(make.together([make.questions(200)], make.launches(plan, 1), make.treatment(), blocks), plan)
    assert isinstance(verdict.latency, LatencyInconclusive)
    assert pairs_expected(verdict.model_copy(update={"latency": None, "accuracy": None}), plan) is None

    def expected(needed: int | None) -> int | None:
        latency = verdict.latency.model_copy(update={"pairs_needed": needed}) if verdict.latency else None
        return pairs_expected(verdict.model_copy(update={"latency": latency}), plan)

    assert [expected(needed) for needed in (2, 3, 7, 30, None)] == [3, 3, 8, 10, 10]


def test_a_disturbed_run_goes_on_and_other_reasons_end_it() -> None:
    plan = make.plan(pairs_max=3)
    records = make.together([make.questions()], make.launches(plan, 3), make.treatment(), make.equal_passes())
    open_verdict = judge(records, plan)
    for reason, decided in (("disturbed", False), ("attestation", True)):
        verdict = open_verdict.model_copy(
            update={
                "overall": judge(make.together([make.launch(1, "B", "baseline")]), plan).overall.model_copy(
                    update={"reason": reason}
                )
            }
        )
        assert is_decided(verdict, plan, 3) is decided


def test_a_regression_at_a_look_ends_the_run() -> None:
    plan = make.plan(accuracy=make.accuracy_plan(200))
    passes = [
        make.one_pass(pair, role, [i < (130 if role == "A" else 100) for i in range(200)])
        for pair in (1, 2)
        for role in ("A", "B")
    ]
    records = make.together([make.questions(200)], make.launches(plan, 2), make.treatment(), passes)
    verdict = judge(records, plan)
    assert verdict.accuracy is not None
    assert verdict.accuracy.word == "regression"
    assert is_decided(verdict, plan, 2)
    first = judge(of_first_pairs(records, 1), plan)
    assert first.accuracy is not None
    assert first.accuracy.word == "inconclusive"  # one pass is no look
    assert not is_decided(first, plan, 1)
