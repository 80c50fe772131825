"""Launch pairs of one comparison at several places at once, over a real store and engines without processes."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from equipoise_evals.gsm8k.prompt import Prompt, build_prompts
from equipoise_evals.judge import canonical_json, judge
from equipoise_evals.model import LaunchRecord, Plan, Question, SpentRecord
from equipoise_evals.ports import EngineFault, Recorder
from equipoise_service.ids import new_id
from equipoise_service.measuring import Measuring, Tools
from equipoise_service.store import Holder, Lease, NewComparison, Status, Store, Stored
from tests.integration.service.fake import Call, FakeLauncher, Hook, nothing
from tests.support import records as make

pytest.importorskip("ray")

from equipoise_service.cluster.actor import OnePair
from equipoise_service.cluster.apart import may_run_apart, measured_apart
from equipoise_service.worker import PlaceLost

PROMPTS: tuple[Prompt, ...] = build_prompts(
    [Question(id=number, question=f"q{number}", rationale="r", gold="1") for number in range(4)], []
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'equipoise.db'}")
    yield opened
    opened.database.close()


def claimed(store: Store, **changes: Any) -> tuple[Stored, Holder, Plan]:
    """A comparison that is at work."""
    plan = make.plan(**({"accuracy": make.accuracy_plan(4)} | changes))
    store.comparisons.add(NewComparison(new_id(), "m", "{}", "0" * 64, plan.model_dump_json()))
    stored = store.comparisons.claim(Lease("here"))
    assert stored is not None
    return stored, Holder("here", stored.claim), plan


def measuring(store: Store, hook: Hook) -> Measuring:
    """What a process on a node does, with engines that answer at once."""

    def launcher(comparison_id: str, plan: Plan, recorder: Recorder) -> FakeLauncher:
        return FakeLauncher(recorder, hook)

    tools = Tools(launcher, lambda plan: PROMPTS if plan.accuracy else ())
    return Measuring(store, tools, job_s=60, stall_s=60)


class Cluster:
    """Places for one comparison, and which pairs were measured at the same time."""

    def __init__(self, store: Store, stored: Stored, holder: Holder, hook: Hook = nothing) -> None:
        self.process = measuring(store, hook)
        self.stored, self.holder = stored, holder
        self.at_work: set[int] = set()
        self.seen: list[set[int]] = []
        self.lost: set[int] = set()

    async def at_place(self, only: OnePair) -> None:
        self.at_work.add(only.pair)
        self.seen.append(set(self.at_work))
        try:
            await asyncio.sleep(0)  # so that those that begin together are there together
            if only.pair in self.lost:
                raise PlaceLost("the node is gone")
            await self.process.measure_pair(self.stored, self.holder, *only)
        finally:
            self.at_work.remove(only.pair)


async def test_pairs_between_two_looks_run_at_once_and_the_verdict_is_that_of_one_machine(store: Store) -> None:
    alone, holder, plan = claimed(store)
    one_machine = await measuring(store, nothing).measure(alone, holder)
    store.comparisons.succeed(alone.id, *one_machine, holder)

    stored, holder, plan = claimed(store)
    cluster = Cluster(store, stored, holder)
    apart = await measured_apart(store, stored, holder, 8, cluster.at_place)
    assert apart == one_machine
    assert cluster.seen == [{1}, {2}, {2, 3}]
    records = store.records.load(stored.id)
    assert apart.verdict == canonical_json(judge(records, plan))
    assert sorted(spent.pair for spent in records.of(SpentRecord)) == [1, 2, 3]
    assert store.comparisons.status(stored.id) is Status.JUDGING
    looks = [event.payload for event in store.events.of_kind(stored.id, "look")]
    assert [payload.split(",")[0] for payload in looks] == ['{"pair":1', '{"pair":3']


async def test_an_inactive_treatment_costs_one_pair(store: Store) -> None:
    arms = make.plan().arms
    same = arms.model_copy(update={"candidate": arms.candidate.model_copy(update={"scratch": "baseline"})})
    stored, holder, _ = claimed(store, arms=same)
    cluster = Cluster(store, stored, holder)
    assert (await measured_apart(store, stored, holder, 8, cluster.at_place)).word == "treatment_inactive"
    assert cluster.seen == [{1}]


async def test_a_place_that_is_lost_ends_its_neighbours_and_complete_pairs_are_not_measured_again(store: Store) -> None:
    stored, holder, plan = claimed(store)
    cluster = Cluster(store, stored, holder)
    cluster.lost = {2}
    with pytest.raises(PlaceLost, match="the node is gone"):
        await measured_apart(store, stored, holder, 8, cluster.at_place)
    assert cluster.at_work == set()

    cluster.lost = set()
    again = await measured_apart(store, stored, holder, 8, cluster.at_place)
    records = store.records.load(stored.id)
    assert again.verdict == canonical_json(judge(records, plan))
    assert [one.pair for one in records.of(LaunchRecord)].count(1) == 2
    assert again.word == "ship"


async def test_the_fault_of_one_pair_is_the_comparisons(store: Store) -> None:
    async def fail(call: Call) -> None:
        if (call.pair, call.method) == (3, "decode"):
            raise EngineFault(call.role, "decode", "it died")

    stored, holder, _ = claimed(store)
    with pytest.raises(EngineFault, match="it died"):
        await measured_apart(store, stored, holder, 8, Cluster(store, stored, holder, fail).at_place)


async def test_what_was_decided_before_is_only_judged(store: Store) -> None:
    stored, holder, _ = claimed(store)
    cluster = Cluster(store, stored, holder)
    await measured_apart(store, stored, holder, 8, cluster.at_place)
    store.comparisons.release(stored.id, "its service ended", holder)
    stored = store.comparisons.claim(Lease("here")) or stored
    nobody = Cluster(store, stored, Holder("here", stored.claim))
    again = await measured_apart(store, stored, nobody.holder, 8, nobody.at_place)
    assert (again.word, nobody.seen) == ("ship", [])


def test_gpus_of_one_kind_only_and_pairs_that_are_units() -> None:
    assert may_run_apart(make.plan(), "cpu")
    assert not may_run_apart(make.plan(), "cuda")
    assert may_run_apart(make.plan(gpu_type="H200"), "cuda")
    assert not may_run_apart(make.plan(layout="crossover"), "cpu")
    assert not may_run_apart(make.plan(layout="alternating"), "cpu")
    assert not may_run_apart(make.plan(pairs_max=1), "cpu")
