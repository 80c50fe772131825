"""What a verdict says in plain words: what happened, how sure that is, what to do.

No sentence says that there is no difference because a test found none, and each number stands with its level.
"""

from typing import NamedTuple

from equipoise_evals.model import (
    AccuracyInconclusive,
    AccuracyVerdict,
    Block,
    Equivalent,
    Faster,
    Identical,
    Improved,
    Inconclusive,
    Interval,
    Invalid,
    LatencyInconclusive,
    LatencyVerdict,
    Neutral,
    NonInferior,
    Overall,
    Regression,
    Ship,
    TreatmentInactive,
)


class Words(NamedTuple):
    """The three sentences of a verdict card."""

    headline: str
    how_sure: str
    what_to_do: str


def words(overall: Overall, latency: LatencyVerdict | None, accuracy: AccuracyVerdict | None) -> Words:
    """The sentences for a verdict."""
    parts = [part for part in (latency_sentence(latency), accuracy_sentence(accuracy)) if part]
    return Words(
        headline=_headline(overall, parts),
        how_sure=_how_sure(overall, latency, accuracy),
        what_to_do=_what_to_do(overall, latency, accuracy),
    )


def latency_sentence(verdict: LatencyVerdict | None) -> str:
    """One clause on latency; empty if it was not measured."""
    if verdict is None:
        return ""
    busy, period = verdict.evidence.busy, verdict.evidence.period
    where = f"at batch {busy.batch}"
    match verdict:
        case Faster():
            return (
                f"the candidate decodes faster {where} ({_percent(busy.effect)} busy, {_percent(period.effect)} period)"
            )
        case Equivalent(measurably_slower=True):
            return f"the candidate is measurably slower {where}, by less than {verdict.evidence.margin:.2%}"
        case Equivalent():
            return f"decoding {where} is equivalent within {verdict.evidence.margin:.2%}"
        case LatencyInconclusive():
            return f"decode speed {where} is not decided ({verdict.why})"
        case _:
            return (
                f"the candidate decodes slower {where} ({_percent(busy.effect)} busy, {_percent(period.effect)} period)"
            )


def accuracy_sentence(verdict: AccuracyVerdict | None) -> str:
    """One clause on accuracy; empty if it was not measured."""
    if verdict is None:
        return ""
    evidence = verdict.evidence
    difference = f"{evidence.difference_pp:+.2f} pp on {evidence.graded} questions"
    match verdict:
        case Regression():
            return f"it answers fewer questions rightly ({difference})"
        case Identical():
            return f"all {evidence.graded} answers are identical, as they are between two passes of the baseline"
        case Improved():
            return f"it answers more questions rightly ({difference})"
        case NonInferior():
            return f"accuracy is not worse by {evidence.margin_pp:g} pp ({difference})"
        case _:
            return f"accuracy is not decided ({difference}; {verdict.why})"


def _headline(overall: Overall, parts: list[str]) -> str:
    match overall:
        case TreatmentInactive():
            return (
                "Both arms ran the same fills and allocations per decode step: the change under test was not active, "
                "so this run says nothing about it."
            )
        case Invalid():
            return f"The run cannot be judged: {overall.detail}."
        case _:
            text = "; ".join(parts) or "nothing was measured"
            return f"{overall.word.capitalize()}: {text}."


def _how_sure(overall: Overall, latency: LatencyVerdict | None, accuracy: AccuracyVerdict | None) -> str:
    if isinstance(overall, TreatmentInactive | Invalid):
        return "No statement about speed or accuracy is made."
    parts = []
    if latency is not None:
        busy = latency.evidence.busy
        pairs = f"{busy.pairs} launch pair{'s' * (busy.pairs != 1)}"
        parts.append(
            f"busy time {_range(busy.interval)} from {pairs}"
            if busy.interval
            else f"{pairs}: no interval from fewer than 2"
        )
    if accuracy is not None:
        evidence = accuracy.evidence
        differ = evidence.only_baseline + evidence.only_candidate
        parts.append(
            f"accuracy {evidence.interval_pp.low:+.2f} to {evidence.interval_pp.high:+.2f} pp "
            f"({evidence.interval_pp.level:.1%} interval, {differ} questions differ)"
        )
    return ("; ".join(parts) or "Nothing was measured") + "."


def _what_to_do(overall: Overall, latency: LatencyVerdict | None, accuracy: AccuracyVerdict | None) -> str:
    match overall:
        case Ship():
            return "Ship the candidate."
        case Neutral():
            return "Nothing in speed or accuracy speaks against the candidate, and nothing in speed for it."
        case Block():
            return f"Do not ship: {', '.join(overall.causes).replace('_', ' ')}."
        case Inconclusive():
            return _how_to_decide(overall, latency, accuracy)
        case TreatmentInactive():
            return (
                "Check that both engines run the build and the flags that were meant; declare an A/A if this was one."
            )
        case _:
            return "Mend what is named above and run again."


def _how_to_decide(overall: Inconclusive, latency: LatencyVerdict | None, accuracy: AccuracyVerdict | None) -> str:
    steps = []
    if isinstance(latency, LatencyInconclusive):
        steps.append(
            f"about {latency.pairs_needed} launch pairs would decide the speed, if the estimate stays"
            if latency.pairs_needed
            else "no number of launch pairs within reach decides the speed at this noise"
        )
    if isinstance(accuracy, AccuracyInconclusive):
        steps.append(
            f"about {accuracy.passes_needed} passes would decide the accuracy, if the discordance stays"
            if accuracy.passes_needed
            else "more questions are needed to decide the accuracy"
        )
    text = "; ".join(steps) or "; ".join(overall.reasons)
    return f"{text[:1].upper()}{text[1:]}."


def _percent(effect: float) -> str:
    return f"{100 * effect:+.2f} %"


def _range(interval: Interval) -> str:
    return f"{_percent(interval.low)} to {_percent(interval.high)} ({interval.level:.1%} interval)"
