import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Table, event, insert, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, StatementError
from sqlalchemy.schema import CreateTable

from equipoise_evals.model import Answered, AnswerRecord, ModelRef, PassRecord, Record, StopRecord
from equipoise_service.errors import StorageUnavailable
from equipoise_service.ids import new_id
from equipoise_service.store import (
    FINAL,
    Holder,
    InvalidTransition,
    Lease,
    LeaseLost,
    ListFilter,
    NewComparison,
    Status,
    Store,
    StoredError,
    StoredRecorder,
    tables,
)
from equipoise_service.store.status import TRANSITIONS
from equipoise_service.store.tables import UtcDateTime, events, metadata
from equipoise_service.store.transitions import begin
from tests.support import records as make

LEASE = Lease("here")
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
        comparisons.claim(LEASE)
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
    stored = comparisons.get(comparison_id)
    assert stored is not None
    current = stored.status
    match wanted:
        case Status.RUNNING:
            with store.database.write() as connection:
                begin(connection, comparison_id, LEASE)
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
            if current in (Status.RUNNING, Status.JUDGING):
                comparisons.release(comparison_id, "r")
            else:
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


def claimed(store: Store, owner: str = "here") -> str | None:
    stored = store.comparisons.claim(Lease(owner))
    return None if stored is None else stored.id


def test_the_queue_is_by_priority_and_then_by_time(store: Store) -> None:
    ids = [store.comparisons.add(new()._replace(priority=priority))[0].id for priority in (0, 5, 0, 5, -1)]
    assert [claimed(store, f"owner {place}") for place in range(6)] == [ids[1], ids[3], ids[0], ids[2], ids[4], None]


def test_submitters_take_turns_within_a_priority(store: Store) -> None:
    """A queues three and B two: with one slot they alternate; with two slots each has one at work."""
    a1, a2, a3, b1, b2 = (
        store.comparisons.add(new()._replace(submitter=submitter))[0].id for submitter in ("A", "A", "A", "B", "B")
    )
    urgent = store.comparisons.add(new()._replace(submitter="A", priority=1))[0].id
    begun = []
    for _ in range(6):
        begun.append(claimed(store))
        store.comparisons.fail(str(begun[-1]), StoredError(stage="s", reason="r"))
    assert begun == [urgent, b1, a1, b2, a2, a3]


def test_a_submitter_with_less_at_work_comes_first(store: Store) -> None:
    ids = [store.comparisons.add(new()._replace(submitter=submitter))[0].id for submitter in "AAAAB"]
    assert [claimed(store, f"owner {place}") for place in range(5)] == [ids[0], ids[4], *ids[1:4]]


def test_an_owner_works_on_one_comparison_at_a_time(store: Store) -> None:
    # A5-05: the database itself refuses a second one, whatever a worker believes.
    first, second = add(store), add(store)
    assert claimed(store) == first
    with pytest.raises(IntegrityError):
        claimed(store)
    assert store.comparisons.get(second).status is Status.QUEUED  # type: ignore[union-attr] # it was just added
    store.comparisons.fail(first, StoredError(stage="s", reason="r"))
    assert claimed(store) == second


