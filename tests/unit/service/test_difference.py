"""Two reports beside each other: every difference is listed, nothing else, and what cannot be compared is refused."""

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from pydantic import JsonValue
from scipy import stats

from equipoise_evals.judge import judge
from equipoise_evals.model import ArmPair, ArmSpec, ModelRef, Plan, Record, Role
from equipoise_service.difference import Difference, changes, difference_of, to_markdown
from equipoise_service.errors import NotComparable
from equipoise_service.ids import new_id
from equipoise_service.report import Report
from equipoise_service.report.markup import escaped
from tests.support import records as make
from tests.unit.service.test_report import HOSTILE, report_of

SCHEMA = Path(__file__).resolve().parents[3] / "docs" / "schemas" / "difference.json"


def measured(plan: Plan, effect: float = -0.02, *, seed: int = 5, pairs: int = 3, right: int = 6) -> Report:
    """A report of launch pairs with this effect."""
    parts: list[list[Record]] = [[make.questions()], make.launches(plan, max(pairs, 2)), make.treatment()]
    if plan.accuracy is not None:
        parts.append(make.equal_passes(right=right))
    if plan.latency is not None:
        parts.append(make.blocks(plan, pairs, np.random.default_rng(seed), effect=effect))
    return report_of(plan, judge(make.together(*parts), plan)).model_copy(update={"comparison_id": new_id()})


def with_device(report: Report, name: str) -> Report:
    role: Role = "A"
    engines = [{"role": role, "pairs": (1,), "facts": {"device": {"type": "cuda", "name": name}}}]
    return Report.model_validate(report.model_dump() | {"engines": engines})


def refusal(first: Report, second: Report) -> tuple[str, ...]:
    with pytest.raises(NotComparable) as refused:
        difference_of(first, second)
    return refused.value.reasons


def test_the_same_record_twice_differs_in_nothing() -> None:
    first = measured(make.plan())
    again = first.model_copy(update={"comparison_id": new_id()})
    found = difference_of(first, again)
    assert (found.setup, found.engines, found.words, found.numbers) == ((), (), (), ())
    assert found.not_compared == {}
    assert {effect.shift for effect in found.effects} == {0.0}
    assert to_markdown(found).count("Nothing differs.") == 4


def test_every_change_of_set_up_is_named_by_its_place() -> None:
    plan = make.plan()
    candidate = ArmSpec(name="persistent", scratch="persistent", flags=("--x", "1"), environment={"A/B~": "2"})
    changed = plan.model_copy(update={"arms": ArmPair(baseline=plan.arms.baseline, candidate=candidate), "seed": 8})
    found = difference_of(measured(plan), measured(changed))
    assert [(one.pointer, one.first, one.second) for one in found.setup] == [
        ("/arms/candidate/environment/A~1B~0", None, "2"),
        ("/arms/candidate/flags/0", None, "--x"),
        ("/arms/candidate/flags/1", None, "1"),
        ("/seed", 7, 8),
    ]
    assert found.numbers == ()
    swapped = difference_of(measured(changed), measured(plan))
    assert [(one.pointer, one.second, one.first) for one in swapped.setup] == [
        (one.pointer, one.first, one.second) for one in found.setup
    ]


def test_effects_shift_by_welchs_interval_over_launch_pairs() -> None:
    first, second = measured(make.plan(), -0.02), measured(make.plan(), 0.03, seed=6, pairs=4)
    found = difference_of(first, second)
    assert ("/overall", "ship", "block") in {(one.pointer, one.first, one.second) for one in found.words}
    busy = next(one for one in found.effects if (one.metric, one.batch) == ("busy", 16))
    logs = []
    for report in (first, second):
        assert report.verdict.latency is not None
        logs.append(np.log1p(report.verdict.latency.evidence.busy.per_pair))
    interval = stats.ttest_ind(logs[1], logs[0], equal_var=False).confidence_interval(0.95)
    assert busy.shift == pytest.approx(math.expm1(np.mean(logs[1]) - np.mean(logs[0])))
    assert busy.interval is not None
    assert (busy.interval.low, busy.interval.high) == pytest.approx(
        (math.expm1(interval.low), math.expm1(interval.high))
    )
    number = next(one for one in found.numbers if one.name.startswith("busy") and one.name.endswith("effect"))
    assert number.first is not None and number.second is not None
    assert (number.first.value, number.second.value) == (100 * busy.first, 100 * busy.second)
    text = to_markdown(found)
    assert f"{busy.shift:+.2%}" in text
    assert f"{busy.interval.low:+.2%} to {busy.interval.high:+.2%}" in text


def test_one_launch_pair_gives_no_interval() -> None:
    found = difference_of(measured(make.plan()), measured(make.plan(), pairs=1))
    assert {effect.interval for effect in found.effects} == {None}
    assert "none from fewer than 2 pairs" in to_markdown(found)


def test_batches_that_only_one_measured_are_in_the_numbers_alone() -> None:
    fewer = make.LATENCY.model_copy(update={"batch_sizes": (16,)})
    found = difference_of(measured(make.plan()), measured(make.plan(latency=fewer)))
    assert {one.batch for one in found.effects} == {16}
    assert {one.batch for one in found.numbers if one.second is None} == {1}


