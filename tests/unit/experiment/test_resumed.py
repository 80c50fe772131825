"""A run that was cut short goes on: what had been measured stays, and nothing is asked twice."""

import pytest

from equipoise_evals.experiment import (
    run_comparison,
)
from equipoise_evals.judge import judge
from equipoise_evals.model import (
    ROLES,
    AnswerRecord,
    BlockRecord,
    Failed,
    GuardRecord,
    LaunchRecord,
    Layout,
    PassRecord,
    QuestionsRecord,
)
from equipoise_evals.ports import EngineFault, World
from tests.fakes.launching import ListRecorder
from tests.integration.service.fake import FakeLauncher
from tests.support import records as make
from tests.support.experiment import Killed, cut_short_and_resumed, prompts, run, silent


async def test_a_pair_that_measured_one_half_only_counts_as_finished_when_a_run_goes_on() -> None:
    plan = make.plan(accuracy=make.accuracy_plan(4, passes_max=10))
    kill = Killed("decode", 2 * (4 + 8) + 4 + 3)  # four warm-ups and eight blocks a pair: in the blocks of the third
    recorder = ListRecorder()
    world = World(FakeLauncher(recorder, kill), lambda: 0.0, recorder, silent)
    with pytest.raises(EngineFault, match="killed"):
        await run_comparison(plan, prompts(), world)
    verdict = await run_comparison(plan, prompts(), world)
    assert [launch.pair for launch in recorder.records().of(LaunchRecord)] == [1, 1, 2, 2, 3, 3, 3, 3]
    assert {one.pair for one in recorder.records().of(PassRecord)} == {1, 2}
    assert verdict.overall.word == "ship"


@pytest.mark.parametrize("layout", ["co_resident", "alternating", "crossover"])
@pytest.mark.parametrize("pairs_max", [1, 2, 3])
async def test_a_run_whose_last_pair_is_complete_launches_nothing_more(layout: Layout, pairs_max: int) -> None:
    plan = make.plan(pairs_max, layout=layout, accuracy=make.accuracy_plan(4, passes_max=pairs_max))
    recorder = ListRecorder()
    world = World(FakeLauncher(recorder), lambda: 0.0, recorder, silent)
    verdict = await run_comparison(plan, prompts(), world)
    before = recorder.records()
    assert await run_comparison(plan, prompts(), world) == verdict
    assert recorder.records() == before


GENERATED = 4 * 2 * 2
"""Questions, arms and passes of ``run``."""


@pytest.mark.parametrize("at", range(1, GENERATED + 1))
async def test_a_pass_killed_at_any_answer_asks_no_answered_question_again(at: int) -> None:
    kill = Killed("generate", at)
    verdict, records, plan = await cut_short_and_resumed(kill)
    assert kill.seen == GENERATED + 1  # the answer that never came, and no other
    assert records.of(AnswerRecord) == ()
    assert [len(done.answers) for done in records.of(PassRecord)] == [4] * 4
    assert sum(done.resumed for done in records.of(PassRecord)) == (at - 1) % 4
    unbroken, _, _ = await run(accuracy=make.accuracy_plan(4, concurrency=1))
    assert (verdict.accuracy, verdict.latency) == (unbroken.accuracy, unbroken.latency)
    assert len(records.of(QuestionsRecord)) == 1
    assert verdict == judge(records, plan)


@pytest.mark.parametrize("at", [1, 7, 13, 22])
async def test_a_pair_killed_in_its_blocks_is_timed_again_whole(at: int) -> None:
    """Two warm-up decodes a batch size come before the 8 blocks of a pair: the kills meet warm-ups and blocks."""
    kill = Killed("decode", at)
    verdict, records, plan = await cut_short_and_resumed(kill)
    assert len(records.of(BlockRecord)) >= len(records.current_blocks()) == 3 * 8
    launches = [launch.pair for launch in records.of(LaunchRecord)]
    assert len(records.of(PassRecord)) == 4
    assert set(launches) == {1, 2, 3}
    unbroken, _, _ = await run()
    assert (verdict.accuracy, verdict.latency) == (unbroken.accuracy, unbroken.latency)
    assert verdict == judge(records, plan)


@pytest.mark.parametrize("at", [3, 4, 11, 12])
async def test_a_pair_whose_guards_were_not_looked_at_last_is_launched_again(at: int) -> None:
    """Each pair attests both engines after their start and again at its end: its third call and its fourth."""
    kill = Killed("attest", at)
    verdict, records, plan = await cut_short_and_resumed(kill)
    launches = [launch.pair for launch in records.of(LaunchRecord)]
    cut_short = 1 + (at - 1) // 4
    assert {pair: launches.count(pair) for pair in (1, 2, 3)} == {1: 2, 2: 2, 3: 2} | {cut_short: 4}
    assert {(guard.pair, guard.role) for guard in records.of(GuardRecord)} == {
        (pair, role) for pair in (1, 2, 3) for role in ROLES
    }
    assert verdict == judge(records, plan)


async def test_records_from_before_guards_were_recorded_are_gone_on_with() -> None:
    """A pair before one that was launched had come to its end; whether the last one had, they do not tell."""
    _, measured, plan = await run()
    recorder = ListRecorder()
    for record in measured.records:
        if not isinstance(record, GuardRecord):
            recorder.append(record)
    await run_comparison(plan, prompts(), World(FakeLauncher(recorder), lambda: 0.0, recorder, silent))
    launches = [launch.pair for launch in recorder.records().of(LaunchRecord)]
    assert {pair: launches.count(pair) for pair in (1, 2, 3)} == {1: 2, 2: 2, 3: 4}


async def test_a_question_whose_request_failed_is_asked_again() -> None:
    plan = make.plan(accuracy=make.accuracy_plan(4, concurrency=1), latency=None, pairs_max=1)
    recorder = ListRecorder()
    recorder.append(AnswerRecord(pair=1, role="A", answer=Failed(question_id=2, error="HTTP 500")))
    recorder.append(AnswerRecord(pair=1, role="A", answer=make.answered(3, "#### 1")))
    asked = Killed("generate", -1)
    await run_comparison(plan, prompts(), World(FakeLauncher(recorder, asked), lambda: 0.0, recorder, silent))
    assert asked.seen == 4 * 2 - 1
    passes = {done.role: done for done in recorder.records().of(PassRecord)}
    assert (passes["A"].resumed, passes["B"].resumed) == (1, 0)
    assert all(answer.state == "answered" for answer in passes["A"].answers)