def test_a_claim_is_heard_of_or_does_not_happen(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison_id = add(store)
    write = store.database.write

    def unavailable() -> None:
        raise StorageUnavailable("database is locked")

    @contextmanager
    def write_and_read_no_more() -> Iterator[Connection]:
        monkeypatch.setattr(store.database, "read", unavailable)
        with write() as connection:
            yield connection

    # A row that says running, of which its worker has not heard, would keep that worker from every other one.
    monkeypatch.setattr(store.database, "write", write_and_read_no_more)
    assert claimed(store) == comparison_id


def test_ten_claims_at_once_begin_each_comparison_once(store: Store) -> None:
    ids = [add(store) for _ in range(5)]
    with ThreadPoolExecutor(10) as threads:
        made = [one.result() for one in [threads.submit(claimed, store, f"owner {place}") for place in range(10)]]
    assert sorted(one for one in made if one) == ids


def test_a_claim_counts_attempts_and_keeps_the_first_start(store: Store) -> None:
    comparison_id = add(store)
    first = store.comparisons.claim(LEASE)
    assert first is not None
    assert first.deadline_at is not None
    assert first.heartbeat_at is not None
    assert (first.attempt, first.deadline_at - first.heartbeat_at) == (1, timedelta(hours=48))
    store.comparisons.release(comparison_id, "the service ends")
    assert json.loads(store.events.after(comparison_id, 0)[-1].payload) == {
        "status": "queued",
        "reason": "the service ends",
    }
    second = store.comparisons.claim(LEASE)
    assert second is not None
    assert (second.attempt, second.started_at) == (2, first.started_at)


def test_orphans_are_those_of_the_asker_and_those_whose_lease_ran_out(store: Store) -> None:
    mine, theirs, dead = add(store), add(store), add(store)
    for owner, lease_s in (("here", 60.0), ("there", 60.0), ("nowhere", -1.0)):
        store.comparisons.claim(Lease(owner, lease_s))
    assert [one.id for one in store.comparisons.orphans("here")] == [mine, dead]
    assert [one.id for one in store.comparisons.orphans("there")] == [theirs, dead]
    assert store.comparisons.beat(dead, Lease("nowhere"))
    assert [one.id for one in store.comparisons.orphans("there")] == [theirs]


def test_a_heartbeat_tells_who_lost_its_comparison(store: Store) -> None:
    comparison_id = add(store)
    store.comparisons.claim(LEASE)
    assert not store.comparisons.beat(comparison_id, Lease("there"))
    assert store.comparisons.beat(comparison_id, LEASE)
    store.comparisons.release(comparison_id, "r")
    assert not store.comparisons.beat(comparison_id, LEASE)


def test_an_earlier_attempt_of_the_same_worker_writes_nothing(store: Store) -> None:
    """On a cluster a process that was taken for dead may outlive the claim that its own worker makes next."""
    comparison_id = add(store)
    recorders = []
    for attempt in (1, 2):
        assert claimed(store) == comparison_id
        recorders.append(StoredRecorder(store.records, comparison_id, owner=Holder("here", attempt)))
        if attempt == 1:
            store.comparisons.release(comparison_id, "its node was lost")
    recorders[1].append(STOP)
    with pytest.raises(LeaseLost):
        recorders[0].append(STOP)
    assert len(store.records.load(comparison_id).records) == 1


def test_a_worker_that_lost_its_comparison_writes_nothing_about_it(store: Store) -> None:
    comparison_id = add(store)
    store.comparisons.claim(Lease("stopped", lease_s=-1.0))
    stopped = Holder("stopped", 1)
    recorder = StoredRecorder(store.records, comparison_id, owner=stopped)
    recorder.append(STOP)
    (orphan,) = store.comparisons.orphans("here")
    assert store.comparisons.release_orphan(orphan, "here", "no heartbeat")
    assert claimed(store) == comparison_id
    events = store.events.after(comparison_id, 0)
    comparisons, owner = store.comparisons, stopped
    for write in (
        lambda: recorder.append(STOP),
        lambda: store.events.append(comparison_id, "progress", {}, owner),
        lambda: comparisons.judge(comparison_id, owner),
        lambda: comparisons.succeed(comparison_id, "{}", "ship", owner),
        lambda: comparisons.fail(comparison_id, StoredError(stage="s", reason="r"), owner),
        lambda: comparisons.cancel(comparison_id, "r", owner),
        lambda: comparisons.interrupt(comparison_id, "r", owner),
        lambda: comparisons.release(comparison_id, "r", owner),
    ):
        with pytest.raises(LeaseLost, match="no longer this worker's"):
            write()
    assert store.events.after(comparison_id, 0) == events
    assert len(store.records.load(comparison_id).records) == 1
    assert store.comparisons.get(comparison_id).status is Status.RUNNING  # type: ignore[union-attr] # it was just added


def test_what_runs_cannot_be_resumed(store: Store) -> None:
    comparison_id = add(store)
    store.comparisons.claim(LEASE)
    with pytest.raises(InvalidTransition):
        store.comparisons.resume(comparison_id)


def test_the_oldest_unfinished_twin_is_found(store: Store) -> None:
    ended, first, _ = [store.comparisons.add(new(sha="a" * 64))[0].id for _ in range(3)]
    store.comparisons.cancel(ended, "r")
    twin = store.comparisons.unfinished_twin("a" * 64)
    assert twin is not None
    assert twin.id == first
    assert store.comparisons.unfinished_twin("b" * 64) is None


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("chosen", "index"),
    [
        (ListFilter(), "sqlite_autoindex_comparisons_1"),
        (ListFilter(status=Status.SUCCEEDED), "ix_comparisons_status_id"),
        (ListFilter(verdict="ship"), "ix_comparisons_verdict_word_id"),
        (ListFilter(model="m"), "ix_comparisons_model_name_id"),
        (ListFilter(model="m", status=Status.QUEUED), "ix_comparisons_"),
    ],
)
@pytest.mark.parametrize("before", [None, "ffffffff-0000-7000-8000-000000000000"])
def test_a_list_is_read_off_an_index_and_never_sorted_whole(
    store: Store, chosen: ListFilter, index: str, before: str | None
) -> None:
    """SQLite says how it would run the list's own statement; of 10,000 comparisons a sort takes a tenth of a second."""
    add(store)
    seen: list[tuple[str, object]] = []
    event.listen(
        store.database.engine,
        "before_cursor_execute",
        lambda connection, cursor, statement, parameters, *rest: seen.append((statement, parameters)),
    )
    store.comparisons.page(chosen, 50, before)
    statement, parameters = next(one for one in seen if one[0].startswith("SELECT"))
    with store.database.read() as connection:
        steps = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]  # type: ignore[arg-type] # the driver's
    assert any(index in step for step in steps), steps
    assert "SCAN comparisons" not in steps, steps
    # The newest of a model are merged out of two indexes, page by page, and sorted then.
    assert chosen.model or "USE TEMP B-TREE FOR ORDER BY" not in steps, steps


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
