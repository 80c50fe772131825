"""What only PostgreSQL has: troubles of a server, several services on one database, and a password in the URL.

All else about the store, the queue and the API is tested by the same tests as on SQLite (``make test-postgres``).
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from equipoise_evals.model import StopRecord
from equipoise_service.cli import main
from equipoise_service.errors import SettingsError, StorageUnavailable
from equipoise_service.settings import Settings
from equipoise_service.store import Lease, NewComparison, Store
from tests.integration.service.conftest import LATENCY_ONLY, Start, running_over
from tests.integration.service.test_life import Gate
from tests.support import postgres

pytestmark = pytest.mark.skipif(postgres.VARIABLE not in os.environ, reason="needs PostgreSQL: make test-postgres")
ID = "01890000-0000-7000-8000-00000000000"


@pytest.fixture
def url(settings: Settings) -> str:
    return settings.url_of_database


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = Store.open(url)
    yield opened
    opened.database.close()


def connected(url: str, *, database: str | None = None) -> "psycopg.Connection[tuple[object, ...]]":
    parsed = make_url(url).set(drivername="postgresql")
    parsed = parsed if database is None else parsed.set(database=database)
    return psycopg.connect(parsed.render_as_string(hide_password=False), autocommit=True)


@contextmanager
def locked(url: str) -> Iterator[None]:
    """Somebody holds a lock on the tables, as a migration or an operator's own transaction does."""
    with connected(url) as other, other.transaction():
        other.execute("LOCK TABLE comparisons, record_parts, events IN EXCLUSIVE MODE")
        yield


@contextmanager
def full(url: str) -> Iterator[None]:
    """Every write fails with what PostgreSQL says when its disk is full (53100, disk_full)."""
    with connected(url) as other:
        other.execute(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
            "'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$"
        )
        for table in ("comparisons", "record_parts", "events"):
            other.execute(f"CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON {table} EXECUTE FUNCTION full_disk()")
        yield
        other.execute("DROP FUNCTION full_disk CASCADE")


@contextmanager
def gone(url: str) -> Iterator[None]:
    """Every connection is cut and none is let in again, as while a server is restarted."""
    name = make_url(url).database
    with connected(url, database=postgres.ADMIN_DATABASE) as other:
        other.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        yield
        other.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


TROUBLES = {"locked": locked, "full": full, "gone": gone}
SAID = {"locked": "lock timeout", "full": "No space left on device", "gone": "it cannot be reached"}


@pytest.mark.parametrize("trouble", sorted(TROUBLES))
async def test_storage_in_trouble_is_503_and_recovers_by_itself(start: Start, url: str, trouble: str) -> None:
    gate = Gate()
    async with start(gate) as running:
        comparison_id = await running.submit()
        await gate.reached.wait()
        with TROUBLES[trouble](url):
            refused = await running.client.post("/compare", json=LATENCY_ONLY)
            assert (refused.status_code, refused.json()["type"]) == (503, "/problems/storage-unavailable")
            assert SAID[trouble] in refused.json()["detail"]
            password = str(make_url(url).password)
            assert password not in refused.text
            assert "127.0.0.1" not in refused.json()["detail"]  # where the database is, is the operator's to know
            # What is measured meanwhile waits in memory.
            gate.open.set()
        assert (await running.ended(comparison_id))["status"] == "succeeded"
        assert (await running.ended(await running.submit()))["status"] == "succeeded"
        assert (await running.client.get("/readyz")).status_code == 200


def test_services_that_start_together_migrate_once(tmp_path: Path) -> None:
    url = postgres.database_for(tmp_path / "new.db", migrated=False)
    with ThreadPoolExecutor(6) as threads:
        stores = [one.result() for one in [threads.submit(Store.open, url) for _ in range(6)]]
    for store in stores:
        assert store.comparisons.queued() == 0
        store.database.close()


def test_a_claim_waits_for_no_other_claim(store: Store, url: str) -> None:
    for number in (1, 2):
        store.comparisons.add(NewComparison(f"{ID}{number}", "m", "{}", "0" * 64, "{}"))
    with connected(url) as other, other.transaction():
        other.execute("SELECT id FROM comparisons WHERE id = %s FOR UPDATE", (f"{ID}1",))
        second = store.comparisons.claim(Lease("here"))
        assert second is not None
        assert second.id == f"{ID}2"
        assert store.comparisons.claim(Lease("there")) is None  # the first is somebody's who has not committed yet


