"""The single checks of a gate. Each passes only on evidence that is there; what was not measured is undecided."""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

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
    LatencyEvidence,
    LatencyInconclusive,
    LatencyVerdict,
    Metric,
    NonInferior,
    Plan,
    Slower,
    TreatmentInactive,
    Verdict,
)
from equipoise_service.gate.policy import CheckName, Policy, Waiver

State = Literal["pass", "fail", "undecided", "waived"]

CLOSE = 1e-9
"""Relative difference between margins that is none: a verdict rounds to 12 significant digits."""


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


class Said(NamedTuple):
    """What a check came to: its state, the verdict's word, one sentence."""

    state: State
    word: str
    detail: str


def checks_of(verdict: Verdict, policy: Policy, plan: Plan | None) -> Iterator[Check]:
    """Every check, before waivers. A run that cannot be judged leaves all of them undecided."""

    def check(name: CheckName, said: Said) -> Check:
        return Check(name=name, required=name in policy.required, **said._asdict())

    if isinstance(verdict.overall, Invalid | TreatmentInactive):
        for name in (*policy.required, *policy.advisory):
            yield check(name, Said("undecided", verdict.overall.word, verdict.headline))
        return
    yield check("treatment", _treatment(verdict, plan))
    yield check("accuracy", _accuracy(verdict.accuracy, policy))
    yield check("outputs", _outputs(verdict))
    yield check("latency", _latency(verdict.latency, policy))
    yield check("other_batches", _other_batches(verdict.latency, policy, plan))


def _treatment(verdict: Verdict, plan: Plan | None) -> Said:
    if verdict.unattested:
        return Said("undecided", "", "results of another tool do not show what ran")
    if verdict.treatment is None:
        return Said("undecided", "", "whether the treatment was live has not been shown")
    # Equal arms are judged at all only where that was declared.
    if not verdict.treatment.active or (plan is not None and plan.declared_aa):
        return Said(
            "undecided",
            "",
            "both arms were meant to be equal (declared A/A), so nothing was compared that could be released; "
            "compare the change itself",
        )
    return Said("pass", "", "the arms ran different code")


def _accuracy(accuracy: AccuracyVerdict | None, policy: Policy) -> Said:
    if accuracy is None:
        return Said("undecided", "", "accuracy was not measured")
    detail = f"{accuracy_sentence(accuracy)}; {how_sure_of_accuracy(accuracy)}"
    measured, wanted = accuracy.evidence.margin_pp, policy.wanted_accuracy_pp
    if isinstance(accuracy, AccuracyInconclusive):
        return Said("undecided", accuracy.word, detail)
    # No other word rests on the margin.
    if isinstance(accuracy, NonInferior) and _looser(measured, wanted):
        return Said("undecided", accuracy.word, f"{_other_margin(f'{measured:g} pp', f'{wanted:g} pp')}; {detail}")
    return Said("pass" if accuracy.word in policy.accept.accuracy else "fail", accuracy.word, detail)


def _outputs(verdict: Verdict) -> Said:
    if isinstance(verdict.overall, Block) and "output_shift" in verdict.overall.causes:
        return Said("fail", "output_shift", "the arms' outputs differ more than an arm's differ from themselves")
    if verdict.accuracy is None:
        return Said("undecided", "", "no answers of both arms were compared")
    evidence = verdict.accuracy.evidence
    if evidence.outputs_equal:
        return Said("pass", "", "all outputs of both arms are equal")
    if evidence.output_shift_p is None:
        return Said(
            "undecided", "", "outputs differ, and without two passes of each arm nothing says by how much too far"
        )
    return Said("pass", "", "no shift is confirmed")


def _latency(latency: LatencyVerdict | None, policy: Policy) -> Said:
    if latency is None:
        return Said("undecided", "", "latency was not measured")
    detail = f"{latency_sentence(latency)}; {how_sure_of_latency(latency.evidence)}"
    if isinstance(latency, LatencyInconclusive):
        return Said("undecided", latency.word, detail)
    measured, wanted = latency.evidence.margin, policy.wanted_latency
    accepted = latency.word in policy.accept.latency
    # Slower by more than a wide margin is slower by more than a narrow one, and for the other words it is the reverse.
    implied = not _looser(wanted, measured) if isinstance(latency, Slower) else not _looser(measured, wanted)
    if not implied or (not accepted and _looser(wanted, measured)):
        return Said("undecided", latency.word, f"{_other_margin(f'{measured:.2%}', f'{wanted:.2%}')}; {detail}")
    return Said("pass" if accepted else "fail", latency.word, detail)


def _other_batches(latency: LatencyVerdict | None, policy: Policy, plan: Plan | None) -> Said:
    if latency is None:
        return Said("undecided", "", "latency was not measured")
    evidence = latency.evidence
    if slower := slower_elsewhere(evidence):
        return Said("undecided", "slower", "; ".join(slower))
    primary = evidence.busy.batch
    seen = {one.batch for one in evidence.secondary if one.batch is not None}
    planned = set(plan.latency.batch_sizes) if plan and plan.latency else set()
    others = sorted((seen | planned) - {primary})
    if not others:
        return Said("pass", "", "no other batch size was to be timed")
    if lacking := [batch for batch in others if not _is_bounded(evidence, batch)]:
        return Said("undecided", "", f"at batch {_listed(lacking)} nothing bounds how much slower it may be")
    if _looser(evidence.margin, policy.wanted_latency):
        return Said("undecided", "", _other_margin(f"{evidence.margin:.2%}", f"{policy.wanted_latency:.2%}"))
    return Said("pass", "", f"not shown to be slower by more than {evidence.margin:.2%} at batch {_listed(others)}")


def _is_bounded(evidence: LatencyEvidence, batch: int) -> bool:
    """Whether each clock that decides has an interval there, and a p of being slower."""
    found = {one.metric: one for one in evidence.secondary if one.batch == batch}
    clocks: tuple[Metric, ...] = ("busy", "period") if evidence.clock == "engine" else ("client_tpot",)
    return all(
        (one := found.get(clock)) is not None and one.interval is not None and one.holm_p is not None
        for clock in clocks
    )


def _looser(margin: float, than: float) -> bool:
    """Whether it allows more; what is no number allows anything."""
    return not (margin <= than or math.isclose(margin, than, rel_tol=CLOSE))


def _other_margin(measured: str, wanted: str) -> str:
    return f"judged with a margin of {measured}, which does not tell what holds at the policy's {wanted}: run it again"


def _listed(batches: list[int]) -> str:
    return ", ".join(map(str, batches))
