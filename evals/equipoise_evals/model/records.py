"""What was observed, as it was observed: the raw records from which any verdict can be derived again.

Nothing here is computed from anything else. Times are nanoseconds of a monotonic clock or microseconds, as each name
says. A list of records only ever grows, so a run that dies keeps everything that it had measured.
"""

import re
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, JsonValue, model_validator

from equipoise_evals.model.arms import Role
from equipoise_evals.model.base import Frozen
from equipoise_evals.model.plan import Phase, Question

Clock = Literal["engine", "client"]
"""Whose clock timed decode steps: the plugin's inside the engine, or that of the HTTP client that saw tokens arrive."""

StressPhaseName = Literal["long_prefills", "mixed_lengths", "aborts", "full_pool"]


class AskedQuestion(Frozen):
    """A sampled question with the digest of the exact prompt that both arms got."""

    question: Question
    prompt_sha256: str


class QuestionsRecord(Frozen):
    """The questions of the accuracy half, once per comparison, in the order they are asked."""

    kind: Literal["questions"] = "questions"
    asked: tuple[AskedQuestion, ...]


class LaunchRecord(Frozen):
    """One engine's start: what was run, what it says it is, and how long each stage took.

    Attributes:
        pair: 1-based launch pair.
        started_first: Whether this engine was the first of its pair to be started.
        argv: The whole command line.
        environment: Variables that Equipoise set, secrets left out.
        attestation: The plugin's own record out of ``/server_info``, unedited.
        server_info: The rest of ``/server_info`` that matters to the reader (backends, dtype, versions, KV pool).
        stage_s: Seconds per stage: ``spawn_to_ready``, ``first_generation``; and, as far as the engine's log tells
            them, the stages that the former is made of, in order: ``imports``, ``spawn``, ``gate`` (the second engine
            of a pair waits there for the first to take its memory), ``distributed``, ``weights``, ``kv_pool``,
            ``graph_capture``, ``http``, ``warm_up``; and ``tokenizer``, beside them. ``ahead`` is how
            long it had imported and waited before its turn came, while others ran; it then has no ``imports`` and no
            ``spawn``, and the rest counts from its turn.
        node: Machine of a cluster on which it ran; empty for the service's own, or where it was not recorded.
        attached: Whether the engine ran already: ``argv`` and ``environment`` are then empty because nobody here knows
            them, ``started_at`` is when it was attached to, and the attestation is empty where it shows none.
    """

    kind: Literal["launch"] = "launch"
    pair: int = Field(ge=1)
    role: Role
    started_first: bool
    started_at: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    attestation: dict[str, JsonValue]
    server_info: dict[str, JsonValue]
    stage_s: dict[str, float]
    attached: bool = False
    node: str = Field(default="", exclude_if=lambda node: not node)


class PdlLinks(Frozen):
    """Kernels that programmatic dependent launch (PDL) links in a decode step, and fills that stand between them.

    Attributes:
        links_per_step: How often SGLang's ``fused_fp8_qkv_kv_cache`` follows ``_fused_qk_rmsnorm_rope_gate`` on a
            stream; 0 where the model does not have the two.
        fills_between_per_step: Fills that start between the two of a link, on their stream.
    """

    links_per_step: float = Field(ge=0)
    fills_between_per_step: float = Field(ge=0)

    @model_validator(mode="after")
    def _fills_stand_in_links(self) -> Self:
        if self.fills_between_per_step and not self.links_per_step:
            raise ValueError("fills cannot stand between kernels that do not run")
        return self


FILLS = re.compile(r"^aten::(zeros|ones|full|zero_|fill_)$|FillFunctor|[Mm]emset")
"""Names in a trace that fill a tensor: operators on a CPU and kernels on a GPU."""


