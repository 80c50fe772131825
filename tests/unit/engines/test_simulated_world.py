"""The simulated engine's statistics, held against the knobs that set them: fixed seeds, bounds of 4 standard errors."""

import math
import random
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from pydantic import ValidationError

from tests.fakes.answers import Answerer, tokens
from tests.fakes.knobs import Identity, Knobs
from tests.fakes.world import World, interpolated


def identity(arm: str = "baseline", role: Literal["A", "B"] = "A", pair: int = 1) -> Identity:
    return Identity(
        arm=arm,
        launch_id="eq-x",
        step_log=Path("steps.jsonl"),
        sglang="0.5.23",
        clocks_prefills=False,
        role=role,
        pair=pair,
    )


def busy(steps: int, who: Identity | None = None, **knobs: object) -> np.ndarray[Any, np.dtype[np.float64]]:
    values: dict[str, Any] = {"step_us": {1: 1000.0}, "context_slope": 0.0, "launch_sd": 0.0, **knobs}
    world = World(Knobs.model_validate(values), who or identity())
    return np.array([world.busy_us(1, 100) for _ in range(steps)])


def test_the_effect_of_an_arm_is_exact_without_noise() -> None:
    baseline = busy(10, step_cv=0.0)
    candidate = busy(10, identity("persistent", "B"), step_cv=0.0, effect={"persistent": -0.02})

    assert candidate / baseline == pytest.approx(0.98, rel=1e-12)


def test_the_steps_have_the_cv_and_the_correlation_asked_for() -> None:
    logs = np.log(busy(20_000, step_cv=0.02, ar1=0.5))

    assert logs.std() == pytest.approx(0.02, rel=0.05)
    assert np.corrcoef(logs[:-1], logs[1:])[0, 1] == pytest.approx(0.5, abs=0.03)


def test_launches_differ_by_the_sd_asked_for_and_arms_of_one_launch_do_not() -> None:
    launches = [math.log(busy(1, identity(pair=pair), step_cv=0.0, launch_sd=0.01)[0]) for pair in range(400)]
    same = busy(5, identity("persistent"), launch_sd=0.01)

    assert np.std(launches) == pytest.approx(0.01, rel=0.15)
    assert same == pytest.approx(busy(5, identity("baseline"), launch_sd=0.01), rel=1e-12)


def test_two_levels_have_the_gap_and_the_share_asked_for() -> None:
    times = busy(20_000, step_cv=0.0, two_levels={"share": 0.3, "gap": 0.04, "dwell_steps": 20})

    assert set(np.round(times, 6)) == {1000.0, 1040.0}
    # 20,000 steps in stays of about 20: 1,000 independent draws of a share of 0.3.
    assert (times > 1020).mean() == pytest.approx(0.3, abs=4 * math.sqrt(0.3 * 0.7 / 1000))


def test_drift_and_warm_up() -> None:
    drifting = busy(1001, step_cv=0.0, drift_per_step=1e-4)
    warming = busy(200, step_cv=0.0, warm_up={"steps": 20, "excess": 0.5})

    assert drifting[1000] / drifting[0] == pytest.approx(1.1)
    assert warming[0] == pytest.approx(1500)
    assert warming[20] == pytest.approx(1000 * (1 + 0.5 / math.e))
    assert warming[199] == pytest.approx(1000, rel=1e-3)


def test_a_step_grows_with_its_context() -> None:
    world = World(Knobs(step_us={1: 1000.0}, context_slope=0.0001, step_cv=0.0, launch_sd=0.0), identity())

    assert world.busy_us(1, 200) / world.busy_us(1, 100) == pytest.approx(1.02 / 1.01)


@pytest.mark.parametrize(("batch", "time_us"), [(1, 1000), (16, 1300), (8, 1140), (64, 1300)])
def test_step_times_lie_on_the_line_between_the_batches_given(batch: int, time_us: float) -> None:
    points = {1: 1000.0, 16: 1300.0}

    assert interpolated(points, batch) == pytest.approx(time_us)
    assert interpolated(points, batch) == pytest.approx(np.interp(batch, [1, 16], [1000, 1300]))


def test_an_unknown_knob_is_refused() -> None:
    with pytest.raises(ValidationError, match="step_ms"):
        Knobs.model_validate({"step_ms": 1})


class TestAnswers:
    @pytest.fixture
    def questions(self, tmp_path: Path) -> Path:
        path = tmp_path / "test.jsonl"
        path.write_text(
            "".join(f'{{"question": "How many, number {n}?", "answer": "#### {n}"}}\n' for n in range(1000))
        )
        return path

    def right(self, questions: Path, who: Identity, **knobs: object) -> list[bool]:
        answerer = Answerer(Knobs.model_validate({"questions": (questions,), **knobs}), who)
        shot = "Question: One?\nAnswer: It is one.\n#### 1\n\n"
        answers = [answerer.answer(f"{shot}Question: How many, number {n}?\nAnswer:") for n in range(1000)]
        return [answer.endswith(f"#### {n}") for n, answer in enumerate(answers)]

    def test_the_share_of_right_answers(self, questions: Path) -> None:
        right = self.right(questions, identity(), accuracy=0.7)

        assert np.mean(right) == pytest.approx(0.7, abs=4 * math.sqrt(0.7 * 0.3 / 1000))

    def test_arms_with_one_accuracy_answer_alike_and_others_differ_on_as_few_as_they_must(
        self, questions: Path
    ) -> None:
        accuracy = {"baseline": 0.7, "persistent": 0.65}
        baseline = self.right(questions, identity("baseline"), accuracy=0.7)
        alike = self.right(questions, identity("persistent", "B"), accuracy=0.7)
        worse = self.right(questions, identity("persistent", "B"), accuracy=accuracy)

        assert alike == baseline
        assert all(better or not other for better, other in zip(baseline, worse, strict=True))
        assert sum(baseline) - sum(worse) == pytest.approx(50, abs=4 * math.sqrt(1000 * 0.05 * 0.95))

    def test_flips_change_the_text_of_the_share_asked_for(self, questions: Path) -> None:
        knobs = Knobs(questions=(questions,), flip_rate={"persistent": 0.1})
        arms = [Answerer(knobs, identity(arm)) for arm in ("baseline", "persistent")]
        texts = [[arm.answer(f"Question: How many, number {n}?\nAnswer:") for n in range(500)] for arm in arms]

        differing = sum(one != other for one, other in zip(*texts, strict=True))
        assert differing == pytest.approx(50, abs=4 * math.sqrt(500 * 0.1 * 0.9))

    def test_tokens_join_to_the_text(self) -> None:
        text = " First we work it out.\n#### 1,234"
        ids, pieces = tokens(text)

        assert "".join(pieces) == text
        assert len(ids) == len(pieces) == 7

    def test_another_seed_gives_other_answers(self, questions: Path) -> None:
        assert self.right(questions, identity(), seed=1) != self.right(questions, identity(), seed=2)


def test_one_seed_is_one_world() -> None:
    random.seed(0)
    first = busy(50, step_cv=0.02)
    random.seed(1)

    assert busy(50, step_cv=0.02) == pytest.approx(first, rel=1e-15)
