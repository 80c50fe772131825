"""From recorded answers to grades. An answer that is missing has no grade, and is never a wrong one."""

from collections.abc import Sequence
from dataclasses import dataclass

from equipoise_evals.gsm8k.grade import grade
from equipoise_evals.model import Answered, PassRecord, QuestionsRecord, Role


@dataclass(frozen=True)
class GradedPass:
    """One pass, question by question.

    Attributes:
        name: Arm and number, as ``A1``.
        role: The arm.
        right: Whether each answered question was answered rightly.
        texts: The text of each answer.
        no_answer: Answers from which no final answer could be read; they count as not right. None where another tool
            graded, which does not tell.
        asked: Questions asked.
    """

    name: str
    role: Role
    right: dict[int, bool]
    texts: dict[int, str]
    no_answer: int | None
    asked: int


def graded_passes(questions: Sequence[QuestionsRecord], passes: Sequence[PassRecord]) -> tuple[GradedPass, ...]:
    """Grade each pass. Equal texts are graded once: the arms of a sound engine mostly say the same."""
    golds = {asked.question.id: asked.question.gold for record in questions for asked in record.asked}
    states: dict[tuple[int, str], str] = {}
    numbers: dict[Role, int] = {"A": 0, "B": 0}
    graded = []
    for record in passes:
        numbers[record.role] += 1
        answered = [answer for answer in record.answers if isinstance(answer, Answered)]
        for answer in answered:
            key = (answer.question_id, answer.text)
            if key not in states:
                states[key] = grade(answer.text, golds[answer.question_id]).state
        found = {answer.question_id: states[answer.question_id, answer.text] for answer in answered}
        graded.append(
            GradedPass(
                name=f"{record.role}{numbers[record.role]}",
                role=record.role,
                right={question: state == "correct" for question, state in found.items()},
                texts={answer.question_id: answer.text for answer in answered},
                no_answer=sum(state == "no_answer" for state in found.values()),
                asked=len(record.answers),
            )
        )
    return tuple(graded)