class TreatmentRecord(Frozen):
    """Kernels or operators per decode step, or per whole prefill, in one engine, counted in a profiler trace.

    ``per_step`` holds every counted name; ``steps`` is how many steps or prefills the trace covered, and ``phase``
    which. ``pdl`` is None where it was not recorded: by earlier versions, and in traces of a CPU.
    """

    kind: Literal["treatment"] = "treatment"
    pair: int = Field(ge=1)
    role: Role
    activity: Literal["CPU", "GPU"]
    steps: int = Field(ge=1)
    per_step: dict[str, float]
    pdl: PdlLinks | None = None
    phase: Phase = Field(default="decode", exclude_if=lambda phase: phase == "decode")


LONGEST_US = 1e12
"""Eleven days: no step lasts longer, and nothing that is computed from shorter ones overflows."""
SHORTEST_US = 1e-3
"""A nanosecond, the least that clocks count: a shorter step took no time."""
Microseconds = Annotated[float, Field(ge=0, le=LONGEST_US)]
Count = Annotated[int, Field(ge=0, lt=2**48)]


class StepColumns(Frozen):
    """The step clock's columns, one entry a decode step, in order; in a prefill block one a whole prefill.

    ``period_us`` is None for a step whose predecessor was not a decode step: there is no period then. Of a prefill it
    is the time to first token at the client.
    """

    monotonic_ns: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...]
    graph_batch: tuple[Count, ...]
    real_batch: tuple[Count, ...]
    context_tokens: tuple[Count, ...]
    busy_us: tuple[Microseconds, ...]
    period_us: tuple[Microseconds | None, ...]

    @model_validator(mode="after")
    def _columns_are_equally_long(self) -> Self:
        lengths = {name: len(getattr(self, name)) for name in type(self).model_fields}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"step columns differ in length: {lengths}")
        return self

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.monotonic_ns)


class ClientTiming(Frozen):
    """One request of a block as its client saw it: time to first token and per-token time after it."""

    ttft_us: float = Field(gt=0, le=LONGEST_US)
    tpot_us: float = Field(gt=0, le=LONGEST_US)
    output_tokens: int = Field(ge=2)


class BlockRecord(Frozen):
    """One block of decode steps, or of prefills, at one batch size in one engine.

    Attributes:
        quad: 1-based ABBA quad within the pair and batch size.
        position: 1-based place within the quad.
        sequence: 1-based place within the pair, over all batch sizes, as planned.
        attempt: 1-based run of its quad; a quad beside foreign load is run again as a whole, and its last run counts.
        clock: Whose clock the steps are of. By a client's, a step ends when the last sequence's token has arrived;
            ``busy_us`` and ``period_us`` are then both what passed since the step before, and ``graph_batch`` is 0.
        disturbed: What foreign load there was beside it; None if none was seen, or nobody looked.
    """

    kind: Literal["block"] = "block"
    pair: int = Field(ge=1)
    role: Role
    batch: int = Field(ge=1)
    quad: int = Field(ge=1)
    position: int = Field(ge=1, le=4)
    sequence: int = Field(ge=1)
    steps: StepColumns
    client: tuple[ClientTiming, ...]
    telemetry: dict[str, JsonValue] = Field(default_factory=dict)
    attempt: int = Field(default=1, ge=1)
    disturbed: str | None = None
    clock: Clock = "engine"


class Answered(Frozen):
    """The engine answered; whether rightly is for the grader.

    Attributes:
        sampling: The parameters as they were sent with this request; None where they were not recorded.
        retries: How often the request was sent before it was taken.
    """

    state: Literal["answered"] = "answered"
    question_id: int = Field(ge=0)
    text: str
    output_ids: tuple[int, ...]
    finish_reason: str
    prompt_tokens: int = Field(ge=0)
    cached_tokens: int = Field(ge=0)
    sampling: dict[str, JsonValue] | None = None
    retries: int = Field(default=0, ge=0)


class Failed(Frozen):
    """The request failed: no answer, which is never a wrong answer."""

    state: Literal["error"] = "error"
    question_id: int = Field(ge=0)
    error: str


Answer = Annotated[Answered | Failed, Field(discriminator="state")]


class AnswerRecord(Frozen):
    """One answer of a pass that goes on, kept as it comes; the pass's own record takes its place when it is complete.

    What is left of a pass that was cut short is these; a resumed run asks only the questions that have none.
    """

    kind: Literal["answer"] = "answer"
    pair: int = Field(ge=1)
    role: Role
    answer: Answer


