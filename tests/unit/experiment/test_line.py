"""The straight line over engines without processes: what it asks, in which order, and when it ends."""

import itertools

import pytest

from equipoise_evals.decode.schedule import ABBA, BAAB, launch_order, planned_blocks
from equipoise_evals.experiment import (
    run_comparison,
)
from equipoise_evals.judge import judge
from equipoise_evals.model import (
    BY_FILLS,
    BlockRecord,
    Evidence,
    KernelEvidence,
    LaunchRecord,
    PassRecord,
    SpentRecord,
    StopRecord,
    TreatmentRecord,
)
from equipoise_evals.ports import EngineFault, World
from tests.fakes.launching import ListRecorder
from tests.integration.service.fake import Call, FakeLauncher
from tests.support import records as make
from tests.support.experiment import prompts, run, silent


async def test_three_pairs_decide_a_clear_gain() -> None:
    verdict, records, plan = await run()
    assert verdict.overall.word == "ship"
    assert len(records.of(LaunchRecord)) == len(records.of(StopRecord)) == 2 * 3
    assert len(records.of(PassRecord)) == 2 * 2  # passes_max
    assert len(records.of(TreatmentRecord)) == 2  # the first pair only
    assert verdict == judge(records, plan)


async def test_blocks_run_as_planned() -> None:
    _, records, plan = await run()
    assert plan.latency is not None
    for pair in (1, 2, 3):
        ran = [(b.role, b.batch, b.sequence) for b in records.of(BlockRecord) if b.pair == pair]
        assert ran == [(b.role, b.batch, b.sequence) for b in planned_blocks(plan.latency, pair)]
    quads = {pair: tuple(b.role for b in list(planned_blocks(plan.latency, pair))[:4]) for pair in (1, 2)}
    assert set(quads.values()) == {ABBA, BAAB}


async def test_engines_that_ran_already_are_not_traced_and_say_whose_clock_it_was() -> None:
    arms = make.plan().arms
    attached = arms.model_copy(
        update={
            "baseline": arms.baseline.model_copy(update={"attach": "http://127.0.0.1:1"}),
            "candidate": arms.candidate.model_copy(update={"attach": "http://127.0.0.1:2"}),
        }
    )
    verdict, records, _ = await run(arms=attached, pairs_max=3)
    assert records.of(TreatmentRecord) == ()
    assert verdict.treatment is None
    assert verdict.overall.word == "inconclusive"
    assert {block.clock for block in records.of(BlockRecord)} == {"engine"}  # as the fake engines said


def test_either_arm_starts_first_and_a_seed_repeats() -> None:
    plan = make.plan()
    orders = [launch_order(plan, pair) for pair in range(1, 40)]
    assert [order[::-1] for order in orders[0:38:2]] == orders[1::2]  # each pair of two the other way round
    assert set(orders[0::2]) == {("A", "B"), ("B", "A")}
    assert orders == [launch_order(plan, pair) for pair in range(1, 40)]


async def test_an_inactive_treatment_ends_the_run_before_any_question_or_second_launch() -> None:
    arms = make.plan().arms
    same = arms.model_copy(update={"candidate": arms.candidate.model_copy(update={"scratch": "baseline"})})
    verdict, records, _ = await run(arms=same)
    assert verdict.overall.word == "treatment_inactive"
    assert {block.pair for block in records.of(BlockRecord)} == {1}
    assert not records.of(PassRecord)
    declared, records, _ = await run(arms=same, declared_aa=True, pairs_max=3)
    assert declared.overall.word in {"neutral", "inconclusive"}
    assert len(records.of(BlockRecord)) == 3 * 8


@pytest.mark.parametrize("evidence", [BY_FILLS, (), (KernelEvidence(name="fmha", change="appears"),)])
async def test_a_declared_aa_whose_arms_differ_ends_before_any_question(evidence: tuple[Evidence, ...]) -> None:
    verdict, records, _ = await run(declared_aa=True, evidence=evidence)
    assert verdict.overall.word == "invalid" and verdict.overall.reason == "arms_differ"
    assert {block.pair for block in records.of(BlockRecord)} == {1}
    assert not records.of(PassRecord)


