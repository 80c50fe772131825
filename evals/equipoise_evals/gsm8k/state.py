"""The state of an answer: its grade, or why it has none that speaks of the model."""

from typing import Literal

from equipoise_evals.gsm8k.grade import grade
from equipoise_evals.gsm8k.harness import INVALID, strict_match
from equipoise_evals.model import Answer, Answered, Failed

AnswerState = Literal["correct", "incorrect", "no_answer", "truncated", "error"]

TRUNCATED = "length"
"""The finish reason of an answer that the token limit cut."""


def answer_state(answer: Answer, gold: str) -> AnswerState:
    """The state of one recorded answer.

    ``error``: the request failed; there is no answer, so it is never a wrong one. ``truncated``: the token limit cut
    the answer before it committed to a final one; it counts as not right, in both arms alike, as in published scores,
    and is counted apart. An answer that is right, or had written ``#### `` and a number, before the limit is graded as
    usual.

    Args:
        answer: As recorded.
        gold: Gold of its question, unedited.

    Raises:
        GoldNotANumber: The gold cannot be read.
    """
    if isinstance(answer, Failed):
        return "error"
    state = grade(answer.text, gold).state
    return "truncated" if state != "correct" and was_cut(answer) else state


def was_cut(answer: Answered) -> bool:
    """Whether the token limit ended an answer that had not yet written ``#### `` and a number."""
    return answer.finish_reason == TRUNCATED and strict_match(answer.text) == INVALID