class PromptProbe(Frozen):
    """The first prompt of a pass as the engine's tokenizer gives it to the model.

    Attributes:
        tokens: How many there are.
        head: The first of them.
        bos: The token that this tokenizer puts before every text; None where it puts none. A prompt begins with
            exactly one, whether the tokenizer or a chat template wrote it.
    """

    tokens: int = Field(ge=0)
    head: tuple[int, ...]
    bos: int | None


class PassRecord(Frozen):
    """One greedy pass over the questions in one engine, in the order asked.

    ``resumed`` answers are those of an earlier launch of the same pair, which was cut short. ``probe`` is None where
    it was not recorded.
    """

    kind: Literal["pass"] = "pass"
    pair: int = Field(ge=1)
    role: Role
    answers: tuple[Answer, ...]
    duration_s: float = Field(ge=0)
    resumed: int = Field(default=0, ge=0)
    probe: PromptProbe | None = None


class TokenChoice(Frozen):
    """What one engine thinks of the next token after a prefix that both arms' answers share.

    Attributes:
        logprobs: Natural log-probabilities of the two answers' tokens there, baseline's and candidate's; None where an
            answer had ended.
        top: Token ids with their log-probabilities, most probable first.
        path: ``decode`` where the token came out of a decode step, as it did in the pass; ``prefill`` where it is the
            first of an answer, or the engine would not repeat the last token of the prefix by itself.
    """

    logprobs: tuple[float | None, float | None]
    top: tuple[tuple[int, float], ...]
    path: Literal["decode", "prefill"]


class DivergenceRecord(Frozen):
    """Where the arms' answers of one launch pair part, asked of both engines again after their passes.

    Asked again, since log-probabilities with every token would change what a decode step does.

    Attributes:
        token_index: 0-based first output token that differs.
        tokens: The baseline's and the candidate's token there; None where an answer had ended.
        choices: By role; an engine whose request failed is missing, and ``errors`` says why.
    """

    kind: Literal["divergence"] = "divergence"
    pair: int = Field(ge=1)
    question_id: int = Field(ge=0)
    token_index: int = Field(ge=0)
    tokens: tuple[int | None, int | None]
    choices: dict[Role, TokenChoice]
    errors: dict[Role, str] = Field(default_factory=dict)


class StressedPhase(Frozen):
    """One phase of stress: how its requests ended, and what the engine's guard said once all of them had.

    Attributes:
        finished: Requests that got all their tokens, also where an abort came too late.
        aborted: Requests that the engine ended because it was asked to.
        failed: Requests that ended in any other way.
        guard: The guard's state in the attestation that follows the phase.
        guard_checks: How often the guard had looked by then, since the engine's start.
        first_error: What the first failed request said; None if none failed.
    """

    name: StressPhaseName
    requests: int = Field(ge=1)
    finished: int = Field(ge=0)
    aborted: int = Field(ge=0)
    failed: int = Field(ge=0)
    guard: str
    guard_checks: int = Field(ge=0)
    first_error: str | None = None

    @model_validator(mode="after")
    def _every_request_ended_once(self) -> Self:
        if self.finished + self.aborted + self.failed != self.requests:
            raise ValueError(
                f"{self.requests} requests, but {self.finished} finished, {self.aborted} aborted, {self.failed} failed"
            )
        return self


class StressRecord(Frozen):
    """Stress that one engine was under before its pass of this pair.

    Attributes:
        pool_tokens: Tokens of the engine's KV pool, which the last phase fills.
        longest_tokens: Longest request that the engine accepts.
        batch: Requests decoded together in the first phase; later ones send twice as many.
    """

    kind: Literal["stress"] = "stress"
    pair: int = Field(ge=1)
    role: Role
    pool_tokens: int = Field(ge=1)
    longest_tokens: int = Field(ge=1)
    batch: int = Field(ge=1)
    phases: tuple[StressedPhase, ...] = Field(min_length=1)


