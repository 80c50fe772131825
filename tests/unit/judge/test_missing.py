"""Answers that are not there: never wrong ones, never left out in silence, and no more of them than the plan allows."""

from collections.abc import Sequence
from typing import Any

import pytest

from equipoise_evals.judge import judge
from equipoise_evals.judge.imported import judge_imported
from equipoise_evals.model import AccuracyEvidence, Invalid, PassRecord, Record, Role, Verdict
from equipoise_evals.model.imported import ImportedRun
from equipoise_evals.stats.paired import tango_interval
from tests.support import records as make

N = 1319
RIGHT = 1000
KNOWN = [i < RIGHT for i in range(N)]


def judged(*parts: Sequence[Record], n: int = N, **accuracy: Any) -> Verdict:
    plan = make.plan(latency=None, accuracy=make.accuracy_plan(n, **accuracy))
    return judge(make.together([make.questions(n)], *parts), plan)


def evidence(verdict: Verdict) -> AccuracyEvidence:
    assert verdict.accuracy is not None
    return verdict.accuracy.evidence


def refused(verdict: Verdict) -> Invalid:
    assert isinstance(verdict.overall, Invalid)
    return verdict.overall


def without(record: PassRecord, *questions: int) -> PassRecord:
    """The pass as if nothing had been recorded for these questions."""
    kept = tuple(answer for answer in record.answers if answer.question_id not in questions)
    return record.model_copy(update={"answers": kept})


def pairs(count: int, right: Sequence[bool], *, failed: Sequence[range]) -> list[Record]:
    """Passes in which the baseline knows what it knows, and the candidate ``right``, less what fails pass by pass."""
    return [
        make.one_pass(pair, role, KNOWN if role == "A" else right, failed=failed[pair - 1] if role == "B" else ())
        for pair in range(1, count + 1)
        for role in ("A", "B")
    ]


def test_planned_questions_without_a_record_are_missing() -> None:
    both = [without(make.one_pass(pair, role, KNOWN), *range(16, N)) for pair in (1, 2) for role in ("A", "B")]
    found = refused(judged(both))
    assert found.reason == "missing_answers"
    assert found.detail.startswith("1303 of 1319 questions got no answer from the baseline in launch pair 1 (98.8%)")
    assert refused(judged([without(make.one_pass(1, "A", KNOWN), *range(N))])).reason == "missing_answers"


def test_answers_with_holes_are_not_identical() -> None:
    """The same 198 of 200 answers everywhere: nothing differs, and yet nobody knows of two."""
    holed = [without(make.one_pass(pair, role, [True] * 200), 3, 7) for pair in (1, 2) for role in ("A", "B")]
    verdict = judged(holed, n=200)
    found = evidence(verdict)
    assert verdict.accuracy is not None
    assert verdict.accuracy.word != "identical"
    assert (found.asked, found.graded, found.missing) == (200, 198, 2)
    assert not found.outputs_equal
    assert "+0.00 pp on 198 questions, and 2 of 200 lack an answer" in verdict.headline


def test_a_hole_in_the_control_alone_is_said_too() -> None:
    whole = [make.one_pass(pair, role, [True] * 200) for pair in (1, 2) for role in ("A", "B")]
    control = whole[2]
    verdict = judged([*whole[:2], without(control, 3), whole[3]], n=200)
    assert verdict.accuracy is not None
    assert verdict.accuracy.word != "identical"
    assert "on 200 questions, and 1 of 200 lacks an answer" in verdict.headline


def test_a_pass_that_is_yet_to_come_lacks_nothing() -> None:
    verdict = judged(pairs(2, KNOWN, failed=[range(0)] * 2), [make.one_pass(3, "A", KNOWN)], passes_max=10)
    assert evidence(verdict).missing == 0
    assert judged([make.one_pass(1, "A", KNOWN)]).overall.word == "inconclusive"


# 90 questions (6.8 pp) are lost in truth, and each of them fails in one of eight passes: no pass lacks more than 1 %.
LOST = [90 <= i < RIGHT for i in range(N)]
EACH_ONCE = [range(i, min(i + 13, 90)) for i in range(0, 104, 13)]


def test_passes_that_lack_other_questions_each_lack_too_many_together() -> None:
    found = refused(judged(pairs(8, LOST, failed=EACH_ONCE), passes_max=8))
    assert found.reason == "missing_answers"
    assert found.detail.startswith(
        "90 of 1319 questions got no answer in at least one of 16 passes (6.8%); at most 1.0%"
    )


def test_a_question_counts_by_the_passes_in_which_both_arms_answered_it() -> None:
    """Where the plan allows so many, none is dropped: the mean over seven of eight passes is the loss itself."""
    verdict = judged(pairs(8, LOST, failed=EACH_ONCE), passes_max=8, missing_share_max=0.1)
    found = evidence(verdict)
    assert verdict.accuracy is not None
    assert verdict.accuracy.word == "regression"
    assert found.method == "clustered"
    assert (found.compared, found.graded, found.missing) == (N, N - 13, 90)
    assert found.difference_pp == pytest.approx(-100 * 90 / N)
    assert f"on {N} questions, and 90 of {N} lack an answer" in verdict.headline


