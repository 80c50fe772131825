"""The grade of one answer: its final number, compared exactly with the gold."""

from functools import lru_cache
from typing import Literal, NamedTuple

from equipoise_evals.gsm8k.final import final_answer
from equipoise_evals.gsm8k.numerals import scan
from equipoise_evals.gsm8k.plain_text import plain

LONGEST_REMEMBERED = 2_000
"""Characters; longer answers are rare, and a memory of them could grow large."""

GradeState = Literal["correct", "incorrect", "no_answer"]


class GoldNotANumber(ValueError):
    """A gold that is no number: a fault of the question set, never a wrong answer.

    Attributes:
        gold: The text that was given as the gold.
    """

    def __init__(self, gold: str) -> None:
        super().__init__(f"the gold {gold[:80]!r} is not one number")
        self.gold = gold


class Grade(NamedTuple):
    """What an output answers and whether that is right.

    Attributes:
        extracted: The final answer in canonical form (ASCII digits, optional ``-``, no separators, no trailing
            zeros; ``p/q`` where no finite decimal exists), or None where the output commits to no single number.
        state: ``no_answer`` exactly where ``extracted`` is None.
    """

    extracted: str | None
    state: GradeState


def grade(output: str, gold: str) -> Grade:
    """Grade one output as a careful person would who wants one final number and gives no credit in doubt.

    Errors and truncation by the token limit are not states of this function: a request that failed has no output.

    Args:
        output: What the model wrote, unedited.
        gold: The text after ``####`` in the question set, unedited.

    Raises:
        GoldNotANumber: If the gold cannot be read; the output never raises.
    """
    return _remembered(output, gold) if len(output) <= LONGEST_REMEMBERED else _grade(output, gold)


def _grade(output: str, gold: str) -> Grade:
    expected = gold_value(gold)
    extracted = final_answer(output)
    if extracted is None:
        return Grade(None, "no_answer")
    return Grade(extracted, "correct" if extracted == expected else "incorrect")


_remembered = lru_cache(maxsize=8_192)(_grade)
"""Passes mostly give equal answers, and every look and every report grades them again."""


def gold_value(gold: str) -> str:
    """The canonical value of a gold such as ``18``, ``2,125`` or ``-10``.

    Raises:
        GoldNotANumber: If it is not exactly one number.
    """
    text = plain(gold).strip()
    numerals = scan(text)
    if len(numerals) != 1 or numerals[0].value is None or text[: numerals[0].start].strip():
        raise GoldNotANumber(gold)
    return numerals[0].value
