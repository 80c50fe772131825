"""What a worker settles that another left behind, and what it leaves alone since somebody was faster."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.exc import DatabaseError

from equipoise_service import logs
from equipoise_service import worker as worker_module
from equipoise_service.bell import Bell
from equipoise_service.errors import StorageUnavailable
from equipoise_service.ids import new_id
from equipoise_service.measuring import Concluded
from equipoise_service.store import Comparisons, Holder, Lease, ListFilter, NewComparison, Status, Store, Stored
from equipoise_service.store.background import Background
from equipoise_service.store.tables import comparisons
from equipoise_service.worker import Rules, Worker
from tests.support.lost_answers import lose_answer

THEIRS = Lease("there")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'equipoise.db'}")
    yield opened
    opened.database.close()


@pytest.fixture
def lost(store: Store) -> str:
    """A comparison of another owner whose lease has run out."""
    comparison_id = new_id()
    store.comparisons.add(NewComparison(comparison_id, "m", "{}", "0" * 64, "{}"))
    assert store.comparisons.claim(THEIRS._replace(lease_s=-1.0)) is not None
    return comparison_id


def worker(store: Store, *, resumes: bool = True) -> Worker:
    class Nothing:
        async def measure(self, stored: Stored, holder: Holder) -> Concluded:
            raise AssertionError("nothing is measured here")

    return Worker(store, Nothing(), Bell(), Rules(Lease("here"), resumes=resumes))


def stored(store: Store, comparison_id: str) -> Stored:
    found = store.comparisons.get(comparison_id)
    assert found is not None
    return found


async def test_a_worker_without_work_does_not_wake_itself(store: Store) -> None:
    bell = Bell()
    store.database.listen(bell.ring)
    ticket = bell.ticket()
    assert store.comparisons.claim(Lease("here")) is None
    worker(store).recover()
    await asyncio.sleep(0)  # a ring from this thread is heard in the loop's next turn
    assert not ticket.is_set()
    store.comparisons.add(NewComparison(new_id(), "m", "{}", "0" * 64, "{}"))
    await asyncio.sleep(0)
    assert ticket.is_set()


@pytest.mark.parametrize("resumes", [True, False])
async def test_a_lease_that_was_renewed_meanwhile_is_left_to_its_owner(
    store: Store, lost: str, resumes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = store.comparisons.orphans("here")
    assert store.comparisons.beat(lost, THEIRS)
    monkeypatch.setattr(store.comparisons, "orphans", lambda _: seen)
    worker(store, resumes=resumes).recover()
    assert stored(store, lost).status is Status.RUNNING
    assert store.comparisons.beat(lost, THEIRS)


@pytest.mark.parametrize("resumes", [True, False])
async def test_what_ended_meanwhile_does_not_end_the_worker(
    store: Store, lost: str, resumes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = store.comparisons.orphans("here")
    store.comparisons.cancel(lost, "on request")
    monkeypatch.setattr(store.comparisons, "orphans", lambda _: seen)
    worker(store, resumes=resumes).recover()
    assert stored(store, lost).status is Status.CANCELLED


def test_a_later_attempt_is_not_the_orphan_that_was_seen(store: Store, lost: str) -> None:
    seen = store.comparisons.orphans("here")[0]
    assert store.comparisons.release_orphan(seen, "here", "r")
    assert store.comparisons.claim(THEIRS) is not None
    with store.database.write() as connection:
        connection.execute(update(comparisons).values(lease_until=datetime.now(UTC) - timedelta(seconds=1)))
    assert not store.comparisons.interrupt_orphan(seen, "here", "r")
    assert stored(store, lost).status is Status.RUNNING


async def test_recovery_names_its_comparison_in_the_log(
    store: Store, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        worker(store).recover()
    assert stored(store, lost).status is Status.QUEUED
    assert [record.__dict__.get("comparison") for record in caplog.records] == [lost]


def test_work_in_the_background_names_its_comparison_too() -> None:
    seen: list[str | None] = []
    background = Background("test")
    token = logs.comparison.set("one")
    background.submit(lambda: seen.append(logs.comparison.get()))
    logs.comparison.reset(token)
    background.flush()
    assert seen == ["one"]


def test_all_who_wait_for_work_in_the_background_wait_to_its_end() -> None:
    background, going, last = Background("test"), threading.Event(), threading.Event()
    background.submit(going.wait)
    background.submit(lambda: last.wait(0.05))
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(background.flush) for _ in range(4)]
        assert not wait(waiting, timeout=0.05).done
        going.set()
        for one in waiting:
            one.result(timeout=300)
    assert background.is_done()


class Holds:
    """Measures until it is let go, then fails."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def measure(self, stored: Stored, holder: Holder) -> Concluded:
        await self.open.wait()
        raise StorageUnavailable("it cannot be read")


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not done():
            await asyncio.sleep(0.01)