def test_a_question_counts_once_however_many_answers_it_has() -> None:
    """Lost wherever it was answered, in one of two passes: as a whole question, not as half of one."""
    wrong = [40 <= i < RIGHT for i in range(N)]
    found = evidence(judged(pairs(2, wrong, failed=[range(10), range(0)])))
    assert found.method == "clustered"
    assert found.difference_pp == pytest.approx(-100 * 40 / N)


def test_a_word_that_the_missing_answers_could_undo_says_so() -> None:
    """The 13 questions that fail in the candidate may be 13 lost ones: 1 % is as much as the whole margin."""
    verdict = judged(pairs(2, KNOWN, failed=[range(13)] * 2))
    assert verdict.accuracy is not None
    assert verdict.accuracy.word == "non_inferior"
    low, _ = tango_interval(0, 13, N, confidence=0.9)
    assert evidence(verdict).notes == (
        "That accuracy is not worse by the margin would not hold if all missing answers had been right in the baseline "
        f"and wrong in the candidate: the lower limit would then be {100 * low:.2f} pp.",
    )
    assert f"on {N - 13} questions, and 13 of {N} lack an answer" in verdict.headline


def test_an_improvement_that_the_missing_answers_could_undo_says_so() -> None:
    better = [i < RIGHT + 12 for i in range(N)]
    verdict = judged(pairs(1, better, failed=[range(13)]), passes_max=1)
    assert verdict.accuracy is not None
    assert verdict.accuracy.word == "improved"
    (note,) = evidence(verdict).notes
    low, _ = tango_interval(12, 13, N, confidence=0.95)
    assert note.startswith("The improvement would not hold if all missing answers had been right in the baseline")
    assert note.endswith(f"the interval would then begin at {100 * low:.2f} pp.")


@pytest.mark.parametrize(
    ("candidate", "failed"),
    [
        ([i < RIGHT + 60 for i in range(N)], range(3)),
        (KNOWN, range(2)),
        ([30 <= i < RIGHT for i in range(N)], range(3)),
    ],
    ids=["improved", "non_inferior", "regression"],
)
def test_what_missing_answers_cannot_undo_has_no_note(candidate: list[bool], failed: range) -> None:
    verdict = judged(pairs(1, candidate, failed=[failed]), passes_max=1)
    assert evidence(verdict).missing == len(failed)
    assert evidence(verdict).notes == ()


def test_what_a_missing_answer_could_be_keeps_to_what_was_answered() -> None:
    """Where the candidate was right no missing answer of the baseline is a loss; where it was wrong each is one."""
    records = [
        make.one_pass(1, "A", KNOWN, failed=range(RIGHT - 6, RIGHT + 6)),
        make.one_pass(1, "B", KNOWN),
        *pairs(2, KNOWN, failed=[range(0)] * 2)[2:],
    ]
    (note,) = evidence(judged(records, margin_pp=0.5)).notes
    low, _ = tango_interval(0, 6, N, confidence=0.9)
    assert note.endswith(f"the lower limit would then be {100 * low:.2f} pp.")


@pytest.mark.parametrize("failed", [(), (7,)], ids=["answered", "failed"])
def test_an_answer_to_a_question_never_asked_cannot_be_judged(failed: tuple[int, ...]) -> None:
    extra = make.one_pass(1, "B", [True] * 17, failed=[16] if failed else ())
    plan = make.plan(latency=None)
    found = refused(judge(make.together([make.questions()], [make.one_pass(1, "A", [True] * 16), extra]), plan))
    assert found.reason == "no_measurement"
    assert found.detail == "the candidate's pass of launch pair 1 holds question 16, which was not asked"
    # Asked, but by another plan; or never recorded as asked.
    for questions in ([make.questions(17)], []):
        assert refused(judge(make.together(questions, [extra]), plan)).reason == "no_measurement"


def test_answers_beside_a_plan_of_speed_alone_are_not_looked_at() -> None:
    plan = make.plan(accuracy=None)
    assert judge(make.together([make.one_pass(1, "A", [True] * 3)]), plan).accuracy is None


def imported(role: Role, number: int, lacks: int = 0) -> ImportedRun:
    right = dict.fromkeys(range(lacks, 100), True)
    return ImportedRun(
        tool="lm-evaluation-harness", source=f"{role}{number}", setup={}, right=right, texts=dict.fromkeys(right, "x")
    )


def test_imported_runs_that_graded_other_questions_are_not_judged() -> None:
    baseline = [imported("A", number) for number in (1, 2, 3)]
    candidate = [imported("B", number, lacks=5 if number == 2 else 0) for number in (1, 2, 3)]
    verdict, _ = judge_imported(baseline, candidate, margin_latency=0.005, margin_accuracy_pp=1.0)
    found = refused(verdict)
    assert found.reason == "missing_answers"
    assert found.detail.startswith("5 of 100 questions got no answer from the candidate in B2 (5.0%)")
