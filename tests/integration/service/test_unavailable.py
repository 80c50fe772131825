"""Storage that is locked or full: 503 problems, engines that are not held up, no lost record, and no help needed."""

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from sqlalchemy import Connection

from equipoise_evals.model import BlockRecord, Record, Records
from equipoise_service import measuring
from equipoise_service.errors import StorageUnavailable
from equipoise_service.settings import Settings
from equipoise_service.store import Comparisons, Events
from equipoise_service.store.database import Database
from equipoise_service.store.records import RecordParts, StoredRecorder
from tests.integration.service.conftest import LATENCY_ONLY, Start
from tests.integration.service.test_life import Gate
from tests.support.lost_answers import Chosen, lose_answer

Trouble = Callable[[Settings], contextlib.AbstractContextManager[None]]

pytestmark = pytest.mark.sqlite  # test_postgres.py has the same troubles of PostgreSQL


@contextlib.contextmanager
def locked(settings: Settings) -> Iterator[None]:
    """Another process holds the write lock."""
    other = sqlite3.connect(settings.data / "equipoise.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


@contextlib.contextmanager
def full(settings: Settings) -> Iterator[None]:
    """Every write needs a page more than SQLite may take, which ends as on a full disk."""
    del settings
    real = Database.write

    @contextlib.contextmanager
    def write(database: Database) -> Iterator[Connection]:
        with real(database) as connection:
            try:
                connection.exec_driver_sql("PRAGMA max_page_count = 1")  # rounded up to what there is
                connection.exec_driver_sql("CREATE TABLE filler AS SELECT zeroblob(10000000)")
            finally:
                connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
            yield connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "write", write)
        yield


@pytest.mark.parametrize("trouble", [locked, full])
async def test_storage_in_trouble_is_503_and_recovers_by_itself(
    start: Start, settings: Settings, trouble: Trouble
) -> None:
    gate = Gate()
    async with start(gate) as running:
        comparison_id = await running.submit()
        await gate.reached.wait()
        queued = await running.submit()
        with trouble(settings):
            for method, path in (("POST", "/compare"), ("POST", f"/comparisons/{queued}/cancel")):
                answer = await running.client.request(method, path, json=LATENCY_ONLY)
                assert (answer.status_code, answer.json()["type"]) == (503, "/problems/storage-unavailable"), path
                assert answer.headers["content-type"] == "application/problem+json"
            # What only reads is answered.
            assert (await running.client.get("/comparisons")).status_code == 200
            assert (await running.view(comparison_id))["status"] == "running"
            gate.open.set()
            began_s = time.monotonic()
            async with asyncio.timeout(60):
                while running.launchers[0].alive or running.launchers[0].pairs < 3:
                    await asyncio.sleep(0.02)
            # Three pairs of twenty records each: had each waited for the lock, it would have been two minutes.
            assert time.monotonic() - began_s < 30
        assert (await running.ended(comparison_id))["status"] == "succeeded"
        assert (await running.ended(queued))["status"] == "succeeded"
        records = (await running.client.get(f"/comparisons/{comparison_id}/records")).json()["records"]
        again = (await running.client.get(f"/comparisons/{queued}/records")).json()["records"]
        assert [record["kind"] for record in records] == [record["kind"] for record in again]
        assert (await running.client.post("/compare", json=LATENCY_ONLY)).status_code == 202


async def test_a_cancellation_in_trouble_is_stored_once_it_can_be(start: Start, settings: Settings) -> None:
    gate = Gate()
    async with start(gate) as running:
        comparison_id = await running.submit()
        await gate.reached.wait()
        with locked(settings):
            answer = await running.client.post(f"/comparisons/{comparison_id}/cancel")
            assert answer.status_code == 202
            async with asyncio.timeout(300):
                while running.launchers[0].alive:
                    await asyncio.sleep(0.02)
            assert (await running.view(comparison_id))["status"] == "running"
        assert (await running.ended(comparison_id))["status"] == "cancelled"


async def test_a_cancellation_while_the_last_records_wait_loses_none(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, disk, flush, append = (
        asyncio.get_running_loop(),
        threading.Event(),
        StoredRecorder.flush,
        RecordParts.append_all,
    )
    waiting: asyncio.Queue[None] = asyncio.Queue()

    def noted_flush(self: StoredRecorder, patience_s: float | None = None) -> None:
        loop.call_soon_threadsafe(waiting.put_nowait, None)
        flush(self, patience_s)

    def slow_append(*arguments: Any) -> int:
        disk.wait()
        return append(*arguments)

    monkeypatch.setattr(StoredRecorder, "flush", noted_flush)
    monkeypatch.setattr(StoredRecorder, "_written_now", lambda *_: False)  # nothing is down before the end
    monkeypatch.setattr(RecordParts, "append_all", slow_append)
    async with start() as running:
        comparison_id = await running.submit()
        await waiting.get()
        assert running.launchers[0].alive == 0
        assert (await running.client.post(f"/comparisons/{comparison_id}/cancel")).status_code == 202
        await waiting.get()  # once more, before its end is stored
        disk.set()
        assert (await running.ended(comparison_id))["status"] == "cancelled"
        stored = (await running.client.get(f"/comparisons/{comparison_id}/records")).json()["records"]
    assert sorted(record["role"] for record in stored if record["kind"] == "stop") == ["A"] * 3 + ["B"] * 3


def begins_with_a_block(_: str, records: Sequence[Record], *__: object) -> bool:
    return isinstance(records[0], BlockRecord)


def always(*_: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("of", "method", "chosen"),
    [
        (RecordParts, "append_all", begins_with_a_block), (Comparisons, "claim", always),
        (Comparisons, "judge", always), (Comparisons, "succeed", always), (Events, "append", always),
    ],
)  # fmt: skip
async def test_a_commit_whose_answer_was_lost_costs_no_verdict(
    start: Start, monkeypatch: pytest.MonkeyPatch, of: type, method: str, chosen: Chosen
) -> None:
    lose_answer(monkeypatch, of, method, chosen)
    monkeypatch.setattr("equipoise_service.worker.RETRY_S", 0.01)
    async with start() as running:
        view = await running.ended(await running.submit())
        assert (view["status"], view["error"]) == ("succeeded", None)


async def test_an_end_of_the_service_in_trouble_leaves_what_the_next_start_recovers(
    start: Start, settings: Settings
) -> None:
    gate = Gate()
    with contextlib.ExitStack() as trouble:
        async with start(gate) as running:
            comparison_id = await running.submit()
            await gate.reached.wait()
            trouble.enter_context(locked(settings))
    async with start() as running:
        view = await running.ended(comparison_id)
        assert (view["status"], view["attempt"]) == ("succeeded", 2)


async def test_reads_of_a_measurement_wait_for_a_database_that_cannot_be_read(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are read twice, before the first launch and for the verdict; each time the first try is refused."""
    load, tries = RecordParts.load, 0

    def refused_first(parts: RecordParts, comparison_id: str) -> Records:
        nonlocal tries
        tries += 1
        if tries % 2:
            raise StorageUnavailable("disk I/O error")
        return load(parts, comparison_id)

    monkeypatch.setattr(RecordParts, "load", refused_first)
    monkeypatch.setattr(measuring, "RETRY_S", 0.01)
    async with start() as running:
        view = await running.ended(await running.submit())
        assert (view["status"], view["attempt"], tries) == ("succeeded", 1, 4)