def test_two_processes_may_add_to_one_comparison_at_once(store: Store, url: str) -> None:
    store.comparisons.add(NewComparison(f"{ID}1", "m", "{}", "0" * 64, "{}"))
    other = Store.open(url)

    def add(to: Store) -> None:
        for _ in range(20):
            to.events.append(f"{ID}1", "progress", {})
            to.records.append(f"{ID}1", StopRecord(pair=1, role="A", held_s=1.0, clean=True))

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(add, one) for one in (store, other)]:
            done.result()
    other.database.close()
    assert [one.seq for one in store.events.after(f"{ID}1", 0)] == list(range(1, 42))
    assert [one.seq for one in store.records.parts(f"{ID}1")] == list(range(1, 41))


def test_a_reader_sees_one_state(store: Store, url: str) -> None:
    with store.database.read() as connection:
        before = connection.scalar(text("SELECT count(*) FROM comparisons"))
        other = Store.open(url)
        other.comparisons.add(NewComparison(f"{ID}1", "m", "{}", "0" * 64, "{}"))
        other.database.close()
        assert connection.scalar(text("SELECT count(*) FROM comparisons")) == before


async def test_what_one_service_queues_another_runs(settings: Settings, tmp_path: Path) -> None:
    """A service that only accepts, and one that works, on one database; the second is told by no bell."""
    shared = {"database_url": settings.url_of_database}
    shows = settings.model_copy(update={**shared, "worker": False, "data": tmp_path / "shows"})
    works = settings.model_copy(update={**shared, "data": tmp_path / "works"})
    async with running_over(shows) as pages, running_over(works) as worker:
        comparison_id = await pages.submit()
        assert (await pages.ended(comparison_id))["status"] == "succeeded"
        assert (len(pages.launchers), len(worker.launchers)) == (0, 1)
        assert (await pages.client.get("/readyz")).status_code == 200


async def test_a_comparison_is_cancelled_from_another_service(settings: Settings, tmp_path: Path) -> None:
    shared = {"database_url": settings.url_of_database}
    gate = Gate()
    async with running_over(settings.model_copy(update={**shared, "data": tmp_path / "one"}), gate) as worker:
        comparison_id = await worker.submit()
        await gate.reached.wait()
        other = settings.model_copy(update={**shared, "worker": False, "data": tmp_path / "two"})
        async with running_over(other) as pages:
            assert (await pages.client.post(f"/comparisons/{comparison_id}/cancel")).status_code == 202
            gate.open.set()
            ended = await worker.ended(comparison_id)
            # Its worker hears of it when it next writes, and goes on with what is queued.
            assert (await worker.ended(await worker.submit()))["status"] == "succeeded"
        assert ended["status"] == "cancelled"
        assert [json_kind for _, json_kind, _ in await worker.events(comparison_id)][-1] == "status"


def test_backups_are_the_servers_own(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                     capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.setenv("EQUIPOISE_DATA", str(settings.data))
    monkeypatch.setenv("EQUIPOISE_DATABASE_URL", settings.url_of_database)
    assert main(["backup", str(tmp_path / "copy")]) == 64
    assert "the database is postgresql's; use that database's own tools for it (pg_dump" in capsys.readouterr().err


def test_a_server_that_is_not_there_is_unavailable_and_named_to_nobody() -> None:
    with pytest.raises(StorageUnavailable) as refused:
        Store.open("postgresql://somebody:hunter2@127.0.0.1:1/x")
    assert refused.value.detail == "the database cannot be used now: it cannot be reached; ask again in a moment"


@pytest.mark.parametrize(
    "url", ["postgresql+nodriver://u:hunter2@h/x", "mysql://u:hunter2@h/x", "postgresql://u:hunter2@h:x/x"]
)
def test_a_password_is_not_shown(url: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings.from_env({"EQUIPOISE_DATABASE_URL": url})
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in repr(Settings(database_url="postgresql://u:hunter2@h/x"))
