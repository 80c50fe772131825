"""A comparison from another database, stored with its id, its records and its events, byte for byte."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, insert, update

from equipoise_service.store.comparisons import Stored
from equipoise_service.store.events import Event
from equipoise_service.store.lists import accepted_columns, verdict_columns
from equipoise_service.store.records import row_of
from equipoise_service.store.tables import comparisons, events, record_parts


class Arriving(NamedTuple):
    """An ended comparison; ``records`` are kind and JSON text, in the order observed."""

    stored: Stored
    records: Sequence[tuple[str, str]]
    events: Sequence[Event]


def insert_arriving(connection: Connection, arriving: Arriving) -> None:
    """Store it inside a transaction of the caller's. It keeps no idempotency key: that was the other service's."""
    stored = arriving.stored
    values = stored._asdict() | {
        "error": None if stored.error is None else stored.error.model_dump_json(),
        "reason": None if stored.error is None else stored.error.reason,
        **accepted_columns(stored.plan, stored.request, stored.model),
    }
    connection.execute(insert(comparisons).values(**values))
    rows = [row_of(stored.id, seq, kind, text) for seq, (kind, text) in enumerate(arriving.records, 1)]
    if rows:
        connection.execute(insert(record_parts), rows)
    if stored.verdict is not None:
        shown = verdict_columns(connection, stored.id, stored.verdict)
        connection.execute(update(comparisons).where(comparisons.c.id == stored.id).values(**shown))
    if arriving.events:
        connection.execute(insert(events), [{"comparison_id": stored.id, **e._asdict()} for e in arriving.events])
