"""Values that cannot be: each refused by its type, with a sentence that says why."""

import numpy as np
import pytest
from pydantic import ValidationError

from equipoise_evals.judge import judge
from equipoise_evals.model import (
    ArmPair,
    ArmSpec,
    Block,
    BlockRecord,
    Equivalent,
    Identical,
    Improved,
    Interval,
    LatencyPlan,
    Neutral,
    NonInferior,
    Plan,
    Record,
    Records,
    Regression,
    Role,
    Ship,
    Slower,
    StepColumns,
    StressedPhase,
    TreatmentInactive,
    Verdict,
    looks_up_to,
)
from tests.support import records as make


def block(pair: int, role: Role, sequence: int) -> BlockRecord:
    """A short block at batch 1."""
    return BlockRecord(
        pair=pair, role=role, batch=1, quad=1, position=sequence, sequence=sequence,
        steps=make.block_steps(1, [5_000.0] * 8), client=(),
    )  # fmt: skip


def verdict_of(effect: float) -> Verdict:
    plan = make.plan()
    blocks = make.blocks(plan, 3, np.random.default_rng(1), effect=effect, launch_sd=0.0002)
    return judge(
        make.together([make.questions()], make.launches(plan, 3), make.treatment(), make.equal_passes(), blocks), plan
    )


def test_arms_that_differ_need_names_that_do() -> None:
    one, other = ArmSpec(name="same", scratch="baseline"), ArmSpec(name="same", scratch="persistent")
    assert one.differs_from(other) == ("scratch",)
    with pytest.raises(ValidationError, match="cannot share the name"):
        ArmPair(baseline=one, candidate=other)
    assert ArmPair(baseline=one, candidate=one).of("B") == one


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"primary_batch": 4}, "is none of batch_sizes"),
        ({"batch_sizes": (16, 16)}, "distinct"),
        ({"batch_sizes": (0, 16)}, "at least 1"),
        ({"warmup_steps": 20}, "fewer than 4 timed steps"),
    ],
)
def test_a_latency_plan_that_measures_nothing(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        LatencyPlan.model_validate(make.LATENCY.model_dump() | changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"accuracy": None, "latency": None}, "parts must name"),
        ({"looks": (5, 3)}, "rise"),
        ({"looks": (11,)}, "rise"),
        ({"looks": (1, 3)}, "one launch pair has no spread"),
        ({"stress": True, "accuracy": None}, "stress needs the accuracy half"),
        ({"stress": True, "accuracy": make.accuracy_plan(passes_max=1)}, "at least 2 passes"),
    ],
)
def test_a_plan_that_decides_nothing(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Plan.model_validate(make.plan().model_dump() | changes)


def test_looks_begin_where_a_variance_can_be_had() -> None:
    assert looks_up_to(2) == ()
    assert looks_up_to(3) == (3,)
    assert looks_up_to(10) == (3, 4, 5, 6, 8, 10)
    assert looks_up_to(7, with_history=True) == (2, 3, 4, 5, 6, 7)
    assert make.plan().parts == ("latency", "accuracy")
    assert make.plan(accuracy=None).parts == ("latency",)
    assert make.accuracy_plan(passes_max=5).looks == (2, 4, 5)


def test_columns_of_unequal_length_are_refused() -> None:
    steps = make.block_steps(1, [1.0, 2.0])
    assert len(steps) == 2
    with pytest.raises(ValidationError, match="differ in length"):
        StepColumns.model_validate(steps.model_dump() | {"busy_us": (1.0,)})


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("busy_us", (-1.0, 2.0)),
        ("busy_us", (1e300, 2.0)),
        ("period_us", (None, -4_000.0)),
        ("context_tokens", (2**70, 1)),
        ("real_batch", (-1, 1)),
        ("monotonic_ns", (0, 2**63)),
    ],
)
def test_numbers_that_no_step_has_are_refused(column: str, values: tuple[float | None, ...]) -> None:
    with pytest.raises(ValidationError, match=r"greater than or equal to 0|less than"):
        StepColumns.model_validate(make.block_steps(1, [1.0, 2.0]).model_dump() | {column: values})


