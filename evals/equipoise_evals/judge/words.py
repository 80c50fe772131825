"""What a verdict says in plain words: what happened, how sure that is, what to do.

No sentence says that there is no difference because a test found none, and each number stands with its level. Busy time
is what a decode step takes on the device; the period is what passes from step to step, which a user waits.
"""

from collections.abc import Iterable
from typing import NamedTuple

from equipoise_evals.judge.latency import clock_names
from equipoise_evals.model import (
    FULL_STEPS,
    LOOKS,
    STEPS,
    AccuracyInconclusive,
    AccuracyVerdict,
    Bar,
    Block,
    Cause,
    DecidedAccuracy,
    Equivalent,
    Faster,
    Identical,
    Improved,
    Inconclusive,
    Interval,
    Invalid,
    InvalidReason,
    LatencyContrast,
    LatencyEvidence,
    LatencyInconclusive,
    LatencyVerdict,
    Neutral,
    NonInferior,
    Overall,
    Phase,
    Regression,
    Ship,
    Size,
    TreatmentInactive,
    TreatmentRule,
)

_SIZES: dict[Size, str] = {
    "material": "by more than the margin of {margin}",
    "small": "by less than the margin of {margin}",
    "unclear": "by {probably} than the margin of {margin}",
}
_DECIDED: dict[DecidedAccuracy, str] = {
    "regression": "a regression",
    "improved": "an improvement",
    "non_inferior": "not worse by the margin",
}
AA_DECLARED = "Both arms are meant to be equal (declared A/A). "
_UNBARS: dict[Bar, str] = {
    "dropped_pairs": "find out why launch pairs were not measured whole, and run the comparison again",
    "one_sided_load": "run again where nothing else works beside the engines: load beside one arm cannot be told from "
    "the candidate's effect",
}
FALSE_ALARM = (
    "Ship nothing by this: between equal arms a faster one is chance, or something else that differs between them. Run "
    "it again, and look for what differs if it stays."
)
_CAUSES: dict[Cause, str] = {
    "regression": "it answers fewer questions rightly",
    "slower": "it {verb} slower than the margin allows",
    "output_shift": "its answers differ from the baseline's more than the baseline's differ from themselves",
}
_MENDS: dict[InvalidReason, str] = {
    "missing_answers": "Find the failed requests in the engines' logs, mend their cause and run again.",
    "clock_gap": "Lock the device's clocks or let it cool, and run again.",
    "disturbed": "Give each engine a GPU for itself, by the layout crossover or, on one GPU, alternating: beside each "
    "other engines jump between levels. Or run more launch pairs, which even them out.",
    "attestation": "Check which plugin and which flags the engines really started with, and run again.",
    "device_differs": "Run both arms on the same device, or in a crossover on both in turn, and run again.",
    "sampling_differs": "Let nothing between Equipoise and the engines change a request's parameters, and run again.",
    "cache_differs": "Switch the prefix cache off in both arms (--disable-radix-cache), and run again.",
    "prompt_differs": "Give both arms the same model with the same tokenizer and chat template, and run again.",
    "evidence_missing": "Check that each engine runs the build and the flags that were meant, or declare what does "
    "change, and run again.",
    "order_differs": "Check what wrote these records: Equipoise runs blocks in orders in which a drift cancels. Then "
    "run again.",
    "arms_differ": "Give both arms the same build and flags, or compare them without declaring an A/A, and run again.",
    "no_measurement": "Look into the engines' logs for what kept the steps from being measured, and run again.",
}


_VERBS: dict[Phase, str] = {"decode": "decodes", "prefill": "prefills"}
_GERUNDS: dict[Phase, str] = {"decode": "decoding", "prefill": "prefilling"}
_SAME: dict[TreatmentRule, str] = {
    "fills": "the same fills and allocations per {whole}",
    "declared": "the same kernels, and nothing that was declared to differ does",
    "kernels": "the same kernels, equally often in every {step}",
}


class Words(NamedTuple):
    """The three sentences of a verdict card."""

    headline: str
    how_sure: str
    what_to_do: str


def words(
    overall: Overall,
    latency: LatencyVerdict | None,
    accuracy: AccuracyVerdict | None,
    *,
    declared_aa: bool = False,
    rule: TreatmentRule = "fills",
    phase: Phase = "decode",
) -> Words:
    """The sentences for a verdict.

    ``declared_aa`` says that both arms are meant to be equal, ``rule`` what was compared to see whether they are and
    ``phase`` in what.
    """
    parts = [part for part in (latency_sentence(latency), accuracy_sentence(accuracy)) if part]
    if len(parts) == 1:
        parts.append(f"{'speed' if latency is None else 'accuracy'} was not measured")
    if isinstance(accuracy, Regression):
        parts.reverse()  # What blocks is said first.
    same = _SAME[rule].format(step=STEPS[phase], whole=FULL_STEPS[phase])
    return Words(
        headline=f"{AA_DECLARED if declared_aa else ''}{_headline(overall, parts, same)}",
        how_sure=_how_sure(overall, latency, accuracy),
        what_to_do=FALSE_ALARM
        if declared_aa and isinstance(overall, Ship)
        else _what_to_do(overall, latency, accuracy),
    )


