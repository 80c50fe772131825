"""The database itself: full disks, failed writes, parallel writers, migrations, instants."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Table, event, insert, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, StatementError
from sqlalchemy.schema import CreateTable

from equipoise_service.errors import StorageUnavailable
from equipoise_service.store import (
    InvalidTransition,
    Status,
    Store,
    tables,
)
from equipoise_service.store.tables import UtcDateTime, events, metadata
from tests.support.store import LEASE, STOP, add


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


def test_the_database_holds_verdict_and_status_together(store: Store) -> None:
    comparison_id = add(store)
    with pytest.raises(IntegrityError), store.database.write() as connection:
        connection.execute(
            update(tables.comparisons).where(tables.comparisons.c.id == comparison_id).values(verdict="{}")
        )


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


@pytest.mark.sqlite
def test_sqlite_is_prepared(store: Store) -> None:
    with store.database.read() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "foreign_keys", "synchronous", "busy_timeout")
        }
    assert pragmas == {"journal_mode": "wal", "foreign_keys": 1, "synchronous": 2, "busy_timeout": 2_000}


def test_migrations_lead_to_the_tables(store: Store) -> None:
    with store.database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []


@pytest.mark.sqlite
def test_migrations_and_tables_have_the_same_constraints(store: Store) -> None:
    # compare_metadata does not look at CHECK constraints, so the two schemas' own words are compared.
    with store.database.read() as connection:
        migrated = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").all()
    declared = sqlite3.connect(":memory:")
    for table in metadata.sorted_tables:
        declared.execute(str(CreateTable(table).compile(dialect=sqlite.dialect())))
    wanted = dict(declared.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall())
    declared.close()
    for name, sql in migrated:
        if name in wanted:
            assert checks(sql) == checks(wanted[name]), name


def checks(sql: str) -> set[str]:
    return {line.strip().rstrip(",") for line in sql.splitlines() if "CHECK" in line}


@pytest.mark.parametrize("table", metadata.sorted_tables, ids=lambda table: table.name)
def test_the_tables_are_sql_for_postgresql_too(table: Table) -> None:
    # Compiled, not run, since `make test` meets a server last. It keeps out types and clauses that only SQLite has.
    sql = str(CreateTable(table).compile(dialect=make_url("postgresql://").get_dialect()()))
    assert "TIMESTAMP WITH TIME ZONE" in sql or table.name == "record_parts"


def test_instants_need_a_zone() -> None:
    kind = UtcDateTime()
    with pytest.raises(ValueError, match="no time zone"):
        kind.process_bind_param(datetime(2026, 1, 1), sqlite.dialect())  # noqa: DTZ001 - that is what is refused
    assert kind.process_bind_param(None, sqlite.dialect()) is None
    aware = datetime(2026, 1, 1, tzinfo=UTC)
    assert kind.process_result_value(aware, sqlite.dialect()) == aware


def test_an_instant_without_zone_never_reaches_the_database(store: Store) -> None:

    row = {"comparison_id": add(store), "seq": 9, "kind": "x", "payload": "{}"}
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - that is what is refused
    with pytest.raises(StatementError, match="no time zone"), store.database.write() as connection:
        connection.execute(insert(events).values(at=naive, **row))
