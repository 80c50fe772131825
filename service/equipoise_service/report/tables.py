"""The numbers of a verdict as rows: one list that the Markdown report, the CSV and the terminal all show."""

from collections.abc import Iterator
from typing import NamedTuple

from equipoise_evals.model import (
    FULL_STEPS,
    AccuracyEvidence,
    AccuracyVerdict,
    Faster,
    Interval,
    Invalid,
    LatencyContrast,
    LatencyEvidence,
    LatencyVerdict,
    Metric,
    Phase,
    Size,
    TimedBy,
    TreatmentEvidence,
    TreatmentInactive,
    Verdict,
)

METRIC_NAMES: dict[Metric, str] = {
    "busy": "busy (device works on a step)",
    "period": "period (step to step)",
    "client_tpot": "time per token at the client",
    "client_ttft": "time to first token at the client",
}
CLOCKS: dict[Metric, str] = {"busy": "busy", "period": "period", "client_tpot": "client", "client_ttft": "first token"}
"""For tables that have little room."""
PREFILL_NAMES: dict[Metric, str] = {
    "busy": "prefill (engine works on a prompt)", "period": "time to first token at the client",
}  # fmt: skip
PREFILL_CLOCKS: dict[Metric, str] = {"busy": "prefill", "period": "first token"}
SIZES: dict[Size, str] = {
    "material": "by more than the margin",
    "small": "by less than the margin",
    "unclear": "perhaps by less than the margin",
}
PP = "percentage points"


class Row(NamedTuple):
    """One number with what it means.

    Attributes:
        section: ``latency``, ``accuracy``, ``treatment`` or ``cost``.
        name: What it is.
        batch: Batch size, where it belongs to one.
        value: The estimate; None if there is none.
        low: Lower limit of its interval.
        high: Upper limit.
        level: Two-sided confidence of the interval.
        unit: Unit of value and limits.
    """

    section: str
    name: str
    batch: int | None
    value: float | None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    unit: str = ""


IMPORTED_CLOCKS: dict[Metric, str] = {"busy": "per token", "period": "end to end"}


def metric_names(phase: Phase) -> dict[Metric, str]:
    """What each metric is, by what was timed."""
    return METRIC_NAMES if phase == "decode" else METRIC_NAMES | PREFILL_NAMES


def clocks_of(phase: Phase, clock: TimedBy = "engine") -> dict[Metric, str]:
    """The same in a word."""
    if clock == "imported":
        return CLOCKS | IMPORTED_CLOCKS
    return CLOCKS if phase == "decode" else CLOCKS | PREFILL_CLOCKS


def rows(verdict: Verdict) -> Iterator[Row]:
    """Every number of a verdict."""
    if verdict.latency is not None:
        yield from latency_rows(verdict.latency.evidence)
    if verdict.accuracy is not None:
        yield from accuracy_rows(verdict.accuracy.evidence)
    if verdict.treatment is not None:
        for name, counts in treatment_counts(verdict.treatment).items():
            for arm, count in zip(("baseline", "candidate"), counts, strict=True):
                yield Row("treatment", f"{name}, {arm}", None, count, unit=f"per {FULL_STEPS[verdict.treatment.phase]}")
    yield Row("cost", "time on the device", None, verdict.cost.device_seconds, unit="s")
    yield Row("cost", "launch pairs", None, verdict.cost.launch_pairs)


def contrasts(evidence: LatencyEvidence) -> Iterator[tuple[str, LatencyContrast]]:
    """Every contrast with its part in the decision, the primary batch size first.

    Where the clock is the client's, the engines' clocks said nothing and are not shown.
    """
    if evidence.clock == "client":
        if evidence.client is not None:
            yield "none", evidence.client
        for contrast in evidence.secondary:
            yield "none", contrast
        return
    yield "primary", evidence.busy
    yield "primary", evidence.period
    if evidence.client is not None:
        yield "beside", evidence.client
    for contrast in evidence.secondary:
        yield "secondary", contrast


def primary_contrasts(evidence: LatencyEvidence) -> list[LatencyContrast]:
    """Those of ``contrasts`` at the primary batch size; none where a client's clock has recorded nothing."""
    return [contrast for _, contrast in contrasts(evidence) if contrast.batch == evidence.busy.batch]


def latency_rows(evidence: LatencyEvidence) -> Iterator[Row]:
    """Effects in percent, means in microseconds."""
    for _, contrast in contrasts(evidence):
        metric, batch = metric_names(evidence.phase)[contrast.metric], contrast.batch
        yield Row("latency", f"{metric}, effect", batch, 100 * contrast.effect, *percent(contrast.interval), "%")
        yield Row("latency", f"{metric}, effect on medians", batch, 100 * contrast.median_effect, unit="%")
        yield Row("latency", f"{metric}, baseline", batch, contrast.baseline_us, unit="us")
        yield Row("latency", f"{metric}, candidate", batch, contrast.candidate_us, unit="us")
    if (goodput := evidence.goodput) is not None:
        interval = goodput.interval_pp
        low, high, level = (interval.low, interval.high, interval.level) if interval else (None, None, None)
        name, difference = "requests within the SLO, difference", goodput.difference_pp
        yield Row("latency", name, goodput.batch, difference, low, high, level, PP)
        for arm, share, per_s in (
            ("baseline", goodput.baseline_share, goodput.baseline_per_s),
            ("candidate", goodput.candidate_share, goodput.candidate_per_s),
        ):
            yield Row("latency", f"requests within the SLO, {arm}", goodput.batch, 100 * share, unit="%")
            yield Row("latency", f"goodput, {arm}", goodput.batch, per_s, unit="requests/s")


