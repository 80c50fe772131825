"""Engines that ran already: their client's times decide nothing, answers do, and what nobody has shown is said."""

import pytest
from pydantic import ValidationError

from equipoise_evals.judge import judge
from equipoise_evals.judge.words import how_sure_of_latency
from equipoise_evals.model import ArmPair, ArmSpec, LatencyInconclusive, LaunchRecord, Verdict
from tests.support import records as make
from tests.support.attached import ARMS, client_blocks, launches


def judged(pairs: int = 3, effect: float = -0.05, **changes: object) -> Verdict:
    plan = make.plan(pairs, **{"arms": ARMS} | changes)
    passes = make.equal_passes() if plan.accuracy else []
    records = [*launches(plan, max(pairs, 2)), *passes, *client_blocks(plan, pairs, effect)]
    return judge(make.together([make.questions()], records), plan)


@pytest.mark.parametrize("effect", [-0.3, 0.3])
def test_however_clear_a_clients_times_decide_nothing(effect: float) -> None:
    verdict = judged(effect=effect)
    assert verdict.overall.word == "inconclusive"
    assert "whether the treatment was live has not been shown" in verdict.overall.reasons
    assert isinstance(verdict.latency, LatencyInconclusive)
    assert verdict.latency.pairs_needed is None
    evidence = verdict.latency.evidence
    assert evidence.clock == "client"
    assert any("Times are the client's" in note for note in evidence.notes)
    assert evidence.client is not None
    assert evidence.client.effect == pytest.approx(effect, abs=0.01)
    assert [(one.metric, one.batch) for one in evidence.secondary] == [("client_tpot", 1)]
    assert "busy" not in f"{verdict.headline} {verdict.how_sure} {verdict.what_to_do}"
    assert "rounds of the same two engines, which says nothing of other launches" in verdict.how_sure
    assert "let Equipoise launch both engines" in verdict.what_to_do


def test_one_round_has_no_interval() -> None:
    verdict = judged(pairs=1)
    assert "the time per token at the client has no interval yet (1 round of the same two engines)" in (
        verdict.how_sure.lower()
    )


def test_without_client_timings_the_steps_stand_in() -> None:
    plan = make.plan(arms=ARMS, accuracy=None)
    blocks = [one.model_copy(update={"client": ()}) for one in client_blocks(plan, 3, -0.05)]
    verdict = judge(make.together(launches(plan, 3), blocks), plan)
    assert verdict.latency is not None
    assert verdict.latency.evidence.client is None
    period = verdict.latency.evidence.period.interval
    assert period is not None
    assert f"{100 * period.low:+.2f} %" in how_sure_of_latency(verdict.latency.evidence)


def test_a_regression_of_answers_blocks_all_the_same() -> None:
    plan = make.plan(arms=ARMS, latency=None, accuracy=make.accuracy_plan(40))
    passes = [make.one_pass(pair, role, [role == "A"] * 40) for pair in (1, 2) for role in ("A", "B")]
    verdict = judge(make.together([make.questions(40)], launches(plan, 2), passes), plan)
    assert verdict.overall.word == "block"


def test_a_missing_attestation_is_no_fault_and_a_wrong_one_is() -> None:
    plan = make.plan(arms=ARMS, latency=None)
    right = launches(plan, 2, attested=True)
    assert judge(make.together([make.questions()], right, make.equal_passes()), plan).overall.word == "inconclusive"
    half = [launches(plan, 2)[0], *right[1:]]
    assert judge(make.together([make.questions()], half, make.equal_passes()), plan).overall.word == "inconclusive"
    wrong = [
        one.model_copy(update={"attestation": {"arm": "upstream"}}) if isinstance(one, LaunchRecord) else one
        for one in right
    ]
    overall = judge(make.together([make.questions()], wrong, make.equal_passes()), plan).overall
    assert overall.word == "invalid"
    assert overall.reason == "attestation"


def test_a_launched_engine_without_attestation_stays_a_fault() -> None:
    plan = make.plan(latency=None)
    overall = judge(make.together([make.questions()], launches(plan, 2), make.equal_passes()), plan).overall
    assert overall.word == "invalid"


def test_both_arms_are_attached_to_or_neither() -> None:
    with pytest.raises(ValidationError, match="only then both are timed by the same clock"):
        ArmPair(baseline=ARMS.baseline, candidate=ArmSpec(name="c", scratch="persistent"))
    assert ARMS.attached
    assert not make.plan().arms.attached
    assert ARMS.candidate.differs_from(ARMS.baseline) == ("scratch", "attach")
    with pytest.raises(ValidationError, match="are not put under stress"):
        make.plan(arms=ARMS, stress=True)
    with pytest.raises(ValidationError, match="attach"):
        ArmSpec(name="x", scratch="baseline", attach="ftp://host:1")
