import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Table, insert
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, StatementError
from sqlalchemy.schema import CreateTable

from equipoise_evals.model import Answered, AnswerRecord, ModelRef, PassRecord, Record, StopRecord
from equipoise_service.ids import new_id
from equipoise_service.store import (
    FINAL,
    InvalidTransition,
    ListFilter,
    NewComparison,
    Status,
    Store,
    StoredError,
    StoredRecorder,
)
from equipoise_service.store.status import TRANSITIONS
from equipoise_service.store.tables import UtcDateTime, events, metadata
from tests.support import records as make

STOP = StopRecord(pair=1, role="A", held_s=1.5, clean=True)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'deep' / 'equipoise.db'}")
    yield opened
    opened.database.close()


def new(key: str | None = None, model: str = "m", sha: str = "0" * 64) -> NewComparison:
    return NewComparison(new_id(), model, "{}", sha, "{}", key)


def add(store: Store, model: str = "m") -> str:
    return store.comparisons.add(new(model=model))[0].id


def lead_to(store: Store, status: Status) -> str:
    """A comparison in this status, by the shortest way."""
    comparison_id = add(store)
    comparisons = store.comparisons
    error = StoredError(stage="gsm8k", reason="it died")
    if status not in (Status.QUEUED, Status.CANCELLED):
        comparisons.start(comparison_id)
    if status in (Status.JUDGING, Status.SUCCEEDED):
        comparisons.judge(comparison_id)
    if status is Status.SUCCEEDED:
        comparisons.succeed(comparison_id, '{"a":1}', "ship")
    elif status is Status.FAILED:
        comparisons.fail(comparison_id, error)
    elif status is Status.CANCELLED:
        comparisons.cancel(comparison_id, "on request")
    elif status is Status.INTERRUPTED:
        comparisons.interrupt(comparison_id, "killed")
    return comparison_id


def move(store: Store, comparison_id: str, wanted: Status) -> None:
    comparisons = store.comparisons
    match wanted:
        case Status.RUNNING:
            comparisons.start(comparison_id)
        case Status.JUDGING:
            comparisons.judge(comparison_id)
        case Status.SUCCEEDED:
            comparisons.succeed(comparison_id, "{}", "ship")
        case Status.FAILED:
            comparisons.fail(comparison_id, StoredError(stage="s", reason="r"))
        case Status.CANCELLED:
            comparisons.cancel(comparison_id, "r")
        case Status.INTERRUPTED:
            comparisons.interrupt(comparison_id, "r")
        case Status.QUEUED:
            comparisons.resume(comparison_id)


@pytest.mark.parametrize("current", list(Status))
@pytest.mark.parametrize("wanted", list(Status))
def test_only_the_tables_transitions_happen(store: Store, current: Status, wanted: Status) -> None:
    comparison_id = lead_to(store, current)
    events = store.events.after(comparison_id, 0)
    if wanted in TRANSITIONS[current]:
        move(store, comparison_id, wanted)
        assert store.comparisons.get(comparison_id).status is wanted  # type: ignore[union-attr] # it was just added
        assert len(store.events.after(comparison_id, 0)) == len(events) + 1
    else:
        with pytest.raises(InvalidTransition, match=f"is {current} and cannot become {wanted}"):
            move(store, comparison_id, wanted)
        assert store.comparisons.get(comparison_id).status is current  # type: ignore[union-attr] # it was just added
        assert store.events.after(comparison_id, 0) == events


def test_final_statuses_are_the_designs() -> None:
    assert {str(status) for status in FINAL} == {"succeeded", "failed", "cancelled", "interrupted"}


@pytest.mark.parametrize("status", sorted(FINAL))
def test_what_ended_survives_reopening(tmp_path: Path, status: Status) -> None:
    url = f"sqlite:///{tmp_path / 'equipoise.db'}"
    first = Store.open(url)
    comparison_id = lead_to(first, status)
    kept = first.comparisons.get(comparison_id)
    first.database.close()
    second = Store.open(url)
    assert second.comparisons.get(comparison_id) == kept
    second.database.close()
    assert kept is not None
    assert kept.finished_at is not None
    assert kept.finished_at.tzinfo is UTC
    assert (kept.verdict is not None) == (status is Status.SUCCEEDED)
    assert (kept.error is not None) == (status is not Status.SUCCEEDED)