async def test_a_claim_whose_answer_was_lost_is_made_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        store.comparisons.add(NewComparison(new_id(), "m", "{}", "0" * 64, "{}"))
    monkeypatch.setattr(worker_module, "RETRY_S", 0.01)
    lose_answer(monkeypatch, Comparisons, "claim")
    at_work = Worker(store, Holds(), Bell(), Rules(Lease("here")))
    life = asyncio.create_task(at_work.run())
    ids = [summary.id for summary in store.comparisons.page(ListFilter(), 9).items]
    await until(lambda: life.done() or any(at_work.works_on(one) for one in ids))
    assert not life.done()
    assert sorted(stored(store, one).status for one in ids) == ["queued", "running"]
    life.cancel()
    await asyncio.wait({life})


@pytest.mark.parametrize("resumes", [True, False])
async def test_a_cancellation_that_was_accepted_outlives_the_service(store: Store, resumes: bool) -> None:
    comparison_id = new_id()
    store.comparisons.add(NewComparison(comparison_id, "m", "{}", "0" * 64, "{}"))
    assert store.comparisons.claim(Lease("here")) is not None
    store.comparisons.request_cancel(comparison_id)
    Worker(store, Holds(), Bell(), Rules(Lease("here"), resumes=resumes)).recover()  # as if it had been killed just now
    assert stored(store, comparison_id).status is Status.CANCELLED
    store.comparisons.resume(comparison_id)
    assert stored(store, comparison_id).cancel_requested_at is None


async def test_an_end_that_waits_for_the_database_is_tried_once_more_when_the_service_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison_id = new_id()
    store.comparisons.add(NewComparison(comparison_id, "m", "{}", "0" * 64, "{}"))
    tried, fail = asyncio.Event(), Comparisons.fail

    def locked(self: Comparisons, *arguments: Any) -> None:
        if tried.is_set():
            fail(self, *arguments)
        tried.set()
        raise StorageUnavailable("locked")

    monkeypatch.setattr(Comparisons, "fail", locked)
    work = Holds()
    work.open.set()
    life = asyncio.create_task(Worker(store, work, Bell(), Rules(Lease("here"))).run())
    await tried.wait()
    life.cancel()
    await asyncio.wait({life})
    assert stored(store, comparison_id).status is Status.FAILED


async def test_a_heart_goes_on_after_a_beat_that_failed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.comparisons.add(NewComparison(new_id(), "m", "{}", "0" * 64, "{}"))
    beats = 0

    def beat(*_: object) -> bool:
        nonlocal beats
        beats += 1
        if beats == 1:
            raise DatabaseError("UPDATE", {}, sqlite3.DatabaseError("database disk image is malformed"))
        return True

    monkeypatch.setattr(Comparisons, "beat", beat)
    life = asyncio.create_task(Worker(store, Holds(), Bell(), Rules(Lease("here", lease_s=0.04))).run())
    await until(lambda: beats > 2)
    life.cancel()
    await asyncio.wait({life})


async def test_engines_are_ended_once_however_often_their_end_is_ordered(store: Store) -> None:
    """A second cancellation would break off what the first one began: the end of the engines."""
    begun, orders = asyncio.Event(), 0

    class Slow:
        async def measure(self, stored: Stored, holder: Holder) -> Concluded:
            nonlocal orders
            begun.set()
            while True:
                try:
                    await asyncio.sleep(0.2 if orders else 60)
                except asyncio.CancelledError:
                    orders += 1
                else:
                    raise asyncio.CancelledError

    comparison_id = new_id()
    store.comparisons.add(NewComparison(comparison_id, "m", "{}", "0" * 64, "{}"))
    at_work = Worker(store, Slow(), Bell(), Rules(Lease("here", lease_s=0.04)))
    running = asyncio.create_task(at_work.run())
    await begun.wait()
    with store.database.write() as connection:  # somebody else takes it over, and the next heartbeat says so
        connection.execute(update(comparisons).values(lease_owner="there"))
    while not orders:
        await asyncio.sleep(0.005)
    at_work.cancel(comparison_id)
    running.cancel()
    await asyncio.wait({running})
    assert orders == 1
    assert stored(store, comparison_id).status is Status.RUNNING  # it is the other's to end
