"""Moves from status to status inside a transaction of the caller's, each with the event that tells of it."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pydantic import JsonValue
from sqlalchemy import Connection, select, update

from equipoise_evals.model import Frozen
from equipoise_service.store.events import add_event
from equipoise_service.store.status import ACTIVE, FINAL, Status, require_transition
from equipoise_service.store.tables import comparisons
from equipoise_service.store.webhooks import add_deliveries


class StoredError(Frozen):
    """Why a comparison has no verdict.

    Attributes:
        arm: Role of the arm concerned, None where it concerns both or neither.
        stage: What was being done.
        reason: One sentence: what happened and what to do.
        log_tail: Last lines of the engine's log, empty where there is none.
    """

    arm: str | None = None
    stage: str
    reason: str
    log_tail: str = ""


class Lease(NamedTuple):
    """A worker's claim on one comparison.

    Attributes:
        owner: Who claims it; an owner works on one comparison at a time.
        lease_s: Without a heartbeat for so long, another owner may take it over.
        job_s: Longest time from the claim to the end.
    """

    owner: str
    lease_s: float = 60.0
    job_s: float = 48 * 3600.0


def begin(connection: Connection, comparison_id: str, lease: Lease) -> None:
    """Queued becomes running, under this lease; it has begun when its first attempt did."""
    now = datetime.now(UTC)
    c = comparisons.c
    before = select(c.started_at, c.attempt, c.claim).where(c.id == comparison_id)
    started_at, attempt, claim = connection.execute(before).one()
    transition(
        connection,
        comparison_id,
        Status.RUNNING,
        started_at=started_at or now,
        attempt=attempt + 1,
        claim=claim + 1,
        lease_owner=lease.owner,
        lease_until=now + timedelta(seconds=lease.lease_s),
        heartbeat_at=now,
        deadline_at=now + timedelta(seconds=lease.job_s),
    )


def transition(
    connection: Connection,
    comparison_id: str,
    wanted: Status,
    why: str | None = None,
    **values: datetime | str | float | None,
) -> None:
    """One transition, its event, and at an end what webhooks are owed; ``why`` is told in the event, as a reason.

    Raises:
        InvalidTransition: The status cannot follow the present one.
    """
    require_transition(comparison_id, status_of(connection, comparison_id), wanted)
    if wanted in FINAL:
        values["finished_at"] = datetime.now(UTC)
    if wanted not in ACTIVE:
        values |= {"lease_owner": None, "lease_until": None, "deadline_at": None, "cancel_requested_at": None}
    if "error" in values:
        error = values["error"]
        reason = None if error is None else StoredError.model_validate_json(str(error)).reason
        values["reason"] = reason
        why = reason or why
    connection.execute(update(comparisons).where(comparisons.c.id == comparison_id).values(status=wanted, **values))
    payload: dict[str, JsonValue] = {"status": wanted}
    if "verdict_word" in values:
        payload["verdict"] = str(values["verdict_word"])
    if why is not None:
        payload["reason"] = why
    add_event(connection, comparison_id, "status", payload)
    if wanted in FINAL:
        add_deliveries(connection, comparison_id)


def status_of(connection: Connection, comparison_id: str) -> Status:
    """The present status, which nobody else can change before the transaction ends."""
    # FOR UPDATE is nothing on SQLite, where the transaction holds the write lock, and what PostgreSQL needs.
    query = select(comparisons.c.status).where(comparisons.c.id == comparison_id).with_for_update()
    return Status(connection.execute(query).scalar_one())