def test_every_change_of_status_is_an_event_in_order(store: Store) -> None:
    comparison_id = lead_to(store, Status.SUCCEEDED)
    events = store.events.after(comparison_id, 0)
    assert [event.seq for event in events] == [1, 2, 3, 4]
    assert [event.payload for event in events] == [
        '{"status":"queued"}',
        '{"status":"running"}',
        '{"status":"judging"}',
        '{"status":"succeeded","verdict":"ship"}',
    ]
    assert store.events.after(comparison_id, 3) == events[3:]


def test_the_latest_event_of_a_kind(store: Store) -> None:
    comparison_id = add(store)
    assert store.events.latest(comparison_id, "progress") is None
    for done in (1, 2):
        store.events.append(comparison_id, "progress", {"done": done})
    latest = store.events.latest(comparison_id, "progress")
    assert latest is not None
    assert latest.payload == '{"done":2}'


def test_a_key_is_accepted_once(store: Store) -> None:
    first, added = store.comparisons.add(new("k"))
    again, added_again = store.comparisons.add(new("k"))
    assert (added, added_again) == (True, False)
    assert again == first
    assert store.comparisons.by_key("k") == first
    assert store.comparisons.by_key("other") is None


def test_comparisons_without_a_key_never_meet(store: Store) -> None:
    assert store.comparisons.add(new())[0].id != store.comparisons.add(new())[0].id


def test_a_repeated_id_without_a_key_is_a_defect(store: Store) -> None:
    one = new()
    store.comparisons.add(one)
    with pytest.raises(IntegrityError):
        store.comparisons.add(one)


def test_parallel_submissions_with_one_key_make_one_comparison(store: Store) -> None:
    with ThreadPoolExecutor(10) as threads:
        made = [done.result() for done in [threads.submit(store.comparisons.add, new("k")) for _ in range(10)]]
    assert len({stored.id for stored, _ in made}) == 1
    assert [added for _, added in made].count(True) == 1


def test_the_queue_is_first_in_first_out(store: Store) -> None:
    first, second = add(store), add(store)
    queued = store.comparisons.next_queued()
    assert queued is not None
    assert queued.id == first
    store.comparisons.start(first)
    queued = store.comparisons.next_queued()
    assert queued is not None
    assert queued.id == second
    store.comparisons.cancel(second, "r")
    assert store.comparisons.next_queued() is None
    assert store.comparisons.active() == [first]


def test_pages_hold_everything_once_newest_first(store: Store) -> None:
    ids = [add(store) for _ in range(7)]
    seen: list[str] = []
    before: str | None = None
    for expected in (3, 3, 1):
        page = store.comparisons.page(ListFilter(), 3, before)
        assert len(page.items) == expected
        seen += [item.id for item in page.items]
        before = page.next_before
    assert before is None
    assert seen == ids[::-1]


def test_a_page_that_is_just_full_is_the_last(store: Store) -> None:
    for _ in range(3):
        add(store)
    assert store.comparisons.page(ListFilter(), 3).next_before is None


def test_filters_narrow_the_list(store: Store) -> None:
    shipped = lead_to(store, Status.SUCCEEDED)
    other = add(store, model="n")
    comparisons = store.comparisons

    def ids(chosen: ListFilter) -> list[str]:
        return [item.id for item in comparisons.page(chosen, 10).items]

    assert ids(ListFilter(model="n")) == [other]
    assert ids(ListFilter(verdict="ship")) == [shipped]
    assert ids(ListFilter(status=Status.QUEUED)) == [other]
    assert ids(ListFilter(model="n", verdict="ship")) == []


def test_a_model_is_found_by_the_name_asked_for_or_planned(store: Store) -> None:
    plan = make.plan(model=ModelRef(name='a "100%" é_model', source="hub", path="p", revision="r")).model_dump_json()
    planned = store.comparisons.add(new()._replace(model="asked", plan=plan))[0].id

    def ids(model: str) -> list[str]:
        return [item.id for item in store.comparisons.page(ListFilter(model=model), 10).items]

    assert ids("asked") == [planned]
    assert ids('a "100%" é_model') == [planned]
    assert ids('a "100x" é_model') == []
    assert ids("%") == []


