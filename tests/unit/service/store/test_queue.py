"""Who is begun next, under whose lease, and what a worker that lost its comparison may not write."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from equipoise_service.errors import StorageUnavailable
from equipoise_service.store import (
    Holder,
    Lease,
    LeaseLost,
    Status,
    Store,
    StoredError,
    StoredRecorder,
)
from tests.support.store import LEASE, STOP, add, claimed, new


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


def test_the_oldest_unfinished_twin_is_found(store: Store) -> None:
    ended, first, _ = [store.comparisons.add(new(sha="a" * 64))[0].id for _ in range(3)]
    store.comparisons.cancel(ended, "r")
    twin = store.comparisons.unfinished_twin("a" * 64)
    assert twin is not None
    assert twin.id == first
    assert store.comparisons.unfinished_twin("b" * 64) is None
