"""From a verdict to a decision about a release. Pure: the verdict, the policy and the day decide, and nothing else."""

from collections.abc import Iterator
from datetime import date
from typing import Literal

from equipoise_evals.judge.overall import slower_elsewhere
from equipoise_evals.judge.words import (
    accuracy_sentence,
    how_sure_of_accuracy,
    how_sure_of_latency,
    latency_sentence,
)
from equipoise_evals.model import (
    AccuracyInconclusive,
    AccuracyVerdict,
    Block,
    Frozen,
    Invalid,
    LatencyInconclusive,
    LatencyVerdict,
    TreatmentEvidence,
    TreatmentInactive,
    Verdict,
)
from equipoise_service.gate.policy import CheckName, Policy, Waiver

State = Literal["pass", "fail", "undecided", "waived"]
Decision = Literal["pass", "block", "undecided"]


class Check(Frozen):
    """One thing a release may need.

    Attributes:
        required: Whether it decides, or is only shown.
        word: The verdict's own word for it; empty where there is none.
        detail: One sentence.
        waiver: What let it pass.
    """

    name: CheckName
    required: bool
    state: State
    word: str
    detail: str
    waiver: Waiver | None = None


class GateResult(Frozen):
    """The decision and what it rests on.

    Attributes:
        decision: ``block`` if a required check failed, else ``undecided`` if one is undecided and the policy lets
            that fail, else ``pass``.
        warnings: What a reader must know although the gate passes: waived, undecided but let through, expired waivers.
    """

    decision: Decision
    overall: str
    headline: str
    checks: tuple[Check, ...]
    warnings: tuple[str, ...]


def decide(verdict: Verdict, policy: Policy, today: date) -> GateResult:
    """What this verdict means under this policy on this day (UTC).

    With the default policy the decision is that of the overall word: ship and neutral pass, block blocks, everything
    else is undecided.
    """
    named = set(policy.required) | set(policy.advisory)
    checks = tuple(_waived(check, policy, today) for check in _checks(verdict, policy) if check.name in named)
    required = [check for check in checks if check.required]
    states = {check.state for check in required}
    judged = not isinstance(verdict.overall, Invalid | TreatmentInactive)
    decision: Decision = "pass"
    if "fail" in states:
        decision = "block"
    elif not judged or ("undecided" in states and policy.undecided == "fail"):
        decision = "undecided"
    return GateResult(
        decision=decision,
        overall=verdict.overall.word,
        headline=verdict.headline,
        checks=checks,
        warnings=tuple(_warnings(checks, policy, today)),
    )


def _checks(verdict: Verdict, policy: Policy) -> Iterator[Check]:
    """Every check, before waivers. A run that cannot be judged leaves all of them undecided."""

    def check(name: CheckName, state: State, word: str, detail: str) -> Check:
        return Check(name=name, required=name in policy.required, state=state, word=word, detail=detail)

    if isinstance(verdict.overall, Invalid | TreatmentInactive):
        for name in (*policy.required, *policy.advisory):
            yield check(name, "undecided", verdict.overall.word, verdict.headline)
        return
    yield check("treatment", *_treatment(verdict.treatment))
    yield check("accuracy", *_accuracy(verdict.accuracy, policy))
    shifted = isinstance(verdict.overall, Block) and "output_shift" in verdict.overall.causes
    yield check(
        "outputs",
        "fail" if shifted else "pass",
        "output_shift" if shifted else "",
        "the arms' outputs differ more than an arm's differ from themselves" if shifted else "no shift is confirmed",
    )
    yield check("latency", *_latency(verdict.latency, policy))
    yield check("other_batches", *_other_batches(verdict.latency))


def _accuracy(accuracy: AccuracyVerdict | None, policy: Policy) -> tuple[State, str, str]:
    if accuracy is None:
        return "undecided", "", "accuracy was not measured"
    detail = f"{accuracy_sentence(accuracy)}; {how_sure_of_accuracy(accuracy)}"
    if isinstance(accuracy, AccuracyInconclusive):
        return "undecided", accuracy.word, detail
    return "pass" if accuracy.word in policy.accept.accuracy else "fail", accuracy.word, detail


def _latency(latency: LatencyVerdict | None, policy: Policy) -> tuple[State, str, str]:
    if latency is None:
        return "undecided", "", "latency was not measured"
    detail = f"{latency_sentence(latency)}; {how_sure_of_latency(latency.evidence)}"
    if isinstance(latency, LatencyInconclusive):
        return "undecided", latency.word, detail
    return "pass" if latency.word in policy.accept.latency else "fail", latency.word, detail


def _other_batches(latency: LatencyVerdict | None) -> tuple[State, str, str]:
    if latency is None:
        return "undecided", "", "latency was not measured"
    if slower := slower_elsewhere(latency.evidence):
        return "undecided", "slower", "; ".join(slower)
    others = sorted({contrast.batch for contrast in latency.evidence.secondary if contrast.batch is not None})
    if not others:
        return "pass", "", "no other batch size was timed"
    batches = ", ".join(map(str, others))
    return "pass", "", f"not shown to be slower by more than {latency.evidence.margin:.2%} at batch {batches}"


def _treatment(treatment: TreatmentEvidence | None) -> tuple[State, str, str]:
    if treatment is None:
        return "undecided", "", "whether the treatment was live has not been shown"
    return "pass", "", "the arms ran different code" if treatment.active else "the arms ran the same, as was declared"


def _waived(check: Check, policy: Policy, today: date) -> Check:
    if check.state not in {"fail", "undecided"} or check.word in {"invalid", "treatment_inactive"}:
        return check
    for waiver in policy.waivers:
        if waiver.check == check.name and today <= waiver.expires:
            return check.model_copy(update={"state": "waived", "waiver": waiver})
    return check


def _warnings(checks: tuple[Check, ...], policy: Policy, today: date) -> Iterator[str]:
    for check in checks:
        if check.waiver is not None:
            waiver = check.waiver
            yield (
                f"{check.name} ({check.word or 'not measured'}) is waived by {waiver.by} until {waiver.expires}: "
                f"{waiver.reason}"
            )
        elif check.required and check.state == "undecided" and policy.undecided == "pass":
            yield f"{check.name} is not decided, and the policy lets that pass: {check.detail}"
        elif not check.required and check.state != "pass":
            yield f"{check.name} (advisory) is {check.state}: {check.detail}"
    for waiver in policy.waivers:
        if today > waiver.expires:
            yield f"the waiver of {waiver.check} by {waiver.by} expired on {waiver.expires} and counts no more"
