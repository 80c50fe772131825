"""Stress before every pass but the first."""

import pytest

from equipoise_evals.decode.schedule import launch_order
from equipoise_evals.experiment import (
    STRESS_BATCH,
    questions_record,
    run_comparison,
)
from equipoise_evals.model import (
    ROLES,
    BlockRecord,
    PassRecord,
    StressRecord,
)
from equipoise_evals.ports import EngineFault, World
from tests.fakes.launching import ListRecorder
from tests.integration.service.fake import Call, FakeLauncher
from tests.support import records as make
from tests.support.experiment import prompts, run, silent


async def test_every_pass_but_the_first_follows_stress() -> None:
    calls: list[Call] = []

    async def note(call: Call) -> None:
        calls.append(call)

    verdict, records, plan = await run(note, stress=True)
    # passes_max is 2, pairs_max 10 and 3 pairs decide the speed: the third pair has neither a pass nor stress.
    assert [(one.pair, one.role) for one in records.of(StressRecord)] == [(2, role) for role in launch_order(plan, 2)]
    in_second = [call.method for call in calls if call.pair == 2 and call.method in {"stress", "generate", "decode"}]
    first = {name: in_second.index(name) for name in ("stress", "generate")}
    assert first["stress"] < first["generate"] == first["stress"] + 2
    assert {one.batch for one in records.of(StressRecord)} == {16}
    assert verdict.accuracy is not None
    assert verdict.accuracy.word == "identical"
    assert verdict.accuracy.evidence.notes[-1] == (
        "Every pass but the first was scored after its engine had been put under stress: 154 requests finished, 32 "
        "aborted, 0 failed; guard not applicable in the baseline, clean in the candidate."
    )


async def test_without_a_timed_batch_stress_takes_the_presets_largest() -> None:
    _, records, _ = await run(latency=None, pairs_max=2, stress=True)
    assert [one.batch for one in records.of(StressRecord)] == [STRESS_BATCH] * 2
    _, records, _ = await run(latency=None, pairs_max=2)
    assert records.of(StressRecord) == ()


async def test_stress_keeps_its_batch_once_the_speed_is_decided() -> None:
    """Three pairs decide the speed; passes, whose answers differ from arm to arm, go on to the fifth."""
    latency = make.LATENCY.model_copy(update={"batch_sizes": (1, 4), "primary_batch": 4})
    kept = [make.one_pass(pair, role, [pair % 2 == 0] * 4) for pair in (1, 2, 3, 4) for role in ROLES]
    recorder = ListRecorder()
    plan = make.plan(5, accuracy=make.accuracy_plan(4, passes_max=5), latency=latency, stress=True)
    timed = make.exact_blocks([-0.02, -0.021, -0.019], plan)
    recorder.kept = [questions_record(prompts()), *make.launches(plan, 4), *make.treatment(), *timed, *kept]
    await run_comparison(plan, prompts(), World(FakeLauncher(recorder), lambda: 0.0, recorder, silent))
    records = recorder.records()
    assert {block.pair for block in records.of(BlockRecord)} == {1, 2, 3}
    assert [(one.pair, one.batch) for one in records.of(StressRecord)] == [(5, 4)] * 2


async def test_a_fault_under_stress_ends_the_run_before_the_second_pass() -> None:
    async def trip(call: Call) -> None:
        if call.method == "stress" and call.role == "B":
            raise EngineFault("B", "stress", "after the phase aborts: dirty counters")

    recorder = ListRecorder()
    plan = make.plan(accuracy=make.accuracy_plan(4), stress=True)
    with pytest.raises(EngineFault, match="phase aborts"):
        await run_comparison(plan, prompts(), World(FakeLauncher(recorder, trip), lambda: 0.0, recorder, silent))
    assert {one.pair for one in recorder.records().of(PassRecord)} == {1}
