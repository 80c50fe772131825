"""Two passes over the same questions, answer by answer: equal texts, equal tokens, where they part, which grades flip.

It counts and lists; whether the differences are more than chance is for ``equipoise_evals.stats.equality``. An answer
that is missing is compared with nothing, and a share of nothing is None.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pydantic import Field

from equipoise_evals.gsm8k.grade import Grade, grade
from equipoise_evals.gsm8k.state import AnswerState, answer_state
from equipoise_evals.model import Answer, Answered, Frozen, PassRecord


class PassesDiffer(ValueError):
    """Two passes that did not ask the same questions in the same order cannot be compared.

    Attributes:
        place: 0-based place of the first question that differs, or where the shorter pass ends.
    """

    def __init__(self, place: int) -> None:
        super().__init__(f"the two passes ask different questions from place {place} on")
        self.place = place


class Side(Frozen):
    """One pass's answer to a question that the two passes answer differently.

    Attributes:
        text: The whole answer.
        token_at_divergence: Token id where the two part, None where this answer has ended or tokens are not known.
        output_tokens: Length in tokens, None where tokens are not known.
        extracted: The final answer in canonical form, None where there is none.
        state: Its grade, or ``truncated``.
    """

    text: str
    token_at_divergence: int | None
    output_tokens: int | None
    finish_reason: str
    extracted: str | None
    state: AnswerState


class Divergence(Frozen):
    """A question that the two passes answer with different texts or tokens.

    ``token_index`` is the 0-based first output token that differs; None where tokens are not known or only texts
    differ. ``flips`` says that exactly one of the two answers is correct.
    """

    question_id: int = Field(ge=0)
    texts_equal: bool
    token_index: int | None
    flips: bool
    first: Side
    second: Side


class PassEquality(Frozen):
    """Two passes compared over the questions that both answered.

    Attributes:
        asked: Questions in each pass.
        compared: Questions that both passes answered.
        missing: Questions that at least one pass did not answer.
        texts_equal: Of ``compared``, those with equal texts.
        tokens_compared: Of ``compared``, those whose tokens are known in both passes.
        tokens_equal: Of ``tokens_compared``, those with equal tokens.
        divergences: Every question with unequal texts or tokens, in the order asked.
    """

    asked: int
    compared: int
    missing: tuple[int, ...]
    texts_equal: int
    tokens_compared: int
    tokens_equal: int
    divergences: tuple[Divergence, ...]

    @property
    def flips(self) -> tuple[Divergence, ...]:
        """The questions that exactly one of the two passes answers correctly, each with both answers."""
        return tuple(divergence for divergence in self.divergences if divergence.flips)


def compare_passes(first: PassRecord, second: PassRecord, golds: Mapping[int, str]) -> PassEquality:
    """Compare two passes over the same questions.

    Args:
        first: One pass; which arm or launch it is does not matter here.
        second: Another pass over the same questions in the same order.
        golds: Gold of every question by id, unedited.

    Raises:
        PassesDiffer: They did not ask the same questions in the same order.
        GoldNotANumber: A gold that is needed cannot be read.
    """
    pairs = _paired(first.answers, second.answers)
    both = [(a, b) for a, b in pairs if isinstance(a, Answered) and isinstance(b, Answered)]
    with_tokens = [(a, b) for a, b in both if tokens_known(a) and tokens_known(b)]
    return PassEquality(
        asked=len(pairs),
        compared=len(both),
        missing=tuple(a.question_id for a, b in pairs if not (isinstance(a, Answered) and isinstance(b, Answered))),
        texts_equal=sum(a.text == b.text for a, b in both),
        tokens_compared=len(with_tokens),
        tokens_equal=sum(a.output_ids == b.output_ids for a, b in with_tokens),
        divergences=tuple(
            _divergence(a, b, golds[a.question_id])
            for a, b in both
            if a.text != b.text or (tokens_known(a) and tokens_known(b) and a.output_ids != b.output_ids)
        ),
    )


class Parting(NamedTuple):
    """A question whose two answers begin alike and part: the common tokens, and each one's next, None at its end."""

    question_id: int
    prefix: tuple[int, ...]
    tokens: tuple[int | None, int | None]


def partings(first: PassRecord, second: PassRecord) -> Iterator[Parting]:
    """Where two passes' answers part, in the order asked; answers whose tokens are not known are left out."""
    for a, b in _paired(first.answers, second.answers):
        if isinstance(a, Answered) and isinstance(b, Answered) and tokens_known(a) and tokens_known(b):
            index = first_divergent_token(a.output_ids, b.output_ids)
            if index is not None:
                yield Parting(a.question_id, a.output_ids[:index], (_token(a, index), _token(b, index)))


def first_divergent_token(first: Sequence[int], second: Sequence[int]) -> int | None:
    """0-based index of the first token in which two sequences differ, None where they are equal.

    Where one is the beginning of the other, it is the length of the shorter.

    >>> first_divergent_token((5, 7, 9), (5, 8)), first_divergent_token((5, 7), (5,)), first_divergent_token((), ())
    (1, 1, None)
    """
    for index, (left, right) in enumerate(zip(first, second, strict=False)):
        if left != right:
            return index
    return None if len(first) == len(second) else min(len(first), len(second))


def _paired(first: Sequence[Answer], second: Sequence[Answer]) -> list[tuple[Answer, Answer]]:
    place = first_divergent_token([a.question_id for a in first], [b.question_id for b in second])
    if place is not None:
        raise PassesDiffer(place)
    return list(zip(first, second, strict=True))


def tokens_known(answer: Answered) -> bool:
    """Whether the engine gave token ids; an empty answer has none to give."""
    return bool(answer.output_ids) or not answer.text


def _divergence(first: Answered, second: Answered, gold: str) -> Divergence:
    known = tokens_known(first) and tokens_known(second)
    index = first_divergent_token(first.output_ids, second.output_ids) if known else None
    grades = grade(first.text, gold), grade(second.text, gold)
    return Divergence(
        question_id=first.question_id,
        texts_equal=first.text == second.text,
        token_index=index,
        flips=(grades[0].state == "correct") != (grades[1].state == "correct"),
        first=_side(first, grades[0], gold, index),
        second=_side(second, grades[1], gold, index),
    )


def _token(answer: Answered, index: int) -> int | None:
    return answer.output_ids[index] if index < len(answer.output_ids) else None


def _side(answer: Answered, graded: Grade, gold: str, index: int | None) -> Side:
    ids = answer.output_ids
    return Side(
        text=answer.text,
        token_at_divergence=None if index is None else _token(answer, index),
        output_tokens=len(ids) if tokens_known(answer) else None,
        finish_reason=answer.finish_reason,
        extracted=graded.extracted,
        state=answer_state(answer, gold),
    )
