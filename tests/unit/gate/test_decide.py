"""Decisions: the default policy is the overall word, and every departure from it is asked for by name."""

from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest

from equipoise_evals.judge import judge
from equipoise_evals.model import BlockRecord, Record, Role, Verdict
from equipoise_service.cli.exit_codes import OF_VERDICT
from equipoise_service.cli.gating import CODES
from equipoise_service.gate import Policy, decide
from tests.support import records as make

TODAY = date(2026, 11, 30)
NEAR = (-1e-4, 0.0, 1e-4)


def passes(right: dict[Role, int], n: int = 16) -> list[Record]:
    return [make.one_pass(pair, role, [i < k for i in range(n)]) for pair in (1, 2) for role, k in right.items()]


def verdict_of(
    log: float = 0.0,
    *,
    fills: float = 0.0,
    answers: Sequence[Record] | None = None,
    pairs: int = 3,
    slow_at_1: bool = False,
    **changes: Any,
) -> Verdict:
    plan = make.plan(**changes)
    blocks = make.exact_blocks([log + apart for apart in NEAR[:pairs]])
    if slow_at_1:
        slow = make.exact_blocks([0.03 + apart for apart in NEAR[:pairs]])
        blocks = [s if isinstance(s, BlockRecord) and s.batch == 1 else b for b, s in zip(blocks, slow, strict=True)]
    return judge(
        make.together(
            [make.questions(800)],
            make.launches(plan, pairs),
            make.treatment(60, fills),
            make.equal_passes() if answers is None else answers,
            blocks,
        ),
        plan,
    )


def policy(**changes: Any) -> Policy:
    return Policy.model_validate({"version": 1} | changes)


def waiver(check: str, expires: str = "2026-12-31") -> dict[str, str]:
    return {"check": check, "by": "Jane Doe", "reason": "RFC 12", "expires": expires}


WORLDS: dict[str, tuple[Verdict, str]] = {
    "ship": (verdict_of(-0.02), "ship"),
    "neutral": (verdict_of(0.0), "neutral"),
    "slower": (verdict_of(0.02), "block"),
    "regression": (verdict_of(-0.02, answers=passes({"A": 14, "B": 2})), "block"),
    "two pairs": (verdict_of(-0.02, pairs=2), "inconclusive"),
    "slower at batch 1": (verdict_of(-0.02, slow_at_1=True), "inconclusive"),
    "no passes": (verdict_of(-0.02, answers=[]), "inconclusive"),
    "equal fills": (verdict_of(-0.02, fills=60), "treatment_inactive"),
    "lost answers": (
        verdict_of(answers=[make.one_pass(1, "A", [True] * 16), make.one_pass(1, "B", [True] * 16, failed=range(4))]),
        "invalid",
    ),
}


@pytest.mark.parametrize("name", WORLDS)
def test_the_default_policy_is_the_overall_word(name: str) -> None:
    verdict, word = WORLDS[name]
    result = decide(verdict, policy(), TODAY)
    assert verdict.overall.word == word
    assert CODES[result.decision] == OF_VERDICT[word]
    assert result.warnings == ()


def test_speed_alone_can_be_asked_for() -> None:
    only_speed = policy(required=["treatment", "latency"], advisory=["accuracy"])
    result = decide(WORLDS["no passes"][0], only_speed, TODAY)
    assert result.decision == "pass"
    assert result.warnings == ("accuracy (advisory) is undecided: accuracy was not measured",)


def test_a_word_that_is_not_accepted_blocks() -> None:
    only_faster = policy(accept={"latency": ["faster"]})
    assert decide(WORLDS["neutral"][0], only_faster, TODAY).decision == "block"
    assert decide(WORLDS["ship"][0], only_faster, TODAY).decision == "pass"


def test_what_is_undecided_may_be_let_through_and_is_said() -> None:
    result = decide(WORLDS["slower at batch 1"][0], policy(undecided="pass"), TODAY)
    assert result.decision == "pass"
    assert "other_batches is not decided" in result.warnings[0]
    assert "at batch 1 busy time is longer by more than 0.50%" in result.warnings[0]


@pytest.mark.parametrize("name", ["equal fills", "lost answers"])
def test_nothing_lets_a_run_pass_that_cannot_be_judged(name: str) -> None:
    lenient = policy(undecided="pass", waivers=[waiver("latency"), waiver("accuracy"), waiver("outputs")])
    result = decide(WORLDS[name][0], lenient, TODAY)
    assert result.decision == "undecided"
    assert {check.state for check in result.checks} == {"undecided"}


def test_a_waiver_lets_a_failed_check_pass_until_its_last_day() -> None:
    slower = WORLDS["slower"][0]
    both = [waiver("latency", "2026-11-30"), waiver("other_batches", "2026-11-30")]
    waived = decide(slower, policy(waivers=both), TODAY)
    assert waived.decision == "pass"
    assert waived.warnings == (
        "latency (slower) is waived by Jane Doe until 2026-11-30: RFC 12",
        "other_batches (slower) is waived by Jane Doe until 2026-11-30: RFC 12",
    )
    assert [check.waiver is not None for check in waived.checks if check.name == "latency"] == [True]
    expired = decide(slower, policy(waivers=[waiver("latency", "2026-11-29")]), TODAY)
    assert expired.decision == "block"
    assert "expired on 2026-11-29" in expired.warnings[0]


def test_a_waiver_covers_its_own_check_alone() -> None:
    worse = verdict_of(0.02, answers=passes({"A": 14, "B": 2}))
    result = decide(worse, policy(waivers=[waiver("latency")]), TODAY)
    assert result.decision == "block"
    assert {check.name: check.state for check in result.checks}["accuracy"] == "fail"
