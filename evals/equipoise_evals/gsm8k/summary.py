"""One pass in numbers: answers by state, scores of all that was asked and of all that was answered, lengths."""

from collections import Counter
from collections.abc import Mapping
from typing import get_args

from pydantic import Field

from equipoise_evals.gsm8k.equality import tokens_known
from equipoise_evals.gsm8k.harness import flexible_extract, harness_equal, strict_match
from equipoise_evals.gsm8k.state import AnswerState, answer_state
from equipoise_evals.model import Answered, Frozen, PassRecord, Role


class PassSummary(Frozen):
    """One pass.

    Attributes:
        asked: Questions asked.
        states: Answers by state; every state is there, and together they are ``asked``.
        right_of_asked: Share of right answers of all questions asked: a request that failed stays in the denominator.
        right_of_answered: Share of right answers of all answers; None where there are none. The arms are compared
            question by question on what both answered, never by these two.
        strict_match: Share of answers that lm-evaluation-harness's filter of this name finds right; None without any.
        flexible_extract: The same of its other filter.
        empty: Answers without any text.
        output_tokens: Mean length of an answer in tokens; None where tokens are not known.
        finish_reasons: Answers by finish reason, as the engine names it.
        resumed: Answers of an earlier launch of the pair, which was cut short.
        retried: Requests that were sent again, since the engine had refused or not received them.
    """

    name: str
    role: Role
    pair: int
    asked: int
    states: dict[AnswerState, int]
    right_of_asked: float | None
    right_of_answered: float | None
    strict_match: float | None
    flexible_extract: float | None
    empty: int
    output_tokens: float | None
    finish_reasons: dict[str, int]
    resumed: int = 0
    retried: int = Field(default=0, ge=0)


def summarize(name: str, done: PassRecord, golds: Mapping[int, str]) -> PassSummary:
    """The summary of one pass.

    Args:
        name: Arm and number, as ``A1``.
        done: The pass.
        golds: Gold of every question by id, unedited.

    Raises:
        GoldNotANumber: A gold cannot be read.
    """
    states = Counter(answer_state(answer, golds[answer.question_id]) for answer in done.answers)
    answered = [answer for answer in done.answers if isinstance(answer, Answered)]
    strict = sum(harness_equal(strict_match(a.text), golds[a.question_id]) for a in answered)
    flexible = sum(harness_equal(flexible_extract(a.text), golds[a.question_id]) for a in answered)
    known = [len(answer.output_ids) for answer in answered if tokens_known(answer)]
    return PassSummary(
        name=name,
        role=done.role,
        pair=done.pair,
        asked=len(done.answers),
        states={state: states[state] for state in get_args(AnswerState)},
        right_of_asked=share(states["correct"], len(done.answers)),
        right_of_answered=share(states["correct"], len(answered)),
        strict_match=share(strict, len(answered)),
        flexible_extract=share(flexible, len(answered)),
        empty=sum(not answer.text.strip() for answer in answered),
        output_tokens=share(sum(known), len(known)),
        finish_reasons=dict(sorted(Counter(answer.finish_reason for answer in answered).items())),
        resumed=done.resumed,
        retried=sum(answer.retries for answer in answered),
    )


def share(part: int, whole: int) -> float | None:
    """A share; of nothing there is none."""
    return part / whole if whole else None
