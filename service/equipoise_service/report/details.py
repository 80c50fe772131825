"""What pages and the HTML report show beyond the other reports: every block, every kernel, every launch."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from pydantic import Field, JsonValue

from equipoise_evals.block_plan import BlockAdvice, block_advice
from equipoise_evals.model import (
    BlockRecord,
    Frozen,
    LaunchRecord,
    Plan,
    Question,
    QuestionsRecord,
    Records,
    Role,
    StopRecord,
    TreatmentRecord,
)
from equipoise_service.report.provenance import Provenance, provenance_of
from equipoise_service.report.timings import Timings, timings_of
from equipoise_service.store import RecordParts

One = TypeVar("One", LaunchRecord, BlockRecord, StopRecord, TreatmentRecord, QuestionsRecord)
Observed = TypeVar("Observed", bound=Frozen)


class KernelCount(Frozen):
    """A kernel or operator with its calls per decode step, or per prefill; None where an arm was not traced."""

    name: str
    baseline: float | None
    candidate: float | None

    @property
    def differs(self) -> bool:
        """Whether the arms call it differently often."""
        return self.baseline != self.candidate


class Launched(Frozen):
    """One start of one engine.

    Attributes:
        attached: Whether it ran already: it was neither started nor stopped, and its flags are not known here.
        ready_s: Seconds from its start until it answered; None where not recorded.
        held_s: Seconds it held the device; None if its end was not recorded.
        clean: Whether it ended cleanly; None if its end was not recorded.
    """

    pair: int
    role: Role
    started_first: bool
    started_at: str
    attached: bool
    ready_s: float | None
    held_s: float | None
    clean: bool | None
    argv: tuple[str, ...]
    environment: dict[str, str]
    attestation: dict[str, JsonValue]
    server_info: dict[str, JsonValue]


class Details(Frozen):
    """Timings are None without a latency half; ``questions`` are those asked, by id; ``provenance`` as in a report.

    ``blocks`` is what the variance of launches, blocks and steps asks for; None where too little was measured.
    """

    timings: Timings | None = None
    blocks: BlockAdvice | None = None
    kernels: tuple[KernelCount, ...] = ()
    launches: tuple[Launched, ...] = ()
    questions: dict[int, Question] = Field(default_factory=dict)
    provenance: Provenance | None = None


def read_details(comparison_id: str, plan: Plan, parts: RecordParts) -> Details:
    """The details of a stored comparison, finished or not."""
    launches = _read(parts, comparison_id, LaunchRecord)
    stops = _read(parts, comparison_id, StopRecord)
    traces = _read(parts, comparison_id, TreatmentRecord).values()
    asked = _read(parts, comparison_id, QuestionsRecord).values()
    timings, advice = None, None
    if plan.latency is not None:
        timed: dict[int, LaunchRecord | BlockRecord] = {**launches, **_read(parts, comparison_id, BlockRecord)}
        timings = timings_of(_in_order(timed), plan.latency)
        current = Records(records=tuple(_in_order(timed))).current_blocks()
        advice = block_advice(current, stops.values(), plan.latency, plan.layout)
    ends: dict[int, LaunchRecord | StopRecord] = {**launches, **stops}
    return Details(
        timings=timings,
        blocks=advice,
        kernels=tuple(kernel_counts(traces)),
        launches=tuple(launched(_in_order(ends))),
        provenance=provenance_of(_in_order(launches)),
        questions={one.question.id: one.question for record in asked for one in record.asked},
    )


def _read(parts: RecordParts, comparison_id: str, kind: type[One]) -> dict[int, One]:
    """Records of one kind by their place among all."""
    name = kind.model_fields["kind"].default
    return {part.seq: kind.model_validate_json(part.payload) for part in parts.parts(comparison_id, name)}


def _in_order(by_place: Mapping[int, Observed]) -> list[Observed]:
    return [by_place[place] for place in sorted(by_place)]


def kernel_counts(traces: Iterable[TreatmentRecord]) -> Iterable[KernelCount]:
    """Every counted name of both arms' last traces, those that differ first."""
    last = {trace.role: trace.per_step for trace in traces}
    found = [
        KernelCount(
            name=name,
            baseline=last["A"].get(name, 0.0) if "A" in last else None,
            candidate=last["B"].get(name, 0.0) if "B" in last else None,
        )
        for name in sorted({name for per_step in last.values() for name in per_step})
    ]
    return sorted(found, key=lambda count: not count.differs)


def launched(observed: Iterable[LaunchRecord | StopRecord]) -> Iterable[Launched]:
    """Every start with its end, in the order observed.

    An end belongs to the start before it: of a pair that was cut short and launched again, the first start has none.
    """
    starts: list[LaunchRecord] = []
    ends: dict[int, StopRecord] = {}
    last: dict[tuple[int, Role], int] = {}
    for record in observed:
        engine = (record.pair, record.role)
        if isinstance(record, LaunchRecord):
            last[engine] = len(starts)
            starts.append(record)
        elif engine in last:
            ends[last.pop(engine)] = record
    for place, launch in enumerate(starts):
        stop = ends.get(place)
        yield Launched(
            pair=launch.pair,
            role=launch.role,
            started_first=launch.started_first,
            started_at=launch.started_at,
            attached=launch.attached,
            ready_s=launch.stage_s.get("spawn_to_ready"),
            held_s=stop.held_s if stop else None,
            clean=stop.clean if stop else None,
            argv=launch.argv,
            environment=launch.environment,
            attestation=launch.attestation,
            server_info=launch.server_info,
        )