def latency_sentence(verdict: LatencyVerdict | None) -> str:
    """One clause on latency; empty if it was not measured."""
    if verdict is None:
        return ""
    evidence, phase = verdict.evidence, verdict.evidence.phase
    busy = evidence.busy
    where, clocks = "" if busy.batch is None else f" at batch {busy.batch}", _both_clocks(evidence)
    match verdict:
        case Faster():
            probably = "probably more" if busy.effect < -verdict.evidence.margin else "probably less"
            by = _SIZES[verdict.size].format(margin=f"{verdict.evidence.margin:.2%}", probably=probably)
            return f"the candidate {_VERBS[phase]} faster{where}, {by} ({clocks})"
        case Equivalent(measurably_slower=True):
            return (
                f"the candidate is measurably slower{where}, by less than the margin of {verdict.evidence.margin:.2%} "
                f"({clocks})"
            )
        case Equivalent():
            return (
                f"{_GERUNDS[phase]}{where} is equally fast within the margin of {verdict.evidence.margin:.2%} "
                f"({clocks})"
            )
        case LatencyInconclusive():
            return f"{phase} speed{where} is not decided ({verdict.why})"
        case _:
            margin = f"the margin of {evidence.margin:.2%}"
            return f"the candidate {_VERBS[phase]} slower{where}, by more than {margin} ({clocks})"


def accuracy_sentence(verdict: AccuracyVerdict | None) -> str:
    """One clause on accuracy; empty if it was not measured."""
    if verdict is None:
        return ""
    evidence = verdict.evidence
    difference = f"{evidence.difference_pp:+.2f} pp on {evidence.compared or evidence.graded} questions"
    if evidence.missing:
        difference += f", and {evidence.missing} of {evidence.asked} lack{'s' * (evidence.missing == 1)} an answer"
    match verdict:
        case Regression():
            return f"the candidate answers fewer questions rightly ({difference})"
        case Identical():
            return f"all {evidence.graded} answers of both arms are identical, and so are two passes of the baseline"
        case Improved():
            return f"the candidate answers more questions rightly ({difference})"
        case NonInferior():
            return f"accuracy is shown not to be worse by {evidence.margin_pp:g} pp or more ({difference})"
        case _:
            return f"accuracy is not decided ({difference}; {verdict.why})"


def _headline(overall: Overall, parts: list[str], same: str) -> str:
    match overall:
        case TreatmentInactive():
            return f"Both arms ran {same}: the change under test was not active, so this run says nothing about it."
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
        parts.append(how_sure_of_latency(latency.evidence))
    if accuracy is not None:
        parts.append(how_sure_of_accuracy(accuracy))
    return _sentence(parts) if parts else "Nothing was measured."


def how_sure_of_latency(evidence: LatencyEvidence) -> str:
    """One clause: the intervals of both clocks that decide, and the launch pairs they rest on."""
    if evidence.clock == "client":
        return _how_sure_of_client(evidence.client or evidence.period)
    busy, period = evidence.busy, evidence.period
    busy_name, period_name = clock_names(evidence)
    pairs = f"{busy.pairs} launch pair{'s' * (busy.pairs != 1)}"
    if evidence.clock == "imported":
        pairs = f"{busy.pairs} runs of each arm"
    if busy.units == 2:
        pairs += ", which bound little"
    if busy.interval is None or period.interval is None:
        return f"{busy_name} has no interval yet ({pairs})"
    changes = f"{busy_name} changes by {_limits(busy.interval)}"
    if period_name != busy_name:
        changes += f" and {period_name} by {_limits(period.interval)}"
    return f"with {busy.interval.level:.1%} confidence {changes} ({pairs})"


def _how_sure_of_client(contrast: LatencyContrast) -> str:
    rounds = f"{contrast.pairs} round{'s' * (contrast.pairs != 1)} of the same two engines"
    if contrast.interval is None:
        return f"the time per token at the client has no interval yet ({rounds})"
    return (
        f"with {contrast.interval.level:.1%} confidence the time per token at the client changes by "
        f"{_limits(contrast.interval)} over {rounds}, which says nothing of other launches"
    )


