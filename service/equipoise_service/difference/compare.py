"""The difference of two reports. Pure: the same two reports give the same bytes, and nothing is measured or judged."""

import math
from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from equipoise_evals.model import (
    ROLE_NAMES,
    ROLES,
    Frozen,
    Interval,
    Invalid,
    LatencyContrast,
    Metric,
    ModelRef,
    Part,
    Phase,
    TreatmentInactive,
    Verdict,
)
from equipoise_evals.stats.latency import effect_difference
from equipoise_service.difference.changes import Change, changes
from equipoise_service.errors import NotComparable
from equipoise_service.report import Report
from equipoise_service.report.tables import Row, contrasts, rows

CONFIDENCE = 0.95


class Side(Frozen):
    """One of the two, for the reader."""

    comparison_id: str
    created_at: datetime
    model: str
    word: str
    headline: str


class Number(Frozen):
    """A number with its interval, where it has one."""

    value: float | None
    low: float | None
    high: float | None
    level: float | None


class NumberChange(Frozen):
    """A number of the result that is another; None where one of the two has no such number."""

    section: str
    name: str
    batch: int | None
    unit: str
    first: Number | None
    second: Number | None


class EffectShift(Frozen):
    """How far a latency effect of the second is from that of the first.

    Attributes:
        shift: Ratio of the second's candidate-to-baseline ratio to the first's, minus 1.
        interval: Welch's interval of it over launch pairs of both, at ``CONFIDENCE``, not adjusted for looks; None
            where one of them has fewer than two pairs.
    """

    metric: Metric
    batch: int | None
    first: float
    second: float
    shift: float
    interval: Interval | None


class Difference(Frozen):
    """What differs between two finished comparisons. What is not listed is equal.

    Attributes:
        setup: Places of the plan.
        engines: What the arms' engines said they are.
        words: Words of the verdict.
        numbers: Numbers of the verdict, in the halves that can be compared.
        effects: Latency effects that both measured; none where that half cannot be compared.
        not_compared: Why a half cannot be compared, by half.
        phase: What ``effects`` are of; both timed the same.
    """

    schema_version: Literal[1] = 1
    first: Side
    second: Side
    setup: tuple[Change, ...]
    engines: tuple[Change, ...]
    words: tuple[Change, ...]
    numbers: tuple[NumberChange, ...]
    effects: tuple[EffectShift, ...]
    not_compared: dict[Part, tuple[str, ...]]
    phase: Phase = "decode"


def difference_of(first: Report, second: Report) -> Difference:
    """What differs between two reports.

    Raises:
        NotComparable: They are of one comparison or of two models, or no half of them can be compared; says why.
    """
    if first.comparison_id == second.comparison_id:
        raise NotComparable(["both are the same comparison"])
    models = (first.plan.model, second.plan.model)
    if not _same_model(*models):
        raise NotComparable([f"they measured different models, {models[0].name} and {models[1].name}"])
    halves: dict[Part, list[str]] = {
        "latency": list(_latency_refusals(first, second)),
        "accuracy": list(_accuracy_refusals(first, second)),
    }
    if all(halves.values()):
        raise NotComparable([f"{half}: {reason}" for half, reasons in halves.items() for reason in reasons])
    return Difference(
        first=_side(first),
        second=_side(second),
        setup=changes(first.plan.model_dump(mode="json"), second.plan.model_dump(mode="json")),
        engines=changes(_engines(first), _engines(second)),
        words=changes(_words(first.verdict), _words(second.verdict)),
        numbers=tuple(_numbers(first.verdict, second.verdict, {half for half, why in halves.items() if why})),
        effects=() if halves["latency"] else tuple(_effects(first.verdict, second.verdict)),
        not_compared={half: tuple(reasons) for half, reasons in halves.items() if reasons},
        phase=first.plan.phase,
    )


def _same_model(first: ModelRef, second: ModelRef) -> bool:
    """Whether they go by one name, or hold the same bytes under two; simulated engines hold none."""
    simulated = "simulated" in {first.source, second.source}
    return first.name == second.name or (first.revision == second.revision and not simulated)


def _latency_refusals(first: Report, second: Report) -> Iterator[str]:
    yield from _both_have_it(first, second, "latency")
    plans = (first.plan.latency, second.plan.latency)
    if plans[0] is None or plans[1] is None:
        return
    devices = (_devices(first), _devices(second))
    if devices[0] != devices[1]:
        yield f"they ran on different devices: {_sentence(devices[0])}, and {_sentence(devices[1])}"
    for name in ("phase", "primary_batch", "prompt_tokens", "steps_per_block", "warmup_steps"):
        a, b = getattr(plans[0], name), getattr(plans[1], name)
        if a != b:
            yield f"{name} is {a} in the first and {b} in the second, so their steps ran at other sizes or contexts"


