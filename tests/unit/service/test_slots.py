"""Several workers of one service, and what they do about places that are lost."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from equipoise_service.bell import Bell
from equipoise_service.errors import ComparisonNotFound
from equipoise_service.ids import new_id
from equipoise_service.measuring import Concluded
from equipoise_service.slots import Slots
from equipoise_service.store import FINAL, Holder, Lease, NewComparison, Status, Store, Stored
from equipoise_service.worker import PlaceLost, Rules, Worker


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'equipoise.db'}")
    yield opened
    opened.database.close()


class LosesPlaces:
    """Loses the place of a comparison so often, and then holds until it is cancelled."""

    def __init__(self, store: Store, losses: int) -> None:
        self.store, self.losses = store, losses
        self.holders: list[Holder] = []

    async def measure(self, stored: Stored, holder: Holder) -> Concluded:
        self.holders.append(holder)
        if len(self.holders) <= self.losses:
            raise PlaceLost("the node was lost")
        await asyncio.Event().wait()
        raise AssertionError("it holds for ever")


def slots_of(store: Store, executor: LosesPlaces, slots: int) -> Slots:
    bell = Bell()
    store.database.listen(bell.ring)
    return Slots([Worker(store, executor, bell, Rules(Lease(f"here#{slot}"))) for slot in range(slots)])


def add(store: Store) -> str:
    return store.comparisons.add(NewComparison(new_id(), "m", "{}", "0" * 64, "{}"))[0].id


def status(store: Store, comparison_id: str) -> Status:
    stored = store.comparisons.get(comparison_id)
    assert stored is not None
    return stored.status


async def test_a_lost_place_queues_again_and_the_third_one_fails(store: Store) -> None:
    comparison_id, executor = add(store), LosesPlaces(store, losses=3)
    running = asyncio.create_task(slots_of(store, executor, 1).run())
    async with asyncio.timeout(300):
        while status(store, comparison_id) not in FINAL:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})
    stored = store.comparisons.get(comparison_id)
    assert stored is not None
    assert stored.error is not None
    assert (stored.status, stored.attempt, stored.error.stage) == (Status.FAILED, 3, "place")
    assert [holder.claim for holder in executor.holders] == [1, 2, 3]
    told = [event.payload for event in store.events.of_kind(comparison_id, "status")]
    assert sum("it goes on from what had been measured" in payload for payload in told) == 2


async def test_each_slot_works_on_one_and_a_cancel_finds_it(store: Store) -> None:
    ids, executor = [add(store) for _ in range(3)], LosesPlaces(store, losses=0)
    slots = slots_of(store, executor, 2)
    running = asyncio.create_task(slots.run())
    async with asyncio.timeout(300):
        while len(executor.holders) < 2:
            await asyncio.sleep(0.01)
        assert [status(store, one) for one in ids] == [Status.RUNNING, Status.RUNNING, Status.QUEUED]
        assert len({holder.owner for holder in executor.holders}) == 2
        slots.cancel(ids[1])
        while status(store, ids[1]) is not Status.CANCELLED or len(executor.holders) < 3:
            await asyncio.sleep(0.01)
        assert status(store, ids[0]) is Status.RUNNING
        with pytest.raises(ComparisonNotFound):
            slots.cancel("nowhere")
        running.cancel()
        await asyncio.wait({running})
    assert [status(store, one) for one in ids] == [Status.QUEUED, Status.CANCELLED, Status.QUEUED]