def accuracy_rows(evidence: AccuracyEvidence) -> Iterator[Row]:
    """The difference with its interval, and the counts of the declared pair of passes."""
    interval = evidence.interval_pp
    yield Row(
        "accuracy", "candidate minus baseline", None, evidence.difference_pp,
        interval.low, interval.high, interval.level, PP,
    )  # fmt: skip
    yield Row("accuracy", "one-sided lower limit", None, evidence.lower_pp, unit=PP)
    yield Row("accuracy", "mid-p of the discordant questions", None, evidence.p_value)
    for name in ("asked", "graded", "missing", "both_correct", "only_baseline", "only_candidate", "neither"):
        yield Row("accuracy", name.replace("_", " "), None, getattr(evidence, name), unit="questions")
    for name, share in sorted(evidence.matches.items()):
        yield Row("accuracy", f"identical texts {name}", None, 100 * share, unit="%")


def word_of(half: LatencyVerdict | AccuracyVerdict, verdict: Verdict) -> str:
    """The word of one half as it is read; where the run cannot be judged, its numbers are for diagnosis only."""
    if not is_judged(verdict):
        return "not judged, for diagnosis only"
    word = half.word.replace("_", " ")
    return f"{word}, {SIZES[half.size]}" if isinstance(half, Faster) else word


def is_judged(verdict: Verdict) -> bool:
    """Whether the run's numbers prove anything."""
    return not isinstance(verdict.overall, Invalid | TreatmentInactive)


def treatment_state(treatment: TreatmentEvidence, *, declared_aa: bool) -> str:
    """Whether the change under test was live."""
    if treatment.active:
        return "active"
    return "none, as declared (A/A)" if declared_aa else "inactive"


def treatment_counts(treatment: TreatmentEvidence) -> dict[str, tuple[float, float]]:
    """Counts per step or prefill, baseline and candidate, of every kernel or operator that the verdict names."""
    baseline, candidate = treatment.baseline_per_step, treatment.candidate_per_step
    return {name: (baseline[name], candidate[name]) for name in sorted(baseline)}


def nothing_counted(treatment: TreatmentEvidence) -> str:
    """What an empty list of counts means."""
    if treatment.rule == "fills":
        return "No fill and no allocation was counted in either arm."
    return "No kernel and no operator is counted differently often in the two arms."


def claims(treatment: TreatmentEvidence) -> list[tuple[str, str, str]]:
    """Declared evidence, whether it appeared, and what was seen."""
    return [(claim.declared, "appeared" if claim.shown else "missing", claim.seen) for claim in treatment.claims]


def goodput_sentence(evidence: LatencyEvidence) -> str | None:
    """How many requests met the stated objective; None where none was stated."""
    goodput = evidence.goodput
    if goodput is None:
        return None
    slo = " and ".join(
        f"{name} up to {limit:g} ms"
        for name, limit in (("first token", goodput.slo.ttft_ms), ("time per token", goodput.slo.tpot_ms))
        if limit is not None
    )
    interval = goodput.interval_pp
    limits = (
        "" if interval is None else f", {interval.level:.0%} interval {interval.low:+.2f} to {interval.high:+.2f} pp"
    )
    return (
        f"Goodput at batch {goodput.batch} ({slo}): {goodput.baseline_share:.1%} of the baseline's requests and "
        f"{goodput.candidate_share:.1%} of the candidate's met it ({goodput.difference_pp:+.2f} pp{limits}), "
        f"{goodput.baseline_per_s:.3g} and {goodput.candidate_per_s:.3g} a second. It decides nothing."
    )


def percent(interval: Interval | None) -> tuple[float | None, float | None, float | None]:
    """An interval of a relative effect in percent, with its level; three times None without one."""
    return (None, None, None) if interval is None else (100 * interval.low, 100 * interval.high, interval.level)


def pdl_sentence(treatment: TreatmentEvidence) -> str | None:
    """Whether a fill stands between PDL-linked kernels; None on a CPU, which has no such links."""
    if treatment.activity == "CPU":
        return None
    baseline, candidate = treatment.baseline_pdl, treatment.candidate_pdl
    if baseline is None or candidate is None:
        said = "not recorded"
    elif not baseline.links_per_step and not candidate.links_per_step:
        said = "not exercised by this model"
    else:
        said = " and ".join(
            f"{one.fills_between_per_step:g} per {FULL_STEPS[treatment.phase]} in {one.links_per_step:g} links ({arm})"
            for arm, one in (("baseline", baseline), ("candidate", candidate))
        )
    return f"Fills between PDL-linked kernels: {said}."
