"""The overall word, from the words of the halves. Validity stands first, then whether the treatment was live."""

from typing import get_args

from equipoise_evals.judge.accuracy import output_shift_confirmed
from equipoise_evals.judge.latency import clock_names
from equipoise_evals.model import (
    AccuracyInconclusive,
    AccuracyVerdict,
    Block,
    Cause,
    EngineMetric,
    Equivalent,
    Faster,
    Identical,
    Improved,
    Inconclusive,
    Invalid,
    LatencyEvidence,
    LatencyInconclusive,
    LatencyVerdict,
    Neutral,
    NonInferior,
    Overall,
    Plan,
    Regression,
    Ship,
    Slower,
    TreatmentEvidence,
    TreatmentInactive,
)


def judge_overall(
    plan: Plan,
    invalid: Invalid | None,
    treatment: TreatmentEvidence | None,
    *,
    accuracy: AccuracyVerdict | None,
    latency: LatencyVerdict | None,
) -> Overall:
    """The overall word. A half that was not measured can hold nothing up, so it never ships."""
    if invalid:
        return invalid
    if treatment and not treatment.active and not plan.declared_aa:
        return TreatmentInactive()
    causes = _causes(plan, accuracy, latency)
    if causes:
        return Block(causes=causes)
    open_questions = _open_questions(plan, treatment, accuracy, latency)
    if open_questions:
        return Inconclusive(reasons=open_questions)
    return Ship() if isinstance(latency, Faster) else Neutral()


def _causes(plan: Plan, accuracy: AccuracyVerdict | None, latency: LatencyVerdict | None) -> tuple[Cause, ...]:
    causes: list[Cause] = []
    if isinstance(accuracy, Regression):
        causes.append("regression")
    if isinstance(latency, Slower):
        causes.append("slower")
    if accuracy is not None and output_shift_confirmed(accuracy.evidence, plan.alpha):
        causes.append("output_shift")
    return tuple(causes)


def _open_questions(
    plan: Plan,
    treatment: TreatmentEvidence | None,
    accuracy: AccuracyVerdict | None,
    latency: LatencyVerdict | None,
) -> tuple[str, ...]:
    """What still stands between the evidence and ``ship`` or ``neutral``, one sentence each."""
    reasons = []
    if treatment is None:
        reasons.append("whether the treatment was live has not been shown")
    match accuracy:
        case Identical() | Improved() | NonInferior():
            pass
        case AccuracyInconclusive():
            reasons.append(f"accuracy: {accuracy.why}")
        case _:
            reasons.append("accuracy was not measured" if plan.accuracy is None else "accuracy has no finished pass")
    match latency:
        case Faster() | Equivalent():
            reasons.extend(slower_elsewhere(latency.evidence))
            reasons.extend(_open_elsewhere(plan, latency.evidence))
        case LatencyInconclusive():
            reasons.append(f"latency: {latency.why}")
        case _:
            reasons.append("latency was not measured" if plan.latency is None else "latency has no finished pair")
    return tuple(reasons)


def slower_elsewhere(evidence: LatencyEvidence) -> list[str]:
    """Secondary batch sizes that are slower by more than the margin, after Holm's correction."""
    names = dict(zip(get_args(EngineMetric), clock_names(evidence), strict=True))
    return [
        f"at batch {contrast.batch} {names.get(contrast.metric, contrast.metric)} is longer by more than "
        f"{evidence.margin:.2%}"
        for contrast in evidence.secondary
        if contrast.holm_p is not None
        and contrast.interval is not None
        and contrast.holm_p < (1 - contrast.interval.level) / 2
    ]


def _open_elsewhere(plan: Plan, evidence: LatencyEvidence) -> list[str]:
    """Planned batch sizes of which nothing is shown: without an interval, or not measured in each launch pair."""
    planned = plan.latency.batch_sizes if plan.latency else ()
    bounded = {(contrast.batch, contrast.metric) for contrast in evidence.secondary if contrast.interval is not None}
    return [
        f"at batch {batch} it is not shown that the candidate is not slower: not every launch pair measured it, or "
        "they bound nothing"
        for batch in planned
        if evidence.clock == "engine"
        and batch != evidence.busy.batch
        and not bounded.issuperset((batch, metric) for metric in get_args(EngineMetric))
    ]
