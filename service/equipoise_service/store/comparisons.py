"""Comparisons: accepted, moved through their statuses, listed. Every change of status is also an event."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

from pydantic import JsonValue
from sqlalchemy import Column, ColumnElement, Connection, RowMapping, Select, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from equipoise_evals.model import Frozen
from equipoise_service.store.database import Database
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


class NewComparison(NamedTuple):
    """What is stored when a comparison is accepted. Texts are JSON."""

    id: str
    model: str
    request: str
    request_sha256: str
    plan: str
    idempotency_key: str | None = None


class Stored(NamedTuple):
    """One comparison as it is stored. ``request``, ``plan`` and ``verdict`` are JSON texts."""

    id: str
    status: Status
    model: str
    request: str
    request_sha256: str
    plan: str
    verdict: str | None
    verdict_word: str | None
    error: StoredError | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @classmethod
    def from_row(cls, row: RowMapping) -> Self:
        """Read one row of the table."""
        error = row["error"]
        values = {name: row[name] for name in cls._fields}
        values["status"] = Status(row["status"])
        values["error"] = None if error is None else StoredError.model_validate_json(error)
        return cls(**values)


class ListFilter(NamedTuple):
    """What a list is narrowed to; None narrows nothing."""

    model: str | None = None
    verdict: str | None = None
    status: Status | None = None


class Page(NamedTuple):
    """One page of a list, newest first; ``next_before`` is the id to go on from, None on the last page."""

    items: tuple[Stored, ...]
    next_before: str | None


class Comparisons:
    """The comparisons of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._on_end: list[Callable[[str], None]] = []

    def on_end(self, told: Callable[[str], None]) -> None:
        """Call ``told`` with the id of every comparison that ends in this process, once that is committed."""
        self._on_end.append(told)

    def add(self, new: NewComparison) -> tuple[Stored, bool]:
        """Store a new comparison as queued.

        Returns:
            The comparison and True; or, where its idempotency key is taken, the one that has it and False.
        """
        try:
            with self._database.write() as connection:
                connection.execute(
                    insert(comparisons).values(**new._asdict(), status=Status.QUEUED, created_at=datetime.now(UTC))
                )
                add_event(connection, new.id, "status", {"status": Status.QUEUED})
        except IntegrityError:
            holder = self.by_key(new.idempotency_key) if new.idempotency_key else None
            if holder is None:
                raise
            return holder, False
        stored = self.get(new.id)
        assert stored is not None  # noqa: S101 - it was committed a moment ago and nothing deletes comparisons
        return stored, True

    def get(self, comparison_id: str) -> Stored | None:
        """The comparison with this id, if there is one."""
        return self._one(select(comparisons).where(comparisons.c.id == comparison_id))

    def by_key(self, idempotency_key: str) -> Stored | None:
        """The comparison that was submitted with this idempotency key, if there is one."""
        return self._one(select(comparisons).where(comparisons.c.idempotency_key == idempotency_key))

    def next_queued(self) -> Stored | None:
        """The comparison that has been queued longest."""
        query = select(comparisons).where(comparisons.c.status == Status.QUEUED)
        return self._one(query.order_by(comparisons.c.id).limit(1))

    def queued(self) -> int:
        """How many wait."""
        query = select(func.count()).select_from(comparisons).where(comparisons.c.status == Status.QUEUED)
        with self._database.read() as connection:
            return int(connection.scalar(query) or 0)

    def count_by_status(self) -> dict[str, int]:
        """How many there are of each status that occurs."""
        return self._counts(comparisons.c.status)

    def count_by_verdict(self) -> dict[str, int]:
        """How many there are of each verdict's word that occurs."""
        return self._counts(comparisons.c.verdict_word)

    def _counts(self, column: Column[str]) -> dict[str, int]:
        query = select(column, func.count()).where(column.is_not(None)).group_by(column)
        with self._database.read() as connection:
            return {str(word): int(count) for word, count in connection.execute(query)}

    def page(self, chosen: ListFilter, limit: int, before: str | None = None) -> Page:
        """Comparisons, newest first.

        Args:
            chosen: What to narrow the list to.
            limit: At most so many.
            before: Only those older than this id.
        """
        conditions: list[ColumnElement[bool]] = []
        if chosen.model is not None:
            conditions.append(_of_model(chosen.model))
        if chosen.verdict is not None:
            conditions.append(comparisons.c.verdict_word == chosen.verdict)
        if chosen.status is not None:
            conditions.append(comparisons.c.status == chosen.status)
        if before is not None:
            conditions.append(comparisons.c.id < before)
        # One more than asked for tells whether there is a next page.
        query = select(comparisons).where(*conditions).order_by(comparisons.c.id.desc()).limit(limit + 1)
        with self._database.read() as connection:
            found = [Stored.from_row(row) for row in connection.execute(query).mappings()]
        items = tuple(found[:limit])
        return Page(items, items[-1].id if len(found) > limit else None)

    def start(self, comparison_id: str) -> None:
        """Queued becomes running."""
        self._move(comparison_id, Status.RUNNING, started_at=datetime.now(UTC))

    def judge(self, comparison_id: str) -> None:
        """Running becomes judging."""
        self._move(comparison_id, Status.JUDGING)

    def succeed(self, comparison_id: str, verdict: str, word: str) -> None:
        """Judging becomes succeeded; ``verdict`` is its canonical JSON and ``word`` its overall word."""
        self._move(comparison_id, Status.SUCCEEDED, verdict=verdict, verdict_word=word)

    def fail(self, comparison_id: str, error: StoredError) -> None:
        """Running or judging becomes failed."""
        self._move(comparison_id, Status.FAILED, error=error.model_dump_json())

    def cancel(self, comparison_id: str, reason: str) -> None:
        """Queued, running or judging becomes cancelled."""
        error = StoredError(stage="cancel", reason=reason)
        self._move(comparison_id, Status.CANCELLED, error=error.model_dump_json())

    def interrupt(self, comparison_id: str, reason: str) -> None:
        """Running or judging becomes interrupted."""
        error = StoredError(stage="interrupt", reason=reason)
        self._move(comparison_id, Status.INTERRUPTED, error=error.model_dump_json())

    def resume(self, comparison_id: str) -> None:
        """Failed, cancelled or interrupted becomes queued again; its records stay and are gone on with."""
        self._move(comparison_id, Status.QUEUED, error=None, finished_at=None)

    def active(self) -> list[str]:
        """Ids of comparisons that a worker is, or was, at work on."""
        query = select(comparisons.c.id).where(comparisons.c.status.in_(ACTIVE)).order_by(comparisons.c.id)
        with self._database.read() as connection:
            return list(connection.scalars(query))

    def _move(self, comparison_id: str, wanted: Status, **values: datetime | str | None) -> None:
        """One transition: the row and the event that tells of it, in one transaction."""
        with self._database.write() as connection:
            current = _status(connection, comparison_id)
            require_transition(comparison_id, current, wanted)
            if wanted in FINAL:
                values["finished_at"] = datetime.now(UTC)
            connection.execute(
                update(comparisons).where(comparisons.c.id == comparison_id).values(status=wanted, **values)
            )
            payload: dict[str, JsonValue] = {"status": wanted}
            if "verdict_word" in values:
                payload["verdict"] = str(values["verdict_word"])
            if values.get("error") is not None:
                payload["reason"] = StoredError.model_validate_json(str(values["error"])).reason
            add_event(connection, comparison_id, "status", payload)
            if wanted in FINAL:
                add_deliveries(connection, comparison_id)
        if wanted in FINAL:
            for told in self._on_end:
                told(comparison_id)

    def _one(self, query: Select[Any]) -> Stored | None:
        with self._database.read() as connection:
            row = connection.execute(query).mappings().first()
        return None if row is None else Stored.from_row(row)


def _of_model(name: str) -> ColumnElement[bool]:
    """Asked for by this name, or planned under it: a reader who sees the embedded model's name may filter by it.

    The plan is text that both databases can search, and a quotation mark inside any of its values is escaped.
    """
    planned = f'"model":{{"name":{json.dumps(name, ensure_ascii=False)},'
    return or_(comparisons.c.model == name, comparisons.c.plan.contains(planned, autoescape=True))


def _status(connection: Connection, comparison_id: str) -> Status:
    # FOR UPDATE is nothing on SQLite, where the transaction holds the write lock, and what PostgreSQL needs.
    query = select(comparisons.c.status).where(comparisons.c.id == comparison_id).with_for_update()
    return Status(connection.execute(query).scalar_one())
