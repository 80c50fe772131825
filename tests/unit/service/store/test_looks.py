"""Listeners to one comparison share a look at the database, and none of them misses an event for it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from equipoise_service.api.events import _events
from equipoise_service.bell import Bell
from equipoise_service.errors import StorageUnavailable
from equipoise_service.looks import Looks
from equipoise_service.service import Service
from equipoise_service.store import Status, Store
from equipoise_service.store.events import Look
from tests.support import records as make
from tests.support import stored as keep

LISTENERS = 50


class Counted:
    """The events of a store, whose looks are counted and wait for ``gate``."""

    def __init__(self, store: Store) -> None:
        self._look = store.events.look
        self.gate = threading.Event()
        self.looks = 0
        self.broken = False

    def look(self, comparison_id: str, seq: int) -> Look:
        self.looks += 1
        found = self._look(comparison_id, seq)
        assert self.gate.wait(60)
        if self.broken:
            raise StorageUnavailable("database is locked")
        return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'equipoise.db'}")
    yield opened
    opened.database.close()


@pytest.fixture
def counted(store: Store) -> Counted:
    return Counted(store)


@pytest.fixture
def looks(counted: Counted) -> Looks:
    return Looks(cast(Store, SimpleNamespace(events=counted)))


def numbers(look: Look) -> list[int]:
    return [event.seq for event in look.events]


async def until(wanted: int, counted: Counted) -> None:
    async with asyncio.timeout(60):
        while counted.looks < wanted:
            await asyncio.sleep(0.001)


async def test_all_who_wait_for_the_same_share_one_look(store: Store, counted: Counted, looks: Looks) -> None:
    comparison_id, ticket = keep.add(store, make.plan()), asyncio.Event()
    waiting = [asyncio.create_task(looks.after(ticket, comparison_id, 0)) for _ in range(LISTENERS)]
    await until(1, counted)
    counted.gate.set()
    assert [numbers(look) for look in await asyncio.gather(*waiting)] == [[1]] * LISTENERS
    assert counted.looks == 1
    assert numbers(await looks.after(ticket, comparison_id, 0)) == [1]
    assert counted.looks == 2, "a look that is over is not shared: another process may have written since"


async def test_a_look_that_began_before_the_ring_is_not_shared(store: Store, counted: Counted, looks: Looks) -> None:
    comparison_id = keep.add(store, make.plan())
    early = asyncio.create_task(looks.after(asyncio.Event(), comparison_id, 1))
    await until(1, counted)
    store.events.append(comparison_id, "progress", {"done": 1})
    late = asyncio.create_task(looks.after(asyncio.Event(), comparison_id, 1))
    await until(2, counted)
    counted.gate.set()
    assert (numbers(await early), numbers(await late)) == ([], [2])


async def test_a_listener_that_leaves_takes_nothing_from_the_others(
    store: Store, counted: Counted, looks: Looks
) -> None:
    comparison_id, ticket = keep.add(store, make.plan()), asyncio.Event()
    leaves, stays = (asyncio.create_task(looks.after(ticket, comparison_id, 0)) for _ in range(2))
    await until(1, counted)
    leaves.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaves
    counted.gate.set()
    assert numbers(await stays) == [1]


async def test_everyone_is_told_that_the_database_cannot_be_read(store: Store, counted: Counted, looks: Looks) -> None:
    comparison_id, ticket = keep.add(store, make.plan()), asyncio.Event()
    counted.broken = True
    waiting = [asyncio.create_task(looks.after(ticket, comparison_id, 0)) for _ in range(3)]
    counted.gate.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in found] == [StorageUnavailable] * 3
    counted.broken = False
    assert numbers(await looks.after(ticket, comparison_id, 0)) == [1]


async def test_every_listener_hears_every_event_once_and_the_end(store: Store, counted: Counted) -> None:
    """However many listen, the database is looked at once a ring: the first look, one a write, none for the end."""
    comparison_id, bell = keep.add(store, make.plan()), Bell()
    shared = cast(Store, SimpleNamespace(events=counted, database=store.database))
    service = cast(Service, SimpleNamespace(store=shared, bell=bell, looks=Looks(shared)))
    counted.gate.set()
    store.database.listen(bell.ring)

    async def listen(heard: list[Any]) -> None:
        async for event in _events(service, comparison_id, 0):
            heard.append((event.id, event.event))

    told: list[list[Any]] = [[] for _ in range(LISTENERS)]
    listeners = [asyncio.create_task(listen(heard)) for heard in told]
    writes: tuple[Callable[[], object], ...] = (
        lambda: store.comparisons.claim(keep.LEASE),
        lambda: store.events.append(comparison_id, "progress", {"done": 1}),
        lambda: store.comparisons.cancel(comparison_id, "on request"),
    )
    for heard_by_then, write in enumerate(writes, 1):
        async with asyncio.timeout(60):
            while any(len(heard) < heard_by_then for heard in told):
                await asyncio.sleep(0.001)
        write()
    async with asyncio.timeout(60):
        await asyncio.gather(*listeners)
    assert told == [[("1", "status"), ("2", "status"), ("3", "progress"), ("4", "status")]] * LISTENERS
    assert counted.looks == 1 + len(writes)


def test_a_look_says_whether_there_is_more_and_how_the_comparison_stands(store: Store) -> None:
    comparison_id = keep.add(store, make.plan())
    store.events.append(comparison_id, "progress", {"done": 1})
    first = store.events.look(comparison_id, 0, limit=1)
    assert (numbers(first), first.more, first.status) == ([1], True, Status.QUEUED)
    last = store.events.look(comparison_id, 1, limit=1)
    assert (numbers(last), last.more, last.status) == ([2], False, Status.QUEUED)
    gone = store.events.look("none", 0)
    assert gone == Look((), more=False, status=None)
