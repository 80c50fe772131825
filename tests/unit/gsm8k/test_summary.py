"""The states of answers and a pass in numbers; expected values are counted by hand from the answers written here."""

import pytest

from equipoise_evals.gsm8k.equality import Parting, partings
from equipoise_evals.gsm8k.state import answer_state
from equipoise_evals.gsm8k.summary import summarize
from equipoise_evals.model import Answer, Failed
from tests.unit.gsm8k.test_equality import FIRST, SECOND, a_pass, answered

GOLDS = {1: "7", 2: "7", 3: "7", 4: "7", 5: "7", 6: "64"}


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (answered(1, "#### 7"), "correct"),
        (answered(1, "#### 8"), "incorrect"),
        (answered(1, "Let me think."), "no_answer"),
        (answered(1, "First 3 + 2 makes 5, then", reason="length"), "truncated"),
        (answered(1, "Let me think about", reason="length"), "truncated"),
        (answered(1, "#### 7 and then it goes on and", reason="length"), "correct"),
        (answered(1, "#### 8 and then it goes on and", reason="length"), "incorrect"),
        (Failed(question_id=1, error="HTTP 500"), "error"),
    ],
)
def test_states(answer: Answer, state: str) -> None:
    assert answer_state(answer, "7") == state


def test_a_pass_in_numbers() -> None:
    done = a_pass(
        answered(1, "#### 7", 1, 2),
        answered(2, "So it is 7.", 1, 2, 3),
        answered(3, "#### 8", 1),
        answered(4, "", reason="stop"),
        Failed(question_id=5, error="HTTP 500"),
        answered(6, "#### 64.00", 1, 2, 3, 4, reason="length"),
    ).model_copy(update={"resumed": 2})
    one = summarize("A1", done, GOLDS)
    assert one.states == {"correct": 3, "incorrect": 1, "no_answer": 1, "truncated": 0, "error": 1}
    assert sum(one.states.values()) == one.asked == 6
    assert (one.right_of_asked, one.right_of_answered) == (3 / 6, 3 / 5)
    # The harness compares text: 64.00 is not 64; strict-match finds the mark alone, flexible-extract the last number.
    assert (one.strict_match, one.flexible_extract) == (1 / 5, 2 / 5)
    assert (one.empty, one.output_tokens, one.resumed, one.retried) == (1, 10 / 5, 2, 0)
    assert one.finish_reasons == {"length": 1, "stop": 4}


def test_a2_07_right_of_all_asked_keeps_what_timed_out() -> None:
    """1,219 answered, 1,150 of them right, 100 timeouts: 87.2 % of all asked, not 94.3 %."""
    answers: list[Answer] = [answered(i, "#### 7" if i < 1150 else "#### 8", 1) for i in range(1219)]
    answers += [Failed(question_id=i, error="timeout") for i in range(1219, 1319)]
    one = summarize("B1", a_pass(*answers), dict.fromkeys(range(1319), "7"))
    assert one.right_of_asked == pytest.approx(0.872, abs=0.0005)
    assert one.right_of_answered == pytest.approx(0.943, abs=0.0005)
    assert one.states["error"] == 100


def test_nothing_asked_has_no_share() -> None:
    one = summarize("A1", a_pass(), {})
    assert (one.right_of_asked, one.right_of_answered, one.strict_match, one.output_tokens) == (None,) * 4


def test_where_answers_part() -> None:
    assert list(partings(FIRST, SECOND)) == [
        Parting(1, (10, 11), (12, 13)),
        Parting(8, (10, 11, 21), (None, 22)),
    ]
