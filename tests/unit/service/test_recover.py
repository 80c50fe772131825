"""What a worker settles that another left behind, and what it leaves alone since somebody was faster."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from equipoise_service import logs
from equipoise_service.bell import Bell
from equipoise_service.ids import new_id
from equipoise_service.measuring import Concluded
from equipoise_service.store import Holder, Lease, NewComparison, Status, Store, Stored
from equipoise_service.store.background import Background
from equipoise_service.store.tables import comparisons
from equipoise_service.worker import Rules, Worker

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
            one.result(timeout=20)
    assert background.is_done()


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