class GuardRecord(Frozen):
    """The last look at one engine's guard, after a pair's work and before its stop; without it no pair is finished.

    ``state`` is what the engine attested, None where it attests no guard. A tripped guard is a fault, and no record.
    """

    kind: Literal["guard"] = "guard"
    pair: int = Field(ge=1)
    role: Role
    state: str | None


class StopRecord(Frozen):
    """One engine's end: how it went and what, if anything, it left behind.

    An engine that ran already is let go of instead; ``held_s`` is then how long it was measured.
    """

    kind: Literal["stop"] = "stop"
    pair: int = Field(ge=1)
    role: Role
    held_s: float = Field(ge=0, le=1e12)
    clean: bool
    leftovers: tuple[str, ...] = ()


PairStage = Literal["launches", "warm_up", "treatment", "gsm8k", "blocks", "end"]
"""What a launch pair is made of: both starts, warm-up and attestation, traces, passes (stress included), timed
blocks, the last look at the guards and the stop."""


class SpentRecord(Frozen):
    """Where the seconds of one launch pair went, by the clock of whoever ran it.

    A stage that was not reached is missing. Of a pair that was cut short there is none; one that was launched again has
    that of its last launch.
    """

    kind: Literal["spent"] = "spent"
    pair: int = Field(ge=1)
    stage_s: dict[PairStage, float]


Record = Annotated[
    QuestionsRecord
    | LaunchRecord
    | TreatmentRecord
    | BlockRecord
    | StressRecord
    | AnswerRecord
    | PassRecord
    | DivergenceRecord
    | GuardRecord
    | StopRecord
    | SpentRecord,
    Field(discriminator="kind"),
]


RecordKind = TypeVar(
    "RecordKind",
    QuestionsRecord,
    LaunchRecord,
    TreatmentRecord,
    BlockRecord,
    StressRecord,
    AnswerRecord,
    PassRecord,
    DivergenceRecord,
    GuardRecord,
    StopRecord,
    SpentRecord,
)


class Records(Frozen):
    """Everything observed in one comparison, in the order it was observed."""

    schema_version: Literal[1] = 1
    records: tuple[Record, ...] = ()

    def of(self, kind: type[RecordKind]) -> tuple[RecordKind, ...]:
        """The records of one kind, in order."""
        return tuple(record for record in self.records if isinstance(record, kind))

    def in_pair_order(self) -> "Records":
        """The same records, each launch pair's after those of the pairs before it.

        They were observed in this order unless machines of a cluster measured several pairs at once. What belongs to no
        pair, the questions, comes first.
        """
        return self.model_copy(update={"records": tuple(sorted(self.records, key=lambda one: getattr(one, "pair", 0)))})

    def current_blocks(self) -> tuple[BlockRecord, ...]:
        """The blocks that count: those of each engine's last launch in a pair, and of each quad's last run in it.

        A pair that was cut short is launched again when the run is resumed, and timed again as a whole: the launch is
        the unit, so blocks of two launches never make one pair. Where one engine runs at a time, the first one's next
        launch therefore also ends what the second had measured. The same holds for the runs of a quad, of which each
        engine has its own half there.
        """
        begun: dict[int, int] = {}
        last: dict[int, dict[Role, int]] = {}
        for place, record in enumerate(self.records):
            if isinstance(record, LaunchRecord):
                of_pair = last.setdefault(record.pair, {})
                if record.role in of_pair:
                    of_pair.clear()
                if not of_pair:
                    begun[record.pair] = place
                of_pair[record.role] = place
        launched = [
            record
            for place, record in enumerate(self.records)
            if isinstance(record, BlockRecord)
            and place > last.get(record.pair, {}).get(record.role, begun.get(record.pair, -1))
        ]
        attempts: dict[tuple[int, int, int, Role], int] = {}
        for block in launched:
            run = (block.pair, block.batch, block.quad, block.role)
            attempts[run] = max(block.attempt, attempts.get(run, 1))
        return tuple(b for b in launched if b.attempt == attempts[b.pair, b.batch, b.quad, b.role])