async def test_a_prefill_plan_warms_up_both_phases_and_times_prefills() -> None:
    seen: list[str] = []

    async def hear(call: Call) -> None:
        seen.append(call.method)

    latency = make.LATENCY.model_copy(update={"phase": "prefill"})
    verdict, records, _ = await run(hear, latency=latency, accuracy=None, pairs_max=3)
    assert verdict.latency is not None
    assert (verdict.latency.word, verdict.latency.evidence.phase) == ("faster", "prefill")
    # Attestation wants a decode step, so each engine decodes once a batch size; all blocks are prefills.
    assert seen.count("decode") == 3 * 2 * 2
    assert seen.count("prefill") == seen.count("decode") + len(records.of(BlockRecord))


async def test_no_engine_is_timed_after_it_was_traced() -> None:
    """A GPU's profiler stays attached to an engine that it has traced, and makes its steps longer."""
    seen: dict[int, list[str]] = {}

    async def hear(call: Call) -> None:
        seen.setdefault(call.pair, []).append(call.method)

    _, records, _ = await run(hear, pairs_max=3)
    assert {record.role for record in records.of(TreatmentRecord)} == {"A", "B"}
    assert "decode" not in seen[1][seen[1].index("count_kernels") :]
    assert seen[1].index("count_kernels") < seen[1].index("generate")  # no pass before the arms are known to differ
    assert not any("count_kernels" in of_pair for pair, of_pair in seen.items() if pair > 1)


async def test_evidence_that_does_not_appear_is_a_fault_before_any_question_is_asked() -> None:
    evidence = (KernelEvidence(name="fmha", change="appears"),)
    seen: list[Call] = []

    async def hear(call: Call) -> None:
        seen.append(call)

    with pytest.raises(EngineFault, match=r"kernel 'fmha' appears.*seen instead: 1 names differ") as failed:
        await run(hear, evidence=evidence)
    assert (failed.value.role, failed.value.stage) == ("B", "treatment")
    assert not [call for call in seen if call.method == "generate"]
    same = make.plan().arms.model_copy(
        update={"candidate": make.plan().arms.baseline.model_copy(update={"name": "again"})}
    )
    verdict, _, _ = await run(evidence=evidence, arms=same, declared_aa=True, pairs_max=1, accuracy=None)
    assert verdict.overall.word == "inconclusive"  # a declared A/A asks for no evidence


async def test_each_pair_says_where_its_seconds_went() -> None:
    """A clock that ticks once a reading: every lap is one second, and two readings a pair are not asked for."""
    ticks = itertools.count()
    plan = make.plan(accuracy=make.accuracy_plan(4))
    recorder = ListRecorder()
    await run_comparison(plan, prompts(), World(FakeLauncher(recorder), lambda: float(next(ticks)), recorder, silent))
    spent = recorder.records().of(SpentRecord)
    assert [one.pair for one in spent] == [1, 2, 3]
    stages = ("launches", "warm_up", "blocks", "treatment", "gsm8k", "end")
    assert [tuple(one.stage_s) for one in spent] == [stages] * 3
    laps = [dict.fromkeys(stages, 1.0) | {"gsm8k": one.stage_s["gsm8k"]} for one in spent]
    assert [one.stage_s for one in spent] == laps  # passes read the clock themselves


async def test_tracing_has_its_seconds_also_where_it_ends_the_run() -> None:
    arms = make.plan().arms
    same = arms.model_copy(update={"candidate": arms.candidate.model_copy(update={"scratch": "baseline"})})
    ticks = itertools.count()
    recorder = ListRecorder()
    world = World(FakeLauncher(recorder), lambda: float(next(ticks)), recorder, silent)
    await run_comparison(make.plan(accuracy=make.accuracy_plan(4), arms=same), prompts(), world)
    (spent,) = recorder.records().of(SpentRecord)
    assert spent.stage_s == dict.fromkeys(("launches", "warm_up", "blocks", "treatment", "end"), 1.0)  # a lap a reading


async def test_a_half_alone_runs_alone() -> None:
    _, records, _ = await run(accuracy=None)
    assert records.of(PassRecord) == ()
    verdict, records, _ = await run(latency=None, pairs_max=3)
    assert records.of(BlockRecord) == ()
    assert verdict.accuracy is not None
    assert verdict.accuracy.word == "identical"
    assert len(records.of(PassRecord)) == 4


async def test_a_guard_that_trips_at_the_end_is_an_engine_fault() -> None:
    seen: list[Call] = []

    async def trip(call: Call) -> None:
        seen.append(call)
        if call.method == "attest" and call.role == "A" and sum(c == call for c in seen) == 2:
            raise EngineFault("A", "guard", "dirty counters")

    with pytest.raises(EngineFault, match="dirty counters"):
        await run(trip)
    assert max(call.pair for call in seen) == 1