def how_sure_of_accuracy(accuracy: AccuracyVerdict) -> str:
    """One clause: the interval of the difference, or that the word rests on identical answers."""
    evidence = accuracy.evidence
    limits = f"{evidence.interval_pp.low:+.2f} to {evidence.interval_pp.high:+.2f} pp"
    if isinstance(accuracy, Identical):
        return (
            f"accuracy rests on identical answers; the scores of {evidence.graded} questions alone would leave open "
            f"{limits} ({evidence.interval_pp.level:.1%} confidence)"
        )
    differ = evidence.only_baseline + evidence.only_candidate
    return (
        f"with {evidence.interval_pp.level:.1%} confidence accuracy changes by {limits} ({differ} of {evidence.graded} "
        f"questions are right in one arm only)"
    )


def _what_to_do(overall: Overall, latency: LatencyVerdict | None, accuracy: AccuracyVerdict | None) -> str:
    match overall:
        case Ship():
            more = "answers more questions rightly" if isinstance(accuracy, Improved) else "its accuracy holds"
            return f"Ship the candidate: it is faster{_how_much(latency)}, and {more}."
        case Neutral():
            return (
                "Decide by other reasons: nothing in speed or accuracy speaks against the candidate, and nothing in "
                "speed speaks for it."
            )
        case Block():
            verb = _VERBS[latency.evidence.phase if latency else "decode"]
            causes = "; ".join(_CAUSES[cause].format(verb=verb) for cause in overall.causes)
            return f"Do not ship the candidate: {causes}."
        case Inconclusive():
            return _how_to_decide(overall, latency, accuracy)
        case TreatmentInactive():
            return (
                "Check that both engines run the build and the flags that were meant; declare an A/A if this was one."
            )
        case _:
            return _MENDS[overall.reason]


def _how_to_decide(overall: Inconclusive, latency: LatencyVerdict | None, accuracy: AccuracyVerdict | None) -> str:
    steps = []
    if isinstance(latency, LatencyInconclusive):
        steps.append(_pairs_to_come(latency))
    if isinstance(accuracy, AccuracyInconclusive):
        steps.append(_passes_to_come(accuracy))
    return _sentence(steps or overall.reasons)


def _passes_to_come(accuracy: AccuracyInconclusive) -> str:
    if accuracy.passes_needed is None:
        return "more questions are needed to decide the accuracy"
    towards = f", as {_DECIDED[accuracy.decides_as]}" if accuracy.decides_as else ""
    return (
        f"no fewer than {accuracy.passes_needed} passes over the questions in each arm would decide the accuracy"
        f"{towards}, if the answers go on differing as they do"
    )


def _pairs_to_come(latency: LatencyInconclusive) -> str:
    if latency.evidence.clock == "client":
        return "to decide the speed let Equipoise launch both engines; rounds of engines that ran already cannot"
    if latency.evidence.bars:
        return "; ".join(_UNBARS[bar] for bar in latency.evidence.bars)
    if latency.evidence.clock == "imported":
        return "to decide the speed let Equipoise launch both engines, or import more runs of each arm"
    return _out_of_reach(latency) if latency.pairs_needed is None else _within_reach(latency)


def _within_reach(latency: LatencyInconclusive) -> str:
    if latency.evidence.busy.launch_sd is None:
        return f"at least {latency.pairs_needed} launch pairs are needed to decide the speed"
    return (
        f"about {latency.pairs_needed} launch pairs in all (pairs_max {latency.pairs_needed}) would probably decide "
        "the speed, if estimate and spread between launches stay as they are"
    )


def _out_of_reach(latency: LatencyInconclusive) -> str:
    if latency.evidence.busy.units < LOOKS[0]:
        return (
            f"{latency.evidence.busy.pairs} launch pairs are too few to tell how many would decide the speed: allow "
            "more (pairs_max), on a quieter machine if there is one"
        )
    return (
        "launches differ too much for any number of pairs within reach: measure on a quieter machine or in longer "
        "blocks, or state a wider margin"
    )


def _percent(effect: float) -> str:
    return f"{100 * effect:+.2f} %"


def _limits(interval: Interval) -> str:
    return f"{_percent(interval.low)} to {_percent(interval.high)}"


def _how_much(latency: LatencyVerdict | None) -> str:
    """By how much at least and at most, where that may be less than the margin."""
    if not isinstance(latency, Faster) or latency.size == "material" or latency.evidence.busy.interval is None:
        return ""
    interval = latency.evidence.busy.interval
    return f", if only by {-100 * interval.high:.2f} to {-100 * interval.low:.2f} %"


def _both_clocks(evidence: LatencyEvidence) -> str:
    names = (name.removeprefix("the ") for name in clock_names(evidence))
    effects = (_percent(evidence.busy.effect), _percent(evidence.period.effect))
    by_name = dict(zip(names, effects, strict=True))
    return ", ".join(f"{effect} {name}" for name, effect in by_name.items())


def _sentence(clauses: Iterable[str]) -> str:
    text = "; ".join(clauses)
    return f"{text[:1].upper()}{text[1:]}."
