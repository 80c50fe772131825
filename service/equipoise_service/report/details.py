"""What pages and the HTML report show beyond the other reports: every block, every kernel, every launch."""

from collections.abc import Iterable

from pydantic import Field, JsonValue

from equipoise_evals.model import (
    BlockRecord,
    Frozen,
    LaunchRecord,
    Plan,
    Question,
    QuestionsRecord,
    Role,
    StopRecord,
    TreatmentRecord,
)
from equipoise_service.report.timings import Timings, timings_of
from equipoise_service.store import RecordParts
from equipoise_service.store.records import Part


class KernelCount(Frozen):
    """A kernel or operator with its calls per decode step; None where an arm was not traced."""

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
        ready_s: Seconds from its start until it answered; None where not recorded.
        held_s: Seconds it held the device; None if its end was not recorded.
        clean: Whether it ended cleanly; None if its end was not recorded.
    """

    pair: int
    role: Role
    started_first: bool
    started_at: str
    ready_s: float | None
    held_s: float | None
    clean: bool | None
    argv: tuple[str, ...]
    environment: dict[str, str]
    attestation: dict[str, JsonValue]
    server_info: dict[str, JsonValue]


class Details(Frozen):
    """Timings are None without a latency half; ``questions`` are those asked, by id."""

    timings: Timings | None = None
    kernels: tuple[KernelCount, ...] = ()
    launches: tuple[Launched, ...] = ()
    questions: dict[int, Question] = Field(default_factory=dict)


def read_details(comparison_id: str, plan: Plan, parts: RecordParts) -> Details:
    """The details of a stored comparison, finished or not."""
    launches = [LaunchRecord.model_validate_json(part.payload) for part in parts.parts(comparison_id, "launch")]
    stops = [StopRecord.model_validate_json(part.payload) for part in parts.parts(comparison_id, "stop")]
    traces = [TreatmentRecord.model_validate_json(part.payload) for part in parts.parts(comparison_id, "treatment")]
    asked = [QuestionsRecord.model_validate_json(part.payload) for part in parts.parts(comparison_id, "questions")]
    timings = None
    if plan.latency is not None:
        observed = sorted(
            (part for kind in ("launch", "block") for part in parts.parts(comparison_id, kind)),
            key=lambda part: part.seq,
        )
        timings = timings_of(map(_launch_or_block, observed), plan.latency)
    return Details(
        timings=timings,
        kernels=tuple(kernel_counts(traces)),
        launches=tuple(launched(launches, stops)),
        questions={one.question.id: one.question for record in asked for one in record.asked},
    )


def _launch_or_block(part: Part) -> LaunchRecord | BlockRecord:
    if part.kind == "launch":
        return LaunchRecord.model_validate_json(part.payload)
    return BlockRecord.model_validate_json(part.payload)


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


def launched(launches: Iterable[LaunchRecord], stops: Iterable[StopRecord]) -> Iterable[Launched]:
    """Every start with its end, in the order observed."""
    ends = {(stop.pair, stop.role): stop for stop in stops}
    for launch in launches:
        stop = ends.get((launch.pair, launch.role))
        yield Launched(
            pair=launch.pair,
            role=launch.role,
            started_first=launch.started_first,
            started_at=launch.started_at,
            ready_s=launch.stage_s.get("spawn_to_ready"),
            held_s=stop.held_s if stop else None,
            clean=stop.clean if stop else None,
            argv=launch.argv,
            environment=launch.environment,
            attestation=launch.attestation,
            server_info=launch.server_info,
        )
