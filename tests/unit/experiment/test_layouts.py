"""Engines that run one after the other, or on a device set each."""

from typing import Any

import pytest

from equipoise_evals.decode.schedule import launch_order
from equipoise_evals.experiment import (
    run_comparison,
)
from equipoise_evals.gsm8k.measure import STOPPED
from equipoise_evals.judge import judge
from equipoise_evals.model import (
    BlockRecord,
    DivergenceRecord,
    Invalid,
    KernelEvidence,
    LaunchHistory,
    LaunchRecord,
    Layout,
    PassRecord,
    TreatmentRecord,
)
from equipoise_evals.ports import EngineFault, World
from tests.fakes.launching import ListRecorder
from tests.integration.service.fake import Call, FakeLauncher
from tests.support import records as make
from tests.support.experiment import Killed, prompts, run, silent
from tests.unit.experiment.test_divergences import with_parted_passes


async def test_alternating_measures_one_engine_after_the_other() -> None:
    running: list[tuple[str, int]] = []

    async def note(call: Call) -> None:
        if not running or running[-1] != (call.role, call.pair):
            running.append((call.role, call.pair))

    verdict, records, plan = await run(note, layout="alternating", pairs_max=6)
    assert running == [(role, pair) for pair in range(1, 5) for role in launch_order(plan, pair)]
    assert (verdict.overall.word, verdict.cost.launch_pairs) == ("ship", 4)
    assert verdict.latency is not None
    assert verdict.latency.evidence.busy.units == 4
    # Each engine of a pair holds the device for the fake launcher's second, one after the other.
    assert verdict.cost.device_seconds == 4 * 2 * 1.0
    assert [block.role for block in records.of(BlockRecord) if block.pair == 1] == 4 * [
        launch_order(plan, 1)[0]
    ] + 4 * [launch_order(plan, 1)[1]]
    assert len(records.of(TreatmentRecord)) == 2
    assert verdict == judge(records, plan)


async def test_each_alternating_engine_counts_its_own_blocks() -> None:
    told: list[tuple[int, int]] = []

    def progress(stage: str, done: int, total: int, detail: str = "") -> None:
        if stage == "decode" and detail:
            told.append((done, total))

    plan = make.plan(6, layout="alternating", accuracy=None)
    recorder = ListRecorder()
    await run_comparison(plan, (), World(FakeLauncher(recorder), lambda: 0.0, recorder, progress))
    assert told == [(done, 4) for done in range(4)] * 2 * 4  # two batches of half a quad, two engines, four pairs


async def test_alternating_ends_at_an_inactive_treatment_once_the_second_engine_was_counted() -> None:
    arms = make.plan().arms
    same = arms.model_copy(update={"candidate": arms.candidate.model_copy(update={"scratch": "baseline"})})
    verdict, records, _ = await run(arms=same, layout="alternating", pairs_max=6)
    assert verdict.overall.word == "treatment_inactive"
    assert {block.pair for block in records.of(BlockRecord)} == {1}


async def test_alternating_holds_declared_evidence_against_both_traces_once_they_are_there() -> None:
    evidence = (KernelEvidence(name="fmha", change="appears"),)
    plan = make.plan(6, layout="alternating", evidence=evidence, accuracy=make.accuracy_plan(4))
    recorder = ListRecorder()
    world = World(FakeLauncher(recorder), lambda: 0.0, recorder, silent)
    with pytest.raises(EngineFault, match=r"kernel 'fmha' appears") as failed:
        await run_comparison(plan, prompts(), world)
    assert (failed.value.role, failed.value.stage) == ("B", "treatment")
    assert [one.role for one in recorder.records().of(PassRecord)] == [launch_order(plan, 1)[0]]
    invalid = judge(recorder.records(), plan).overall
    assert isinstance(invalid, Invalid)
    assert invalid.reason == "evidence_missing"


