"""Nothing unmeasured passes: each check is undecided where what it rests on is missing, or was asked otherwise."""

from typing import Any

import pytest

from equipoise_evals.model import ROLES, Block, Plan, TreatmentEvidence, Verdict
from equipoise_service.gate import Check, GateResult, Policy, decide
from tests.support import records as make
from tests.unit.gate.test_decide import TODAY, WORLDS, passes, policy, verdict_of, waiver

STATED = {"margin_latency": 0.005, "margin_accuracy_pp": 1.0}
WIDE: dict[str, Any] = {
    "latency": make.LATENCY.model_copy(update={"margin": 0.5}),
    "accuracy": make.accuracy_plan(margin_pp=50.0),
}
NARROW: dict[str, Any] = {
    "latency": make.LATENCY.model_copy(update={"margin": 0.0005}),
    "accuracy": make.accuracy_plan(margin_pp=0.1),
}
ONE_PASS = [make.one_pass(1, "A", [True] * 16), make.one_pass(1, "B", [True] * 16, style={3: "so many "})]
SHIP, SLOW_AT_1 = WORLDS["ship"][0], WORLDS["slower at batch 1"][0]
WORDED = [make.one_pass(pair, role, [True] * 800, style={pair: "so many "}) for pair in (1, 2) for role in ROLES]
NOT_INFERIOR = verdict_of(-0.02, answers=WORDED, accuracy=make.accuracy_plan(800))


def check(result: GateResult, name: str) -> Check:
    return next(one for one in result.checks if one.name == name)


def changed(verdict: Verdict, **evidence: Any) -> Verdict:
    """The verdict with other evidence of its latency."""
    assert verdict.latency is not None
    other = verdict.latency.evidence.model_copy(update=evidence)
    return verdict.model_copy(update={"latency": verdict.latency.model_copy(update={"evidence": other})})


def without_intervals(verdict: Verdict) -> Verdict:
    assert verdict.latency is not None
    bare = tuple(one.model_copy(update={"interval": None}) for one in verdict.latency.evidence.secondary)
    return changed(verdict, secondary=bare)


def without_one_clock(verdict: Verdict) -> Verdict:
    assert verdict.latency is not None
    return changed(verdict, secondary=verdict.latency.evidence.secondary[:1])


def equal_arms(verdict: Verdict) -> Verdict:
    """As it would be of a declared A/A."""
    same = TreatmentEvidence(activity="CPU", active=False, baseline_per_step={}, candidate_per_step={})
    return verdict.model_copy(update={"treatment": same})


AA = make.plan(declared_aa=True)

UNMEASURED: dict[str, tuple[str, Verdict, Plan]] = {
    "no trace": ("treatment", SHIP.model_copy(update={"treatment": None}), make.plan()),
    "equal arms": ("treatment", equal_arms(SHIP), AA),
    "equal arms, by the evidence alone": ("treatment", equal_arms(SHIP), make.plan()),
    "a declared A/A whose arms differ": ("treatment", SHIP, AA),
    "results of another tool": ("treatment", SHIP.model_copy(update={"unattested": True}), make.plan()),
    "no answers asked": ("accuracy", verdict_of(-0.02, accuracy=None, answers=[]), make.plan(accuracy=None)),
    "no answers given": ("accuracy", WORLDS["no passes"][0], make.plan()),
    "answers that decide nothing": ("accuracy", verdict_of(-0.02, answers=ONE_PASS), make.plan()),
    "no outputs asked": ("outputs", verdict_of(-0.02, accuracy=None, answers=[]), make.plan(accuracy=None)),
    "no outputs given": ("outputs", WORLDS["no passes"][0], make.plan()),
    "one pass whose outputs differ": ("outputs", verdict_of(-0.02, answers=ONE_PASS), make.plan()),
    "no times asked": ("latency", SHIP.model_copy(update={"latency": None}), make.plan(latency=None)),
    "times that decide nothing": ("latency", WORLDS["two pairs"][0], make.plan()),
    "no times at any batch": ("other_batches", SHIP.model_copy(update={"latency": None}), make.plan(latency=None)),
    "the other batch lost": ("other_batches", changed(SHIP, secondary=()), make.plan()),
    "the other batch without intervals": ("other_batches", without_intervals(SHIP), make.plan()),
    "the other batch by one clock": ("other_batches", without_one_clock(SHIP), make.plan()),
    "slower at the other batch": ("other_batches", SLOW_AT_1, make.plan()),
    "wide: faster": ("latency", verdict_of(-0.02, **WIDE), make.plan(**WIDE)),
    "wide: equivalent": ("latency", verdict_of(0.02, **WIDE), make.plan(**WIDE)),
    "wide: not inferior": ("accuracy", verdict_of(answers=passes({"A": 12, "B": 10}), **WIDE), make.plan(**WIDE)),
    "wide: other batches": ("other_batches", verdict_of(-0.02, **WIDE), make.plan(**WIDE)),
    "narrow: slower": ("latency", verdict_of(0.003, **NARROW), make.plan(**NARROW)),
    "no number for a margin": ("latency", changed(SHIP, margin=float("nan")), make.plan()),
}


