"""What ended comparisons take up, and their removal: rows and what lies beside the database, both or neither."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import ColumnElement, delete, func, select

from equipoise_service.store.database import Database
from equipoise_service.store.status import FINAL, Status
from equipoise_service.store.tables import comparisons, events, record_parts


class Kept(NamedTuple):
    """One ended comparison; ``size`` is about what its rows take up, in bytes."""

    id: str
    status: Status
    verdict: str | None
    model: str
    ended_at: datetime
    size: int


def ended(database: Database) -> Iterator[Kept]:
    """Every ended comparison, oldest first."""
    its_records = record_parts.c.comparison_id == comparisons.c.id
    its_events = events.c.comparison_id == comparisons.c.id
    size = (
        _sum_of(func.length(record_parts.c.payload), its_records)
        + _sum_of(func.length(record_parts.c.payload_zlib), its_records)
        + _sum_of(func.length(events.c.payload), its_events)
        + func.length(comparisons.c.plan)
        + func.coalesce(func.length(comparisons.c.verdict), 0)
    )
    at = func.coalesce(comparisons.c.finished_at, comparisons.c.created_at)
    query = (
        select(comparisons.c.id, comparisons.c.status, comparisons.c.verdict_word, comparisons.c.model, at, size)
        .where(comparisons.c.status.in_(FINAL))
        .order_by(comparisons.c.id)
    )
    with database.read() as connection:
        rows = connection.execute(query).all()
    return (Kept(row[0], Status(row[1]), *row[2:]) for row in rows)


def _sum_of(length: ColumnElement[int], condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.coalesce(select(func.sum(length)).where(condition).correlate(comparisons).scalar_subquery(), 0)


def remove(database: Database, comparison_id: str, beside: Callable[[], None]) -> bool:
    """Remove an ended comparison with its records and events; False if it has not ended, or is gone, by now.

    ``beside`` removes what lies outside of the database. It is called before the rows are gone for good, so that a
    removal that dies in between can be done again.
    """
    query = delete(comparisons).where(comparisons.c.id == comparison_id, comparisons.c.status.in_(FINAL))
    with database.write() as connection:
        if connection.execute(query).rowcount == 0:
            return False
        beside()
    return True


def shrink(file: Path) -> None:
    """Give unused space in a SQLite file back to the disk.

    Raises:
        sqlite3.OperationalError: Somebody else works with the file.
    """
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
