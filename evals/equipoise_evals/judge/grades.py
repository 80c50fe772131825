"""From recorded answers to grades. An answer that is missing has no grade, and is never a wrong one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from equipoise_evals.gsm8k.grade import grade
from equipoise_evals.model import ROLE_NAMES, Answered, PassRecord, QuestionsRecord, Role


class UnaskedQuestionError(ValueError):
    """A pass holds an answer to a question that nobody asked, so its records are not those of this plan."""


@dataclass(frozen=True)
class GradedPass:
    """One pass, question by question.

    Attributes:
        name: Arm and number, as ``A1``.
        role: The arm.
        origin: Where it comes from, as it is said to a reader: ``launch pair 1``.
        right: Whether each answered question was answered rightly.
        texts: The text of each answer.
        no_answer: Answers from which no final answer could be read; they count as not right. None where another tool
            graded, which does not tell.
        missing: Questions that were asked and have no answer here, whether the request failed or nothing was recorded.
    """

    name: str
    role: Role
    origin: str
    right: dict[int, bool]
    texts: dict[int, str]
    no_answer: int | None
    missing: frozenset[int]


def graded_passes(
    ids: Sequence[int], questions: Sequence[QuestionsRecord], passes: Sequence[PassRecord]
) -> tuple[GradedPass, ...]:
    """Grade each engine's pass over the planned ``ids``. Equal texts are graded once: sound arms mostly say the same.

    An engine has one pass in a launch pair: one recorded after it repeats no launch, and a look has judged the first.

    Raises:
        UnaskedQuestionError: An answer to a question that was not asked.
    """
    planned = frozenset(ids)
    golds = {one.question.id: one.question.gold for record in questions for one in record.asked}
    asked = {question: gold for question, gold in golds.items() if question in planned}
    states: dict[tuple[int, str], str] = {}
    numbers: dict[Role, int] = {"A": 0, "B": 0}
    graded = []
    for record in _first_of_each_engine(passes):
        _require_asked(record, asked)
        numbers[record.role] += 1
        answered = [answer for answer in record.answers if isinstance(answer, Answered)]
        for answer in answered:
            key = (answer.question_id, answer.text)
            if key not in states:
                states[key] = grade(answer.text, asked[answer.question_id]).state
        found = {answer.question_id: states[answer.question_id, answer.text] for answer in answered}
        graded.append(
            GradedPass(
                name=f"{record.role}{numbers[record.role]}",
                role=record.role,
                origin=f"launch pair {record.pair}",
                right={question: state == "correct" for question, state in found.items()},
                texts={answer.question_id: answer.text for answer in answered},
                no_answer=sum(state == "no_answer" for state in found.values()),
                missing=planned - found.keys(),
            )
        )
    return tuple(graded)


def _first_of_each_engine(passes: Sequence[PassRecord]) -> Sequence[PassRecord]:
    first: dict[tuple[int, Role], PassRecord] = {}
    for record in passes:
        first.setdefault((record.pair, record.role), record)
    return tuple(first.values())


def _require_asked(record: PassRecord, asked: Mapping[int, str]) -> None:
    for answer in record.answers:
        if answer.question_id not in asked:
            raise UnaskedQuestionError(
                f"the {ROLE_NAMES[record.role]}'s pass of launch pair {record.pair} holds question "
                f"{answer.question_id}, which was not asked"
            )
