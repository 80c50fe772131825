"""Which questions a comparison asks, in which order, after which worked examples: seeded, stored, found again.

The draw is written down here and may not change, since a stored plan names its seed: the ids of a file are sorted by
the SHA-256 of ``{seed}/{split}/{id}`` (decimal numbers, ``test`` or ``train``), and the first ones are taken. Every
order of the ids is as likely as any other, no version of a random generator matters, and a smaller sample is the
beginning of a larger one with the same seed.
"""

import hashlib

from equipoise_evals.gsm8k.question_set import QuestionSet, SetChanged, Split, TooFewQuestions
from equipoise_evals.model import Question, QuestionPlan


def plan_questions(question_set: QuestionSet, count: int | None, shots: int, seed: int) -> QuestionPlan:
    """Draw questions and worked examples without replacement.

    Args:
        question_set: Where they come from.
        count: Questions to ask, at least 1; None asks all of them, in drawn order too.
        shots: Worked examples, at least 0.
        seed: Any integer.

    Raises:
        TooFewQuestions: The set has fewer than asked for.
        ValueError: ``count`` or ``shots`` is below its least value.
    """
    population = len(question_set.test)
    if count is not None and count < 1:
        raise ValueError(f"count is {count}; at least one question must be asked")
    if shots < 0:
        raise ValueError(f"shots is {shots}; it cannot be negative")
    return QuestionPlan(
        name=question_set.name,
        revision=question_set.revision,
        test_sha256=question_set.test_sha256,
        train_sha256=question_set.train_sha256,
        population=population,
        ids=draw("test", population, population if count is None else count, seed),
        shot_ids=draw("train", len(question_set.train), shots, seed),
    )


def draw(split: Split, population: int, count: int, seed: int) -> tuple[int, ...]:
    """``count`` of the ids below ``population``, in drawn order.

    Raises:
        TooFewQuestions: There are fewer.
    """
    if count > population:
        raise TooFewQuestions(split, count, population)
    ranks = {place: hashlib.sha256(f"{seed}/{split}/{place}".encode()).digest() for place in range(population)}
    return tuple(sorted(ranks, key=ranks.__getitem__)[:count])


def questions_of(question_set: QuestionSet, plan: QuestionPlan) -> tuple[tuple[Question, ...], tuple[Question, ...]]:
    """The questions a plan asks, in order, and its worked examples.

    Raises:
        SetChanged: The set at hand is not the planned one, by its digests.
    """
    _require_same("test", plan, question_set.test_sha256, plan.test_sha256)
    _require_same("train", plan, question_set.train_sha256, plan.train_sha256)
    asked = tuple(question_set.test[place] for place in plan.ids)
    return asked, tuple(question_set.train[place] for place in plan.shot_ids)


def _require_same(split: Split, plan: QuestionPlan, found: str, planned: str) -> None:
    if found != planned:
        raise SetChanged(plan.name, split, planned, found)