@pytest.mark.parametrize("at", [3, 9, 15])
async def test_an_alternating_pair_cut_short_is_launched_again_whole(at: int) -> None:
    """A pair decodes a warm-up of two batches and 4 blocks in each engine: the kills meet either engine."""
    kill = Killed("decode", at)
    plan = make.plan(6, layout="alternating", accuracy=make.accuracy_plan(4))
    recorder = ListRecorder()
    world = World(FakeLauncher(recorder, kill), lambda: 0.0, recorder, silent)
    with pytest.raises(EngineFault, match="killed"):
        await run_comparison(plan, prompts(), world)
    verdict = await run_comparison(plan, prompts(), world)
    unbroken, _, _ = await run(layout="alternating", pairs_max=6)
    assert (verdict.accuracy, verdict.latency) == (unbroken.accuracy, unbroken.latency)
    assert len(recorder.records().current_blocks()) == 4 * 8


async def test_where_alternating_answers_part_only_the_engine_that_runs_is_asked_again() -> None:
    plan = make.plan(6, accuracy=make.accuracy_plan(3, passes_max=1), latency=None, layout="alternating")
    first, second = launch_order(plan, 1)
    recorder = with_parted_passes(3)
    kept = next(one for one in recorder.kept if isinstance(one, PassRecord) and one.role == "B")
    # The fake engines answer with token 1 alone, so that its answers part from the kept ones at their second token.
    recorder.kept = [recorder.kept[0], kept.model_copy(update={"role": first})]
    await run_comparison(plan, prompts(3), World(FakeLauncher(recorder), lambda: 0.0, recorder, silent))
    found = recorder.records().of(DivergenceRecord)
    assert len(found) == 3
    assert all(set(one.choices) == {second} and one.errors == {first: STOPPED} for one in found)


async def test_a_crossover_runs_both_engines_at_once_and_counts_both_device_sets() -> None:
    verdict, records, plan = await run(layout="crossover", pairs_max=6)
    assert verdict.overall.word == "ship"
    assert verdict.cost.device_seconds == 6 * 2 * 1.0
    assert verdict == judge(records, plan)
    early, _, _ = await run(layout="crossover", pairs_max=1)
    assert early.latency is None  # no unit yet


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"looks": (3,)}, "must be even"),
        ({"history": {"busy": LaunchHistory(d0=4, s0=0.001, histories=3, source="s")}}, "history"),
        ({"arms": "attached"}, "co_resident"),
    ],
)
def test_a_layout_that_cannot_be_had_is_no_plan(changes: dict[str, Any], says: str) -> None:
    if "arms" in changes:
        arms = make.plan().arms
        values = {
            name: getattr(arms, name).model_copy(update={"attach": "http://127.0.0.1:1"})
            for name in type(arms).model_fields
        }
        changes = {"arms": arms.model_copy(update=values)}
    with pytest.raises(ValueError, match=says):
        make.plan(10, layout="crossover", **changes)


@pytest.mark.parametrize("layout", ["crossover", "alternating"])
async def test_a_pair_without_its_other_one_is_launched_again_since_it_may_be_on_other_devices(layout: Layout) -> None:
    """Killed in the second pair of two that balance each other: both run again, and what they show is theirs."""
    kill = Killed("decode", 4 + 8 + 4 + 3)  # four warm-ups and eight blocks a pair
    plan = make.plan(6, layout=layout, accuracy=make.accuracy_plan(4))
    recorder = ListRecorder()
    world = World(FakeLauncher(recorder, kill), lambda: 0.0, recorder, silent)
    with pytest.raises(EngineFault, match="killed"):
        await run_comparison(plan, prompts(), world)
    verdict = await run_comparison(plan, prompts(), world)
    launched = [launch.pair for launch in recorder.records().of(LaunchRecord)]
    assert (launched.count(1), launched.count(3)) == (2 * 2, 2)
    unbroken, _, _ = await run(layout=layout, pairs_max=6)
    assert (verdict.accuracy, verdict.latency) == (unbroken.accuracy, unbroken.latency)