def test_infinities_and_unknown_fields_are_refused() -> None:
    with pytest.raises(ValidationError, match="finite"):
        Interval(low=0.0, high=float("inf"), level=0.95)
    with pytest.raises(ValidationError, match="swapped"):
        Interval(low=1.0, high=0.0, level=0.95)
    with pytest.raises(ValidationError, match="Extra inputs"):
        ArmSpec.model_validate({"name": "a", "scratch": "baseline", "shell": "rm"})


def test_words_of_latency_hold_only_what_they_justify() -> None:
    faster = verdict_of(-0.02).latency
    assert faster is not None
    evidence = faster.evidence
    with pytest.raises(ValidationError, match="slower needs"):
        Slower(evidence=evidence)
    with pytest.raises(ValidationError, match="equivalent needs"):
        Equivalent(measurably_slower=False, evidence=evidence)
    with pytest.raises(ValidationError, match="makes the size"):
        type(faster).model_validate(faster.model_dump() | {"size": "small"})
    without = evidence.busy.model_copy(update={"interval": None})
    with pytest.raises(ValidationError, match="needs intervals"):
        type(faster).model_validate({"size": "material", "evidence": evidence.model_copy(update={"busy": without})})


def test_words_of_accuracy_hold_only_what_they_justify() -> None:
    verdict = verdict_of(-0.02)
    assert verdict.accuracy is not None
    evidence = verdict.accuracy.evidence.model_copy(update={"outputs_equal": False})
    for word in (Regression, Identical, Improved, NonInferior):
        with pytest.raises(ValidationError, match="needs"):
            word(evidence=evidence)


@pytest.mark.parametrize("overall", [Neutral(), Block(causes=("slower",)), TreatmentInactive()])
def test_an_overall_word_follows_from_its_halves(overall: Neutral | Block | TreatmentInactive) -> None:
    shipped = verdict_of(-0.02)
    assert isinstance(shipped.overall, Ship)
    with pytest.raises(ValidationError, match="not justified"):
        Verdict.model_validate(shipped.model_dump() | {"overall": overall.model_dump()})


def test_every_request_of_a_stress_phase_ended_in_one_way() -> None:
    phase = make.stress(2, "A").phases[0]
    with pytest.raises(ValidationError, match="20 requests, but 20 finished, 1 aborted, 0 failed"):
        StressedPhase.model_validate(phase.model_dump() | {"aborted": 1})


def test_fields_that_a_plan_or_launch_does_not_use_are_left_out_of_its_json() -> None:
    """Records of before these fields existed keep their bytes."""
    assert {"layout_why", "gpu_type"}.isdisjoint(make.plan().model_dump(mode="json"))
    assert "node" not in make.launch(1, "A", "baseline").model_dump(mode="json")
    assert make.plan(gpu_type="H200", layout_why="asked").model_dump(mode="json")["gpu_type"] == "H200"


def test_an_engine_launched_again_ends_all_that_its_pair_had_measured() -> None:
    """One engine at a time: A, B, then A again; B's half is of a launch before and must not pair with the new one."""

    def measured(role: Role, sequence: int) -> list[Record]:
        arm = "baseline" if role == "A" else "persistent"
        return [make.launch(1, role, arm), block(1, role, sequence)]

    whole = [*measured("A", 1), *measured("B", 3)]
    assert Records(records=tuple(whole)).current_blocks() == (whole[1], whole[3])
    again = [*whole, *measured("A", 1)]
    assert Records(records=tuple(again)).current_blocks() == (again[5],)
    complete = [*again, *measured("B", 3)]
    assert Records(records=tuple(complete)).current_blocks() == (complete[5], complete[7])
    of_a_later_pair = block(2, "B", 1)
    assert Records(records=(*whole, of_a_later_pair)).current_blocks()[-1] == of_a_later_pair