def test_records_come_back_as_they_went_in(store: Store) -> None:
    comparison_id = add(store)
    answer = Answered(
        question_id=0, text="é\u2028<b>", output_ids=(1,), finish_reason="stop", prompt_tokens=1, cached_tokens=0
    )
    records: list[Record] = [STOP, PassRecord(pair=1, role="A", answers=(answer,), duration_s=0.1), STOP]
    for number, record in enumerate(records, 1):
        assert store.records.append(comparison_id, record) == number
    assert list(store.records.load(comparison_id).records) == records
    assert [part.seq for part in store.records.parts(comparison_id, "stop")] == [1, 3]
    texts = [part.payload for part in store.records.parts(comparison_id)]
    assert texts == [record.model_dump_json() for record in records]


def test_more_records_than_one_batch(store: Store) -> None:
    comparison_id = add(store)
    for _ in range(70):
        store.records.append(comparison_id, STOP)
    assert [part.seq for part in store.records.parts(comparison_id)] == list(range(1, 71))


def test_a_recorder_goes_on_after_what_is_stored(store: Store) -> None:
    comparison_id = add(store)
    StoredRecorder(store.records, comparison_id).append(STOP)
    recorder = StoredRecorder(store.records, comparison_id)
    recorder.append(STOP)
    assert recorder.records().records == (STOP, STOP)
    assert recorder.records() == store.records.load(comparison_id)


def an_answer(number: int) -> AnswerRecord:
    answer = Answered(
        question_id=number, text="7", output_ids=(1,), finish_reason="stop", prompt_tokens=1, cached_tokens=0
    )
    return AnswerRecord(pair=1, role="A", answer=answer)


def test_every_answer_is_stored_as_it_comes_until_its_pass_takes_its_place(store: Store) -> None:
    comparison_id = add(store)
    recorder = StoredRecorder(store.records, comparison_id)
    recorder.append(STOP)
    answers = [an_answer(number) for number in range(300)]
    for answer in answers:
        recorder.append(answer)
    recorder.flush()
    # Another process, after a kill: everything is there, in order.
    assert StoredRecorder(store.records, comparison_id).records().records == (STOP, *answers)
    whole = PassRecord(pair=1, role="A", answers=tuple(one.answer for one in answers), duration_s=1.0)
    other = an_answer(1).model_copy(update={"role": "B"})
    recorder.append(other)
    recorder.append(whole)
    assert recorder.records().records == (STOP, other, whole)
    assert store.records.load(comparison_id) == recorder.records()
    recorder.append(STOP)
    numbers = [part.seq for part in store.records.parts(comparison_id)]
    assert numbers == sorted(set(numbers))


def test_an_answer_that_cannot_be_stored_is_an_error_and_not_forgotten(store: Store) -> None:
    recorder = StoredRecorder(store.records, "00000000-0000-7000-8000-000000000000")
    recorder.append(an_answer(1))
    with pytest.raises(IntegrityError):
        recorder.flush()


def test_an_answer_that_could_not_be_stored_stops_the_ones_after_it(store: Store) -> None:
    recorder = StoredRecorder(store.records, "00000000-0000-7000-8000-000000000000")

    def go_on() -> None:
        for number in range(10_000):
            recorder.append(an_answer(number))

    with pytest.raises(IntegrityError):
        go_on()


def test_records_of_nothing_are_refused(store: Store) -> None:
    with pytest.raises(IntegrityError):
        store.records.append("00000000-0000-7000-8000-000000000000", STOP)


def test_the_database_holds_verdict_and_status_together(store: Store) -> None:
    comparison_id = add(store)
    with pytest.raises(IntegrityError), store.database.write() as connection:
        connection.exec_driver_sql("UPDATE comparisons SET verdict = '{}' WHERE id = ?", (comparison_id,))


def test_a_failed_write_leaves_nothing_and_frees_the_writer(store: Store) -> None:
    comparison_id = add(store)

    def half_a_write() -> None:
        with store.database.write() as connection:
            connection.exec_driver_sql("UPDATE comparisons SET status = 'running' WHERE id = ?", (comparison_id,))
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        half_a_write()
    stored = store.comparisons.get(comparison_id)
    assert stored is not None
    assert stored.status is Status.QUEUED
    store.comparisons.start(comparison_id)


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


def test_sqlite_is_prepared(store: Store) -> None:
    with store.database.read() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "foreign_keys", "synchronous", "busy_timeout")
        }
    assert pragmas == {"journal_mode": "wal", "foreign_keys": 1, "synchronous": 2, "busy_timeout": 10_000}


def test_migrations_lead_to_the_tables(store: Store) -> None:
    with store.database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []


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
    # Compiled, not run: no server is at hand. It keeps out types and clauses that only SQLite has.
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