def _accuracy_refusals(first: Report, second: Report) -> Iterator[str]:
    yield from _both_have_it(first, second, "accuracy")
    plans = (first.plan.accuracy, second.plan.accuracy)
    if plans[0] is None or plans[1] is None:
        return
    questions = (plans[0].questions, plans[1].questions)
    if questions[0].test_sha256 != questions[1].test_sha256 or set(questions[0].ids) != set(questions[1].ids):
        yield "they asked different questions"
    examples = [
        (one.train_sha256, one.shot_ids, plan.shots) for one, plan in zip(questions, plans, strict=True) if plan
    ]
    if examples[0] != examples[1]:
        yield "they asked after different worked examples"
    if plans[0].prompting != plans[1].prompting:
        yield f"they prompted differently, {plans[0].prompting} and {plans[1].prompting}"
    if plans[0].sampling != plans[1].sampling:
        yield "they sampled with different parameters"


def _both_have_it(first: Report, second: Report, half: Part) -> Iterator[str]:
    for name, report in (("first", first), ("second", second)):
        overall = report.verdict.overall
        if isinstance(overall, Invalid):
            yield f"the {name} cannot be judged ({overall.reason}), so its numbers are for diagnosis only"
        elif isinstance(overall, TreatmentInactive):
            yield f"in the {name} the treatment was not live, so its numbers say nothing of it"
        elif getattr(report.verdict, half) is None:
            yield f"the {name} has no result on {half}"


def _devices(report: Report) -> set[str]:
    """Names of the devices that engines said they ran on."""
    found = (engine.facts.get("device") for engine in report.engines)
    return {str(one.get("name")) if isinstance(one, dict) else str(one) for one in found}


def _sentence(devices: set[str]) -> str:
    return ", ".join(sorted(devices)) or "not known"


def _side(report: Report) -> Side:
    return Side(
        comparison_id=report.comparison_id,
        created_at=report.created_at,
        model=report.plan.model.name,
        word=report.verdict.overall.word,
        headline=report.verdict.headline,
    )


def _engines(report: Report) -> JsonValue:
    """Distinct facts of each arm's engines, by the arm's role."""
    return {ROLE_NAMES[role]: [dict(one.facts) for one in report.engines if one.role == role] for role in ROLES}


def _words(verdict: Verdict) -> JsonValue:
    return {
        "overall": verdict.overall.word,
        "latency": verdict.latency.word if verdict.latency else None,
        "accuracy": verdict.accuracy.word if verdict.accuracy else None,
        "treatment_active": verdict.treatment.active if verdict.treatment else None,
    }


def _numbers(first: Verdict, second: Verdict, left_out: set[Part]) -> Iterator[NumberChange]:
    numbers = [{_key(row): row for row in rows(verdict) if row.section not in left_out} for verdict in (first, second)]
    for key in dict.fromkeys([*numbers[0], *numbers[1]]):
        a, b = numbers[0].get(key), numbers[1].get(key)
        if a != b:
            section, name, batch, unit = key
            yield NumberChange(section=section, name=name, batch=batch, unit=unit, first=_number(a), second=_number(b))


def _key(row: Row) -> tuple[str, str, int | None, str]:
    return row.section, row.name, row.batch, row.unit


def _number(row: Row | None) -> Number | None:
    return None if row is None else Number(value=row.value, low=row.low, high=row.high, level=row.level)


def _effects(first: Verdict, second: Verdict) -> Iterator[EffectShift]:
    measured = [_by_metric(verdict) for verdict in (first, second)]
    for key, a in measured[0].items():
        if (b := measured[1].get(key)) is not None:
            yield _shift(a, b)


def _by_metric(verdict: Verdict) -> dict[tuple[Metric, int | None], LatencyContrast]:
    if verdict.latency is None:
        return {}
    return {(one.metric, one.batch): one for _, one in contrasts(verdict.latency.evidence)}


def _shift(a: LatencyContrast, b: LatencyContrast) -> EffectShift:
    found = effect_difference(a.unit_logs, b.unit_logs, CONFIDENCE)
    known = math.isfinite(found.low) and math.isfinite(found.high)
    return EffectShift(
        metric=a.metric,
        batch=a.batch,
        first=a.effect,
        second=b.effect,
        shift=found.ratio - 1,
        interval=Interval(low=found.low - 1, high=found.high - 1, level=CONFIDENCE) if known else None,
    )
