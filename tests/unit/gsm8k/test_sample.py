"""The draw: stored, repeatable, without replacement, fair, and refused where the set is too small or another."""

import hashlib
from collections import Counter
from dataclasses import replace

import pytest
from scipy.stats import chisquare

from equipoise_evals.gsm8k.question_set import QuestionSet, SetChanged, TooFewQuestions
from equipoise_evals.gsm8k.sample import draw, plan_questions, questions_of
from equipoise_evals.model import Question


def questions(count: int, word: str) -> tuple[Question, ...]:
    return tuple(Question(id=place, question=f"{word} {place}?", rationale="", gold="1") for place in range(count))


SET = QuestionSet("folder", None, "a" * 64, "b" * 64, questions(40, "test"), questions(9, "train"))


def test_plan_says_what_was_drawn_from_what() -> None:
    plan = plan_questions(SET, 16, 2, seed=7)
    assert (plan.name, plan.revision, plan.test_sha256, plan.train_sha256) == ("folder", None, "a" * 64, "b" * 64)
    assert (plan.population, len(plan.ids), len(plan.shot_ids)) == (40, 16, 2)
    assert len(set(plan.ids)) == 16
    assert len(set(plan.shot_ids)) == 2


def test_draw_is_the_documented_one() -> None:
    """Stored plans name only a seed: ids sorted by sha256 of ``seed/split/id``, computed here again."""
    by_hand = sorted(range(40), key=lambda place: hashlib.sha256(b"-3/test/%d" % place).hexdigest())
    assert list(draw("test", 40, 40, seed=-3)) == by_hand
    assert draw("test", 8, 8, seed=0) == (5, 4, 1, 7, 0, 6, 3, 2)  # printf 0/test/N | sha256sum, sorted


def test_all_questions() -> None:
    plan = plan_questions(SET, None, 0, seed=1)
    assert sorted(plan.ids) == list(range(40))
    assert plan.shot_ids == ()
    assert plan == plan_questions(SET, 40, 0, seed=1)


def test_smaller_sample_begins_the_larger_one() -> None:
    assert plan_questions(SET, 30, 0, seed=5).ids[:12] == plan_questions(SET, 12, 0, seed=5).ids


def test_seed_and_split_decide() -> None:
    assert plan_questions(SET, 16, 2, seed=1) == plan_questions(SET, 16, 2, seed=1)
    assert plan_questions(SET, 16, 2, seed=1).ids != plan_questions(SET, 16, 2, seed=2).ids
    assert draw("test", 40, 40, seed=1) != draw("train", 40, 40, seed=1)


def test_every_question_is_as_likely_at_every_place() -> None:
    """Over 2,000 seeds each of 6 ids comes first, and each comes last, as often: chi-squared at 0.1 %, fixed seeds."""
    draws = [draw("test", 6, 6, seed) for seed in range(2000)]
    for place in (0, 5):
        counts = Counter(drawn[place] for drawn in draws)
        assert chisquare([counts[number] for number in range(6)]).pvalue > 0.001


@pytest.mark.parametrize(
    ("count", "shots", "split", "asked", "population"), [(41, 0, "test", 41, 40), (1, 10, "train", 10, 9)]
)
def test_too_few(count: int, shots: int, split: str, asked: int, population: int) -> None:
    with pytest.raises(TooFewQuestions, match=rf"{asked} .* asked for, and the set has {population}") as caught:
        plan_questions(SET, count, shots, seed=1)
    assert (caught.value.split, caught.value.asked, caught.value.population) == (split, asked, population)


@pytest.mark.parametrize(
    ("count", "shots", "what"), [(0, 0, "count is 0"), (-1, 0, "count is -1"), (1, -1, "shots is -1")]
)
def test_senseless_numbers(count: int, shots: int, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        plan_questions(SET, count, shots, seed=1)


def test_questions_are_found_again_in_the_order_asked() -> None:
    plan = plan_questions(SET, 16, 3, seed=7)
    asked, shots = questions_of(SET, plan)
    assert tuple(question.id for question in asked) == plan.ids
    assert tuple(question.id for question in shots) == plan.shot_ids
    assert {question.question.split()[0] for question in asked} == {"test"}
    assert {question.question.split()[0] for question in shots} == {"train"}


@pytest.mark.parametrize("split", ["test", "train"])
def test_another_set_is_refused(split: str) -> None:
    plan = plan_questions(SET, 16, 3, seed=7)
    other = replace(SET, test_sha256="c" * 64) if split == "test" else replace(SET, train_sha256="c" * 64)
    with pytest.raises(SetChanged, match="not the planned ones") as caught:
        questions_of(other, plan)
    assert (caught.value.split, caught.value.found_sha256) == (split, "c" * 64)
    assert caught.value.planned_sha256 == (plan.test_sha256 if split == "test" else plan.train_sha256)