@pytest.mark.parametrize("margins", [STATED, {}], ids=["margins stated", "margins left out"])
@pytest.mark.parametrize("name", UNMEASURED)
def test_nothing_unmeasured_passes(name: str, margins: dict[str, float]) -> None:
    concerned, verdict, plan = UNMEASURED[name]
    result = decide(verdict, policy(**margins), TODAY, plan)
    assert check(result, concerned).state == "undecided"
    assert check(result, concerned).detail
    assert result.decision == "undecided"
    alone = policy(required=["treatment", *({concerned} - {"treatment"})], **margins)
    assert decide(verdict, alone, TODAY, plan).decision == "undecided"


@pytest.mark.parametrize("name", [name for name, (concerned, _, _) in UNMEASURED.items() if concerned == "treatment"])
def test_nothing_lets_an_open_treatment_pass(name: str) -> None:
    _, verdict, plan = UNMEASURED[name]
    waived = [waiver(one) for one in ("accuracy", "outputs", "latency", "other_batches")]
    result = decide(verdict, policy(undecided="pass", waivers=waived), TODAY, plan)
    assert result.decision == "undecided"
    assert not any("lets that pass" in warning for warning in result.warnings)


def test_a_declared_aa_says_that_nothing_could_be_released() -> None:
    result = decide(equal_arms(SHIP), policy(), TODAY, AA)
    assert "declared A/A" in check(result, "treatment").detail


def test_a_margin_that_was_looser_says_what_to_do() -> None:
    detail = check(decide(verdict_of(0.02, **WIDE), policy(), TODAY), "latency").detail
    assert "judged with a margin of 50.00%" in detail
    assert "at the policy's 0.50%: run it again" in detail


HELD: dict[str, tuple[str, str, Verdict, Policy]] = {
    "faster, narrow": ("latency", "pass", verdict_of(-0.02, **NARROW), policy()),
    "equivalent, narrower than asked": ("latency", "pass", verdict_of(0.0), policy(margin_latency=0.01)),
    "slower, wide": ("latency", "fail", verdict_of(0.02), policy(margin_latency=0.001)),
    "equivalent and only faster accepted, narrow": (
        "latency", "undecided", verdict_of(0.0), policy(margin_latency=0.01, accept={"latency": ["faster"]}),
    ),
    "a regression whatever the margin": (
        "accuracy", "fail", verdict_of(answers=passes({"A": 14, "B": 2}), **WIDE), policy(),
    ),
    "identical whatever the margin": ("accuracy", "pass", verdict_of(-0.02, **WIDE), policy()),
    "not inferior, narrower than asked": ("accuracy", "pass", NOT_INFERIOR, policy(margin_accuracy_pp=2.0)),
    "other batches, narrower than asked": ("other_batches", "pass", verdict_of(0.0), policy(margin_latency=0.01)),
    "equal outputs of one pass": (
        "outputs", "pass",
        verdict_of(
            answers=[make.one_pass(1, role, [True]) for role in ROLES], accuracy=make.accuracy_plan(1, passes_max=1)
        ),
        policy(),
    ),
}  # fmt: skip
"""Words that hold at the policy's margin though they were found at another."""


@pytest.mark.parametrize("name", HELD)
def test_a_word_holds_where_its_margin_implies_it(name: str) -> None:
    concerned, state, verdict, held_to = HELD[name]
    assert check(decide(verdict, held_to, TODAY, make.plan()), concerned).state == state


def test_a_confirmed_shift_of_outputs_fails_whatever_else_holds() -> None:
    shifted = WORLDS["slower"][0].model_copy(update={"overall": Block(causes=("output_shift",))})
    result = decide(shifted, policy(), TODAY, make.plan())
    assert (check(result, "outputs").state, result.decision) == ("fail", "block")


def test_one_batch_size_leaves_no_other_to_miss() -> None:
    single: dict[str, Any] = {"latency": make.LATENCY.model_copy(update={"batch_sizes": (16,)})}
    only_16 = changed(SHIP, secondary=())
    result = decide(only_16, policy(), TODAY, make.plan(**single))
    assert (check(result, "other_batches").state, result.decision) == ("pass", "pass")
