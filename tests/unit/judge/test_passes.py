"""Which passes the accuracy word rests on: those up to the last planned look, one of each engine."""

from collections.abc import Sequence

import pytest

from equipoise_evals.judge import judge
from equipoise_evals.model import AccuracyInconclusive, AccuracyVerdict, Plan, Record
from equipoise_evals.stats.looks import look_level
from tests.support import records as make

N = 1319
RIGHT = 1000


def passes(pair: int, lost: int) -> list[Record]:
    """One pass per arm; the candidate answers the first ``lost`` questions wrongly, which the baseline knows."""
    return [
        make.one_pass(pair, "A", [i < RIGHT for i in range(N)]),
        make.one_pass(pair, "B", [lost <= i < RIGHT for i in range(N)]),
    ]


def word(plan: Plan, *parts: Sequence[Record]) -> AccuracyVerdict:
    verdict = judge(make.together([make.questions(N)], *parts), plan)
    assert verdict.accuracy is not None
    return verdict.accuracy


def test_a_pass_before_the_first_look_decides_nothing() -> None:
    """30 lost and none won is a regression at any level; one pass is no look, so no error is spent on it."""
    accuracy = word(make.plan(accuracy=make.accuracy_plan(N, passes_max=10)), passes(1, 30))
    assert isinstance(accuracy, AccuracyInconclusive)
    assert accuracy.why == "no look has been reached: the first comes after 2 passes per arm"
    assert (accuracy.passes_needed, accuracy.decides_as) == (2, "regression")
    assert accuracy.evidence.passes == 1


@pytest.mark.parametrize("finished", range(2, 11))
def test_between_looks_the_word_is_that_of_the_last_one(finished: int) -> None:
    """Four lost and none won of 1,319: the interval of a single look lies below 0, those of the plan's looks do not."""
    plan = make.plan(accuracy=make.accuracy_plan(N, passes_max=10))
    assert plan.accuracy is not None
    accuracy = word(plan, *(passes(pair, 4) for pair in range(1, finished + 1)))
    look = max(look for look in plan.accuracy.looks if look <= finished)
    level = look_level(look, plan.accuracy.looks, plan.alpha / 2, variance="known").level
    assert accuracy.word == "non_inferior"
    assert accuracy.evidence.passes == look
    assert accuracy.evidence.interval_pp.level == pytest.approx(level)
    assert set(accuracy.evidence.scores) == {f"{role}{number}" for role in "AB" for number in range(1, look + 1)}


def test_what_came_after_a_look_changes_nothing_before_the_next() -> None:
    plan = make.plan(accuracy=make.accuracy_plan(N, passes_max=10))
    settled = [*passes(1, 0), *passes(2, 0)]
    assert word(plan, settled).word == "identical"
    assert word(plan, settled, passes(3, 200)) == word(plan, settled)
    assert word(plan, settled, passes(3, 200)[:1]) == word(plan, settled)


def test_a_suspected_shift_is_confirmed_by_all_launches() -> None:
    """Every second answer is worded otherwise: five launches per arm confirm it, though the last look was at four."""
    plan = make.plan(latency=None, accuracy=make.accuracy_plan(60, passes_max=10))
    other = dict.fromkeys(range(0, 60, 2), "So ")
    worded = [
        make.one_pass(pair, role, [True] * 60, style=other if role == "B" else None)
        for pair in range(1, 6)
        for role in ("A", "B")
    ]
    verdict = judge(make.together([make.questions(60)], make.treatment(), worded), plan)
    assert getattr(verdict.overall, "causes", None) == ("output_shift",)
    assert verdict.accuracy is not None
    assert verdict.accuracy.evidence.passes == 4


def test_a_pass_recorded_twice_is_no_control() -> None:
    """The second one of launch pair 1 repeats no launch, and what a look has judged of it stays."""
    plan = make.plan(accuracy=make.accuracy_plan(N, passes_max=10))
    once, twice = word(plan, passes(1, 0)), word(plan, passes(1, 0), passes(1, 5))
    assert twice == once
    assert once.evidence.control_equal is None
    assert set(once.evidence.scores) == {"A1", "B1"}


def test_the_passes_that_would_decide_are_those_of_a_look() -> None:
    """Six lost and four won in each of two passes: three of them would clear the margin, and nobody looks then."""
    won = range(RIGHT, RIGHT + 4)
    records = [
        make.one_pass(pair, role, [(6 <= i < RIGHT or i in won) if role == "B" else i < RIGHT for i in range(N)])
        for pair in (1, 2)
        for role in ("A", "B")
    ]
    needed = {}
    for passes_max in (2, 10):
        accuracy = word(make.plan(accuracy=make.accuracy_plan(N, passes_max=passes_max, margin_pp=0.5)), records)
        assert isinstance(accuracy, AccuracyInconclusive)
        needed[passes_max] = accuracy.passes_needed
    assert needed == {2: 3, 10: 4}
