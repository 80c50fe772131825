"""Full disks, locked databases, failed writes, and many writers at once."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import event, update

from equipoise_service.errors import StorageUnavailable
from equipoise_service.store import (
    InvalidTransition,
    Status,
    Store,
    StoredRecorder,
    tables,
)
from tests.unit.service.store.moves import LEASE, STOP, add, an_answer


def fill(store: Store, pages: int) -> None:
    """Let the database have so many pages more; SQLite then says what it says when a disk is full."""
    with store.database.engine.connect() as connection:
        used = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    event.listen(
        store.database.engine, "begin", lambda one: one.exec_driver_sql(f"PRAGMA max_page_count = {used + pages}")
    )


@pytest.mark.sqlite
def test_a_full_disk_is_unavailable_storage_and_recovers(store: Store) -> None:
    comparison_id = add(store)
    fill(store, 0)
    with pytest.raises(StorageUnavailable, match="database or disk is full"):
        [store.records.append(comparison_id, STOP) for _ in range(1000)]
    before = store.records.load(comparison_id)
    fill(store, 1000)
    store.records.append(comparison_id, STOP)
    assert len(store.records.load(comparison_id).records) == len(before.records) + 1


@pytest.mark.sqlite
def test_a_locked_database_is_unavailable_storage_and_a_recorder_waits_for_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison_id = add(store)
    recorder = StoredRecorder(store.records, comparison_id)
    recorder.append(STOP)
    other = sqlite3.connect(tmp_path / "deep" / "equipoise.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageUnavailable, match="database is locked"):
        store.records.append(comparison_id, STOP)
    assert store.comparisons.get(comparison_id) is not None  # reading goes on
    recorder.append(an_answer(1))
    recorder.append(STOP)
    other.execute("ROLLBACK")
    other.close()
    recorder.flush()
    assert store.records.load(comparison_id) == recorder.records()
    assert [record.kind for record in recorder.records().records] == ["stop", "answer", "stop"]


@pytest.mark.sqlite
def test_a_recorder_whose_patience_ends_says_so(store: Store, tmp_path: Path) -> None:
    recorder = StoredRecorder(store.records, add(store))
    other = sqlite3.connect(tmp_path / "deep" / "equipoise.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    recorder.append(STOP)
    with pytest.raises(StorageUnavailable):
        recorder.flush(0.0)
    other.close()


def test_a_failed_write_leaves_nothing_and_frees_the_writer(store: Store) -> None:
    comparison_id = add(store)

    def half_a_write() -> None:
        with store.database.write() as connection:
            connection.execute(
                update(tables.comparisons).where(tables.comparisons.c.id == comparison_id).values(status="running")
            )
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        half_a_write()
    stored = store.comparisons.get(comparison_id)
    assert stored is not None
    assert stored.status is Status.QUEUED
    store.comparisons.claim(LEASE)


def test_writers_and_readers_in_parallel_lose_nothing(store: Store) -> None:
    comparison_id = add(store)

    def read() -> None:
        for _ in range(50):
            store.comparisons.get(comparison_id)

    def write() -> None:
        for _ in range(50):
            store.records.append(comparison_id, STOP)

    with ThreadPoolExecutor(10) as threads:
        for done in [threads.submit(work) for work in (write, write, *[read] * 8)]:
            done.result()
    assert len(store.records.load(comparison_id).records) == 100


def test_listeners_hear_of_commits_only(store: Store) -> None:
    rings: list[int] = []
    store.database.listen(lambda: rings.append(1))
    comparison_id = add(store)
    assert len(rings) == 1
    with pytest.raises(InvalidTransition):
        store.comparisons.judge(comparison_id)
    assert len(rings) == 1
