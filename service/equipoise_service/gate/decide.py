"""From a verdict to a decision about a release. Pure: the verdict, the policy and the day decide, and nothing else."""

from collections.abc import Iterator
from datetime import date
from typing import Literal

from equipoise_evals.model import Frozen, Invalid, Plan, TreatmentInactive, Verdict
from equipoise_service.gate.checks import Check, checks_of
from equipoise_service.gate.policy import Policy

Decision = Literal["pass", "block", "undecided"]


class GateResult(Frozen):
    """The decision and what it rests on.

    Attributes:
        decision: ``block`` if a required check failed, else ``undecided`` if one is undecided and the policy lets
            that fail, or if it is the treatment, else ``pass``.
        warnings: What a reader must know although the gate passes: waived, undecided but let through, expired waivers.
    """

    decision: Decision
    overall: str
    headline: str
    checks: tuple[Check, ...]
    warnings: tuple[str, ...]


def decide(verdict: Verdict, policy: Policy, today: date, plan: Plan | None = None) -> GateResult:
    """What this verdict means under this policy on this day (UTC).

    With the default policy the decision is that of the overall word: ship and neutral pass, block blocks, everything
    else is undecided. A declared A/A never passes, whatever its word.

    Args:
        verdict: What was concluded.
        policy: What a release needs.
        today: Decides which waivers count.
        plan: What was to be measured; without it, what is missing altogether is not missed.
    """
    named = set(policy.required) | set(policy.advisory)
    checks = tuple(_waived(check, policy, today) for check in checks_of(verdict, policy, plan) if check.name in named)
    required = [check for check in checks if check.required]
    states = {check.state for check in required}
    judged = not isinstance(verdict.overall, Invalid | TreatmentInactive)
    shown = any(check.name == "treatment" and check.state == "pass" for check in required)
    decision: Decision = "pass"
    if "fail" in states:
        decision = "block"
    elif not judged or not shown or ("undecided" in states and policy.undecided == "fail"):
        decision = "undecided"
    return GateResult(
        decision=decision,
        overall=verdict.overall.word,
        headline=verdict.headline,
        checks=checks,
        warnings=tuple(_warnings(checks, policy, today, passes=decision == "pass")),
    )


def _waived(check: Check, policy: Policy, today: date) -> Check:
    if check.state not in {"fail", "undecided"} or check.word in {"invalid", "treatment_inactive"}:
        return check
    for waiver in policy.waivers:
        if waiver.check == check.name and today <= waiver.expires:
            return check.model_copy(update={"state": "waived", "waiver": waiver})
    return check


def _warnings(checks: tuple[Check, ...], policy: Policy, today: date, *, passes: bool) -> Iterator[str]:
    for check in checks:
        if check.waiver is not None:
            waiver = check.waiver
            yield (
                f"{check.name} ({check.word or 'not measured'}) is waived by {waiver.by} until {waiver.expires}: "
                f"{waiver.reason}"
            )
        elif check.required and check.state == "undecided" and passes:
            yield f"{check.name} is not decided, and the policy lets that pass: {check.detail}"
        elif not check.required and check.state != "pass":
            yield f"{check.name} (advisory) is {check.state}: {check.detail}"
    for waiver in policy.waivers:
        if today > waiver.expires:
            yield f"the waiver of {waiver.check} by {waiver.by} expired on {waiver.expires} and counts no more"