@pytest.mark.parametrize(
    ("changes", "half", "says"),
    [
        ({"primary_batch": 1}, "latency", "primary_batch is 16 in the first and 1 in the second"),
        ({"prompt_tokens": 64}, "latency", "prompt_tokens is 32 in the first and 64 in the second"),
        ({"steps_per_block": 32}, "latency", "steps_per_block is 24"),
        ({"shots": 3}, "accuracy", "different worked examples"),
        ({"prompting": "chat"}, "accuracy", "they prompted differently, completion and chat"),
        ({"sampling": {"max_new_tokens": 97}}, "accuracy", "they sampled with different parameters"),
        ({"questions": {"ids": list(range(15))}}, "accuracy", "they asked different questions"),
        ({"questions": {"test_sha256": "f" * 64}}, "accuracy", "they asked different questions"),
    ],
)
def test_a_half_that_cannot_be_compared_is_left_out_and_says_why(changes: dict[str, Any], half: str, says: str) -> None:
    values = make.plan().model_dump()
    for name, value in changes.items():
        inner = values[half]
        inner[name] = inner[name] | value if isinstance(value, dict) else value
    first = measured(make.plan())
    # Only what the plans say is looked at here, so the second may carry the first's numbers.
    second = first.model_copy(update={"comparison_id": new_id(), "plan": Plan.model_validate(values)})
    found = difference_of(first, second)
    assert list(found.not_compared) == [half]
    assert any(says in reason for reason in found.not_compared[half])  # type: ignore[index] # a key of this very dict
    assert escaped(says) in to_markdown(found)
    assert (found.effects == ()) == (half == "latency")
    assert half not in {number.section for number in found.numbers}
    assert found.setup


def test_step_times_of_different_devices_are_not_compared() -> None:
    first, second = (with_device(measured(make.plan(), seed=seed), name) for seed, name in ((5, "H200"), (6, "B200")))
    found = difference_of(first, second)
    assert found.not_compared == {"latency": ("they ran on different devices: H200, and B200",)}
    assert ("/baseline/0/device/name", "H200", "B200") in {
        (one.pointer, one.first, one.second) for one in found.engines
    }
    assert difference_of(first, with_device(second, "H200")).not_compared == {}


def test_halves_that_one_did_not_measure_are_named() -> None:
    found = difference_of(measured(make.plan()), measured(make.plan(accuracy=None)))
    assert found.not_compared == {"accuracy": ("the second has no result on accuracy",)}
    only = measured(make.plan(latency=None))
    assert difference_of(only, measured(make.plan())).not_compared == {
        "latency": ("the first has no result on latency",)
    }
    assert refusal(only, measured(make.plan(accuracy=None))) == (
        "latency: the first has no result on latency",
        "accuracy: the second has no result on accuracy",
    )


def test_what_answers_another_question_is_refused_with_every_reason() -> None:
    first = measured(make.plan())
    assert refusal(first, first) == ("both are the same comparison",)
    other = ModelRef(name="other", source="hub", path="p", revision="1")
    assert refusal(first, measured(make.plan(model=other))) == ("they measured different models, simulated and other",)
    # The same weights under another name are the same model.
    names = [ModelRef(name=name, source="folder", path=name, revision="d1") for name in ("/a", "/b")]
    assert difference_of(*(measured(make.plan(model=name)) for name in names)).not_compared == {}
    plan = make.plan()
    inactive = report_of(plan, judge(make.together(make.launches(plan, 1), make.treatment(60, 60)), plan))
    lost = make.one_pass(1, "A", [True] * 16, failed=range(8))
    parts = ([make.questions()], make.launches(plan, 1), make.treatment(), [lost])
    invalid = report_of(plan, judge(make.together(*parts), plan)).model_copy(update={"comparison_id": new_id()})
    assert refusal(inactive, invalid) == (
        "latency: in the first the treatment was not live, so its numbers say nothing of it",
        "latency: the second cannot be judged (missing_answers), so its numbers are for diagnosis only",
        "accuracy: in the first the treatment was not live, so its numbers say nothing of it",
        "accuracy: the second cannot be judged (missing_answers), so its numbers are for diagnosis only",
    )


def test_documents_are_compared_place_by_place_and_long_lists_as_a_whole() -> None:
    assert changes({"a": [1, 2]}, {"a": [1, 3, 4]})[0].pointer == "/a/1"
    many: list[JsonValue] = [{"x": 1} for _ in range(20)]
    assert [one.pointer for one in changes(many, [*many[:19], {"x": 2}])] == ["/19/x"]
    (long,) = changes({"ids": list(range(17))}, {"ids": list(range(18))})
    assert long.pointer == "/ids"
    assert str(long.first).startswith("17 values, SHA-256 ")
    (other,) = changes([1], {"a": 1})
    assert (other.pointer, other.first, other.second) == ("", [1], {"a": 1})
    assert changes(None, None) == ()


def test_markup_from_outside_stays_text_and_the_document_is_as_published() -> None:
    arms = ArmPair(
        baseline=ArmSpec(name="`a`|b", scratch="baseline", flags=(HOSTILE,)),
        candidate=ArmSpec(name="c", scratch="persistent"),
    )
    found = difference_of(measured(make.plan()), measured(make.plan(arms=arms), 0.03))
    outside_code = "".join(to_markdown(found).split("`")[::2])
    assert "<img" not in outside_code
    document = json.loads(found.model_dump_json())
    jsonschema.validate(document, json.loads(SCHEMA.read_text()), cls=jsonschema.Draft202012Validator)
    assert Difference.model_validate_json(found.model_dump_json()) == found
