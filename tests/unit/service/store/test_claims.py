"""Whose turn it is, who holds what, and what an owner lost."""

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
    Lease,
    Status,
    Store,
    StoredError,
)
from tests.unit.service.store.moves import LEASE, add, claimed, new


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
