"""Which status follows which, that every change is an event, and that nothing of it is lost."""

from datetime import UTC
from pathlib import Path

import pytest
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError

from equipoise_service.store import (
    FINAL,
    InvalidTransition,
    Status,
    Store,
    tables,
)
from equipoise_service.store.status import TRANSITIONS
from tests.unit.service.store.moves import LEASE, add, lead_to, move


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


def test_what_runs_cannot_be_resumed(store: Store) -> None:
    comparison_id = add(store)
    store.comparisons.claim(LEASE)
    with pytest.raises(InvalidTransition):
        store.comparisons.resume(comparison_id)


def test_the_database_holds_verdict_and_status_together(store: Store) -> None:
    comparison_id = add(store)
    with pytest.raises(IntegrityError), store.database.write() as connection:
        connection.execute(
            update(tables.comparisons).where(tables.comparisons.c.id == comparison_id).values(verdict="{}")
        )
