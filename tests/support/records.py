"""Records made from stated truths: what an engine would have recorded, had the world been so."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from equipoise_evals.decode.schedule import launch_order, pair_blocks
from equipoise_evals.model import (
    ROLES,
    AccuracyPlan,
    Answer,
    Answered,
    ArmPair,
    ArmSpec,
    AskedQuestion,
    BlockRecord,
    ClientTiming,
    Failed,
    LatencyPlan,
    LaunchRecord,
    ModelRef,
    PassRecord,
    Plan,
    Question,
    QuestionPlan,
    QuestionsRecord,
    Record,
    Records,
    Role,
    SamplingPlan,
    StepColumns,
    StopRecord,
    StressRecord,
    TreatmentRecord,
    looks_up_to,
)

LATENCY = LatencyPlan(
    batch_sizes=(1, 16),
    primary_batch=16,
    quads_per_pair=1,
    prompt_tokens=32,
    steps_per_block=24,
    warmup_steps=4,
    margin=0.005,
)


def accuracy_plan(questions: int = 16, **changes: object) -> AccuracyPlan:
    """An accuracy half over ``questions`` questions."""
    values: dict[str, Any] = {
        "questions": QuestionPlan(
            name="simulated",
            revision=None,
            test_sha256="0" * 64,
            train_sha256="1" * 64,
            population=questions,
            ids=tuple(range(questions)),
            shot_ids=(0, 1),
        ),
        "sampling": SamplingPlan(max_new_tokens=96),
        "shots": 2,
        "concurrency": 16,
        "passes_max": 2,
        "margin_pp": 1.0,
    }
    return AccuracyPlan(**(values | changes))


def plan(pairs_max: int = 10, **changes: Any) -> Plan:
    """A plan of both halves over at most ``pairs_max`` launch pairs."""
    values: dict[str, Any] = {
        "preset": "persistent-buffer",
        "model": ModelRef(name="simulated", source="simulated", path="simulated", revision="0"),
        "arms": ArmPair(
            baseline=ArmSpec(name="baseline", scratch="baseline"),
            candidate=ArmSpec(name="persistent", scratch="persistent"),
        ),
        "declared_aa": False,
        "pairs_max": pairs_max,
        "looks": looks_up_to(pairs_max, layout=changes.get("layout", "co_resident")),
        "seed": 7,
        "accuracy": accuracy_plan(),
        "latency": LATENCY,
    }
    return Plan(**(values | changes))


def launch(pair: int, role: Role, arm: str, first: Role | None = None) -> LaunchRecord:
    """An attested launch; the baseline starts first in odd pairs, unless ``first`` says which one does."""
    first = first or ROLES[(pair - 1) % 2]
    return LaunchRecord(
        pair=pair,
        role=role,
        started_first=role == first,
        started_at="2026-01-01T00:00:00Z",
        argv=("engine",),
        environment={},
        attestation={"arm": arm},
        server_info={},
        stage_s={},
    )


def treatment(baseline: float = 60.0, candidate: float = 0.0) -> list[Record]:
    """Traces in which the arms run so many fills per step."""
    return [
        TreatmentRecord(pair=1, role=role, activity="CPU", steps=8, per_step={"aten::ones": n, "aten::bmm": 60.0})
        for role, n in (("A", baseline), ("B", candidate))
    ]


def block_steps(batch: int, times_us: Sequence[float], latency: LatencyPlan = LATENCY) -> StepColumns:
    """Step columns of one block whose busy times are given; the period is 20 us longer."""
    n = len(times_us)
    return StepColumns(
        monotonic_ns=tuple(range(n)),
        graph_batch=(batch,) * n,
        real_batch=(batch,) * n,
        context_tokens=tuple(batch * (latency.prompt_tokens + i) for i in range(n)),
        busy_us=tuple(float(us) for us in times_us),
        period_us=(None, *(float(us) + 20.0 for us in times_us[1:])),
    )


def prefill_steps(batch: int, times_us: Sequence[float], latency: LatencyPlan = LATENCY) -> StepColumns:
    """Columns of one block of prefills that took so long; first tokens come 500 us later."""
    n = len(times_us)
    return StepColumns(
        monotonic_ns=tuple(range(n)),
        graph_batch=(0,) * n,
        real_batch=(batch,) * n,
        context_tokens=(batch * latency.prompt_tokens,) * n,
        busy_us=tuple(float(us) for us in times_us),
        period_us=tuple(float(us) + 500.0 for us in times_us),
    )


def blocks(
    plan: Plan,
    pairs: int,
    rng: np.random.Generator,
    *,
    effect: float = 0.0,
    launch_sd: float = 0.001,
    step_cv: float = 0.01,
    base_us: float = 5_000.0,
) -> list[Record]:
    """Blocks of ``pairs`` launch pairs with this relative effect and this launch-to-launch SD (log scale)."""
    assert plan.latency is not None
    records: list[Record] = []
    for pair in range(1, pairs + 1):
        shift = {"A": 0.0, "B": np.log1p(effect) + launch_sd * rng.standard_normal()}
        for planned in pair_blocks(plan, pair):
            noise = 1 + step_cv * rng.standard_normal(plan.latency.steps_per_block)
            times = base_us * np.exp(shift[planned.role]) * noise
            records.append(
                BlockRecord(
                    pair=pair,
                    role=planned.role,
                    batch=planned.batch,
                    quad=planned.quad,
                    position=planned.position,
                    sequence=planned.sequence,
                    steps=block_steps(planned.batch, times.tolist(), plan.latency),
                    client=(ClientTiming(ttft_us=30_000, tpot_us=float(times.mean()) + 50, output_tokens=24),),
                )
            )
    return records


def exact_blocks(logs: Sequence[float], of: Plan | None = None) -> list[Record]:
    """Noiseless blocks of a plan, by default the default one, whose launch pairs have exactly these log-ratios."""
    records: list[Record] = []
    for pair, log in enumerate(logs, start=1):
        one = blocks(of or plan(), pair, np.random.default_rng(0), effect=np.expm1(log), launch_sd=0.0, step_cv=0.0)
        records += [record for record in one if isinstance(record, BlockRecord) and record.pair == pair]
    return records


def questions(n: int = 16) -> QuestionsRecord:
    """Questions whose gold is their id."""
    return QuestionsRecord(
        asked=tuple(
            AskedQuestion(question=Question(id=i, question=f"q{i}", rationale="r", gold=str(i)), prompt_sha256="0" * 64)
            for i in range(n)
        )
    )


def answered(question: int, text: str) -> Answered:
    """An answer with this text."""
    return Answered(
        question_id=question, text=text, output_ids=(1,), finish_reason="stop", prompt_tokens=1, cached_tokens=0
    )


def one_pass(
    pair: int, role: Role, right: Iterable[bool], *, failed: Iterable[int] = (), style: Mapping[int, str] | None = None
) -> PassRecord:
    """A pass in which question i is answered rightly or not; ``style`` changes the wording of single answers."""
    lost, wording = set(failed), style or {}
    answers: list[Answer] = [
        Failed(question_id=i, error="simulated")
        if i in lost
        else answered(i, f"{wording.get(i, '')}#### {i if ok else i + 1_000}")
        for i, ok in enumerate(right)
    ]
    return PassRecord(pair=pair, role=role, answers=tuple(answers), duration_s=1.0)


def stress(pair: int, role: Role, *, batch: int = 16, failed: int = 0, guard: str | None = None) -> StressRecord:
    """Stress whose phases ended as a healthy engine's do, but for ``failed`` requests of the last one."""
    healthy = "not_applicable" if role == "A" else "clean"
    phases = [
        {"name": "long_prefills", "requests": 20, "finished": 20, "aborted": 0, "failed": 0},
        {"name": "mixed_lengths", "requests": 32, "finished": 32, "aborted": 0, "failed": 0},
        {"name": "aborts", "requests": 32, "finished": 16, "aborted": 16, "failed": 0},
        {"name": "full_pool", "requests": 9, "finished": 9 - failed, "aborted": 0, "failed": failed},
    ]
    return StressRecord.model_validate(
        {
            "pair": pair, "role": role, "pool_tokens": 16_384, "longest_tokens": 8_186, "batch": batch,
            "phases": [phase | {"guard": guard or healthy, "guard_checks": 2} for phase in phases],
        }
    )  # fmt: skip


def launches(plan: Plan, pairs: int) -> list[Record]:
    """Attested launches and clean stops of ``pairs`` pairs."""
    records: list[Record] = []
    for pair in range(1, pairs + 1):
        for role in ROLES:
            records.append(launch(pair, role, plan.arms.of(role).scratch, launch_order(plan, pair)[0]))
            records.append(StopRecord(pair=pair, role=role, held_s=60.0, clean=True))
    return records


def equal_passes(n: int = 16, right: int = 6) -> list[Record]:
    """Two passes per arm with equal outputs throughout."""
    return [one_pass(pair, role, [i < right for i in range(n)]) for pair in (1, 2) for role in ROLES]


def together(*parts: Iterable[Record]) -> Records:
    """Records in the order given."""
    return Records(records=tuple(record for part in parts for record in part))
