"""What a comparison may become: the statuses, the events of each change, and keys that are accepted once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError

from equipoise_service.store import (
    FINAL,
    InvalidTransition,
    Status,
    Store,
    StoredError,
)
from equipoise_service.store.status import TRANSITIONS
from equipoise_service.store.transitions import begin
from tests.support.store import LEASE, add, lead_to, new


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


def test_what_runs_cannot_be_resumed(store: Store) -> None:
    comparison_id = add(store)
    store.comparisons.claim(LEASE)
    with pytest.raises(InvalidTransition):
        store.comparisons.resume(comparison_id)
