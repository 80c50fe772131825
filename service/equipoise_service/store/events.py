"""What happened in a comparison, numbered from 1 without gaps: the source of every progress display.

Events are in the database, so a listener that comes back, or a service that restarts, misses none.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import JsonValue, TypeAdapter
from sqlalchemy import Connection, func, insert, select

from equipoise_service.store.database import Database
from equipoise_service.store.fence import Holder, require_lease
from equipoise_service.store.status import Status
from equipoise_service.store.tables import comparisons, events

Payload = dict[str, JsonValue]
_PAYLOAD: TypeAdapter[Payload] = TypeAdapter(Payload)


class Event(NamedTuple):
    """One event; ``payload`` is JSON text."""

    seq: int
    at: datetime
    kind: str
    payload: str


class Look(NamedTuple):
    """What a listener finds: events that it has not heard, and the status of the comparison as of the same moment.

    Attributes:
        events: In order.
        more: Whether there are further ones already.
        status: None where the comparison is gone.
    """

    events: tuple[Event, ...]
    more: bool
    status: Status | None


def add_event(connection: Connection, comparison_id: str, kind: str, payload: Payload) -> int:
    """Append one event inside a transaction of the caller's that has locked the comparison; return its number."""
    last = connection.scalar(select(func.max(events.c.seq)).where(events.c.comparison_id == comparison_id))
    seq = (last or 0) + 1
    connection.execute(
        insert(events).values(
            comparison_id=comparison_id,
            seq=seq,
            at=datetime.now(UTC),
            kind=kind,
            payload=_PAYLOAD.dump_json(payload).decode(),
        )
    )
    return seq


def _following(connection: Connection, comparison_id: str, seq: int, limit: int) -> list[Event]:
    query = (
        select(events.c.seq, events.c.at, events.c.kind, events.c.payload)
        .where(events.c.comparison_id == comparison_id, events.c.seq > seq)
        .order_by(events.c.seq)
        .limit(limit)
    )
    return [Event(*row) for row in connection.execute(query)]


class Events:
    """Reading and appending events."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, comparison_id: str, kind: str, payload: Payload, owner: Holder | None = None) -> int:
        """Append one event durably and return its number.

        Raises:
            LeaseLost: The comparison is no longer ``owner``'s, where one is named.
        """
        with self._database.write() as connection:
            require_lease(connection, comparison_id, owner)
            return add_event(connection, comparison_id, kind, payload)

    def after(self, comparison_id: str, seq: int, limit: int = 500) -> list[Event]:
        """Up to ``limit`` events that follow number ``seq``, in order."""
        with self._database.read() as connection:
            return _following(connection, comparison_id, seq, limit)

    def look(self, comparison_id: str, seq: int, limit: int = 500) -> Look:
        """Up to ``limit`` events that follow number ``seq``, and the status, from one state of the database."""
        status = select(comparisons.c.status).where(comparisons.c.id == comparison_id)
        with self._database.read() as connection:
            found = _following(connection, comparison_id, seq, limit + 1)
            now = connection.scalar(status)
        return Look(tuple(found[:limit]), len(found) > limit, None if now is None else Status(now))

    def of_kind(self, comparison_id: str, kind: str) -> list[Event]:
        """Every event of one kind, in order."""
        query = (
            select(events.c.seq, events.c.at, events.c.kind, events.c.payload)
            .where(events.c.comparison_id == comparison_id, events.c.kind == kind)
            .order_by(events.c.seq)
        )
        with self._database.read() as connection:
            return [Event(*row) for row in connection.execute(query)]

    def latest(self, comparison_id: str, kind: str) -> Event | None:
        """The newest event of one kind, if there is one."""
        query = (
            select(events.c.seq, events.c.at, events.c.kind, events.c.payload)
            .where(events.c.comparison_id == comparison_id, events.c.kind == kind)
            .order_by(events.c.seq.desc())
            .limit(1)
        )
        with self._database.read() as connection:
            row = connection.execute(query).first()
        return Event(*row) if row else None
