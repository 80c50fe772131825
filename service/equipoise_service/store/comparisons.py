"""Comparisons: accepted, moved through their statuses, listed. Every change of status is also an event."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Self

from sqlalchemy import Column, ColumnElement, RowMapping, Select, and_, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from equipoise_service.store.database import Database
from equipoise_service.store.events import add_event
from equipoise_service.store.fence import Holder, one_at_a_time, require_lease
from equipoise_service.store.lists import (
    Facets,
    ListFilter,
    Page,
    Sort,
    accepted_columns,
    read_facets,
    read_page,
    verdict_columns,
)
from equipoise_service.store.status import ACTIVE, FINAL, InvalidTransition, Status
from equipoise_service.store.tables import comparisons
from equipoise_service.store.transitions import Lease, StoredError, begin, status_of, transition
from equipoise_service.store.turns import next_in_turn


class NewComparison(NamedTuple):
    """What is stored when a comparison is accepted. Texts are JSON, but for ``submitter``: the id of a token, or ''."""

    id: str
    model: str
    request: str
    request_sha256: str
    plan: str
    idempotency_key: str | None = None
    priority: int = 0
    submitter: str = ""


class Stored(NamedTuple):
    """One comparison as it is stored. ``request``, ``plan`` and ``verdict`` are JSON texts.

    Attributes:
        attempt: How often a worker has begun it since it was queued or resumed.
        claim: How often one has ever done so.
        cancel_requested_at: When its cancellation was asked for; its engines are being ended.
    """

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
    priority: int
    attempt: int
    claim: int
    heartbeat_at: datetime | None
    deadline_at: datetime | None
    cancel_requested_at: datetime | None

    @classmethod
    def from_row(cls, row: RowMapping) -> Self:
        """Read one row of the table."""
        error = row["error"]
        values = {name: row[name] for name in cls._fields}
        values["status"] = Status(row["status"])
        values["error"] = None if error is None else StoredError.model_validate_json(error)
        return cls(**values)


class Comparisons:
    """The comparisons of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._on_end: list[Callable[[str], None]] = []

    def on_end(self, told: Callable[[str], None]) -> None:
        """Call ``told`` with the id of every comparison that ends in this process, once that is committed."""
        self._on_end.append(told)

    def add(self, new: NewComparison, *, reuse: bool = False) -> tuple[Stored, bool]:
        """Store a new comparison as queued.

        With ``reuse`` only if none of the same request waits or is at work; of two that come at once, from services on
        two machines too, one is stored.

        Returns:
            The comparison and True; or the one that has its idempotency key, or is reused, and False.
        """
        try:
            with self._database.write() as connection:
                if reuse:
                    one_at_a_time(connection, new.request_sha256)
                    twin = connection.execute(_twins(new.request_sha256)).mappings().first()
                    if twin is not None:
                        return Stored.from_row(twin), False
                row = new._asdict() | accepted_columns(new.plan, new.request, new.model)
                connection.execute(
                    insert(comparisons).values(**row, status=Status.QUEUED, created_at=datetime.now(UTC))
                )
                add_event(connection, new.id, "status", {"status": Status.QUEUED})
        except IntegrityError:
            holder = self.by_key(new.idempotency_key) if new.idempotency_key else None
            if holder is None:
                raise
            return holder, False
        stored = self.get(new.id)
        assert stored is not None  # noqa: S101 - it was committed a moment ago and only what has ended is removed
        return stored, True

    def get(self, comparison_id: str) -> Stored | None:
        """The comparison with this id, if there is one."""
        return self._one(select(comparisons).where(comparisons.c.id == comparison_id))

    def status(self, comparison_id: str) -> Status | None:
        """The status of the comparison with this id, if there is one; nothing large is read for it."""
        query = select(comparisons.c.status).where(comparisons.c.id == comparison_id)
        with self._database.read() as connection:
            found = connection.scalar(query)
        return None if found is None else Status(found)

    def by_key(self, idempotency_key: str) -> Stored | None:
        """The comparison that was submitted with this idempotency key, if there is one."""
        return self._one(select(comparisons).where(comparisons.c.idempotency_key == idempotency_key))

    def unfinished_twin(self, request_sha256: str) -> Stored | None:
        """The oldest comparison of the same request that has not ended."""
        return self._one(_twins(request_sha256))

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

    def waiting_since(self) -> datetime | None:
        """When the comparison was submitted that has waited longest; None if none waits."""
        query = select(comparisons.c.created_at).where(comparisons.c.status == Status.QUEUED)
        return self._instant(query.order_by(comparisons.c.id).limit(1))

    def heartbeat(self) -> datetime | None:
        """The newest heartbeat of the comparisons that are at work; None if none is."""
        query = select(comparisons.c.heartbeat_at).where(comparisons.c.status.in_(ACTIVE))
        return self._instant(query.order_by(comparisons.c.heartbeat_at.desc()).limit(1))

    def _instant(self, query: Select[Any]) -> datetime | None:
        with self._database.read() as connection:
            found: datetime | None = connection.scalar(query)
        return found

    def claim(self, lease: Lease) -> Stored | None:
        """Begin the queued comparison whose turn it is (see ``turns``); None if none is queued."""
        query = select(comparisons.c.id).where(comparisons.c.status == Status.QUEUED)
        with self._database.read() as connection:
            if connection.scalar(query.limit(1)) is None:
                return None  # a write, of nothing too, would ring the bell on which an idle worker waits
        with self._database.write() as connection:
            # What another process is just claiming is passed over: on PostgreSQL no claim waits for another.
            free = query.with_for_update(skip_locked=True)
            first = connection.scalar(free.where(comparisons.c.id == next_in_turn(connection)))
            if first is None:
                first = connection.scalar(free.order_by(comparisons.c.priority.desc(), comparisons.c.id).limit(1))
            if first is None:
                return None
            begin(connection, first, lease)
            # Inside the transaction: a claim that its worker does not hear of would hold the queue up for good.
            begun = connection.execute(select(comparisons).where(comparisons.c.id == first))
            return Stored.from_row(begun.mappings().one())

    def beat(self, comparison_id: str, lease: Lease) -> bool:
        """Renew the lease; False if the comparison is no longer its owner's to work on."""
        now = datetime.now(UTC)
        renewed = (
            update(comparisons)
            .where(comparisons.c.id == comparison_id, comparisons.c.lease_owner == lease.owner)
            .where(comparisons.c.status.in_(ACTIVE))
            .values(heartbeat_at=now, lease_until=now + timedelta(seconds=lease.lease_s))
        )
        with self._database.write() as connection:
            return connection.execute(renewed).rowcount == 1

    def orphans(self, owner: str) -> list[Stored]:
        """Comparisons that nobody is at work on although their status says so.

        Those of ``owner``, who asks while it works on none; and those whose lease ran out.
        """
        query = select(comparisons).where(_is_orphan(owner)).order_by(comparisons.c.id)
        with self._database.read() as connection:
            return [Stored.from_row(row) for row in connection.execute(query).mappings()]

    def release_orphan(self, orphan: Stored, owner: str, reason: str) -> bool:
        """Queue one of ``orphans`` again; False if it is none any more, and then nothing was changed."""
        return self._settle_orphan(orphan, owner, Status.QUEUED, why=reason)

    def interrupt_orphan(self, orphan: Stored, owner: str, reason: str) -> bool:
        """Interrupt one of ``orphans``; False if it is none any more, and then nothing was changed."""
        error = StoredError(stage="interrupt", reason=reason)
        return self._settle_orphan(orphan, owner, Status.INTERRUPTED, error=error.model_dump_json())

    def cancel_orphan(self, orphan: Stored, owner: str, reason: str) -> bool:
        """Cancel one of ``orphans``; False if it is none any more, and then nothing was changed."""
        error = StoredError(stage="cancel", reason=reason)
        return self._settle_orphan(orphan, owner, Status.CANCELLED, error=error.model_dump_json())

    def _settle_orphan(
        self, orphan: Stored, owner: str, wanted: Status, why: str | None = None, **values: str | None
    ) -> bool:
        """A transition only while the orphan is the one that was seen: its owner may have had its heartbeat since."""
        still = select(comparisons.c.id).where(
            comparisons.c.id == orphan.id, comparisons.c.claim == orphan.claim, _is_orphan(owner)
        )
        with self._database.write() as connection:
            if connection.scalar(still.with_for_update()) is None:
                return False
            transition(connection, orphan.id, wanted, why, **values)
        if wanted in FINAL:
            self._tell(orphan.id)
        return True

    def release(self, comparison_id: str, reason: str, owner: Holder | None = None) -> None:
        """Running or judging becomes queued again: its worker has to let go, and the next one goes on from there."""
        self._move(comparison_id, Status.QUEUED, owner, why=reason)

    def page(self, chosen: ListFilter, limit: int, before: str | None = None, sort: Sort = "newest") -> Page:
        """Comparisons, newest first unless asked otherwise.

        Args:
            chosen: What to narrow the list to.
            limit: At most so many.
            before: Only those that follow the one with this id.
            sort: The order.
        """
        with self._database.read() as connection:
            return read_page(connection, chosen, limit, before, sort)

    def facets(self) -> Facets:
        """Every model, pair of arms and machine that a list can be narrowed to."""
        with self._database.read() as connection:
            return read_facets(connection)

    # With an ``owner`` each of the following raises LeaseLost unless the comparison is that worker's.

    def judge(self, comparison_id: str, owner: Holder | None = None) -> None:
        """Running becomes judging; said again, since the answer to a commit was lost, it stays so."""
        with self._database.write() as connection:
            require_lease(connection, comparison_id, owner)
            if owner is None or status_of(connection, comparison_id) is not Status.JUDGING:
                transition(connection, comparison_id, Status.JUDGING)

    def succeed(self, comparison_id: str, verdict: str, word: str, owner: Holder | None = None) -> None:
        """Judging becomes succeeded; ``verdict`` is its canonical JSON and ``word`` its overall word."""
        with self._database.write() as connection:
            require_lease(connection, comparison_id, owner)
            shown = verdict_columns(connection, comparison_id, verdict)
            transition(connection, comparison_id, Status.SUCCEEDED, verdict=verdict, verdict_word=word, **shown)
        self._tell(comparison_id)

    def fail(self, comparison_id: str, error: StoredError, owner: Holder | None = None) -> None:
        """Running or judging becomes failed."""
        self._move(comparison_id, Status.FAILED, owner, error=error.model_dump_json())

    def request_cancel(self, comparison_id: str) -> None:
        """Note that one at work is to be cancelled as soon as its engines are gone, by whoever is at work then."""
        asked = update(comparisons).where(comparisons.c.id == comparison_id, comparisons.c.status.in_(ACTIVE))
        with self._database.write() as connection:
            connection.execute(asked.values(cancel_requested_at=datetime.now(UTC)))

    def cancel(self, comparison_id: str, reason: str, owner: Holder | None = None) -> None:
        """Queued, running or judging becomes cancelled."""
        error = StoredError(stage="cancel", reason=reason)
        self._move(comparison_id, Status.CANCELLED, owner, error=error.model_dump_json())

    def interrupt(self, comparison_id: str, reason: str, owner: Holder | None = None) -> None:
        """Running or judging becomes interrupted."""
        error = StoredError(stage="interrupt", reason=reason)
        self._move(comparison_id, Status.INTERRUPTED, owner, error=error.model_dump_json())

    def resume(self, comparison_id: str) -> None:
        """Failed, cancelled or interrupted becomes queued again; its records stay and are gone on with."""
        with self._database.write() as connection:
            current = status_of(connection, comparison_id)
            if current in ACTIVE:
                raise InvalidTransition(comparison_id, current, Status.QUEUED)
            transition(connection, comparison_id, Status.QUEUED, error=None, finished_at=None, attempt=0)

    def _move(
        self, comparison_id: str, wanted: Status, owner: Holder | None, why: str | None = None, **values: str | None
    ) -> None:
        """One transition: the row and the event that tells of it, in one transaction."""
        with self._database.write() as connection:
            require_lease(connection, comparison_id, owner)
            transition(connection, comparison_id, wanted, why, **values)
        if wanted in FINAL:
            self._tell(comparison_id)

    def _tell(self, comparison_id: str) -> None:
        """Tell whoever wants to hear of ends."""
        for told in self._on_end:
            told(comparison_id)

    def _one(self, query: Select[Any]) -> Stored | None:
        with self._database.read() as connection:
            row = connection.execute(query).mappings().first()
        return None if row is None else Stored.from_row(row)


def _twins(request_sha256: str) -> Select[Any]:
    waiting = comparisons.c.status.in_(ACTIVE | {Status.QUEUED})
    query = select(comparisons).where(comparisons.c.request_sha256 == request_sha256, waiting)
    return query.order_by(comparisons.c.id).limit(1)


def _is_orphan(owner: str) -> ColumnElement[bool]:
    """The condition of ``Comparisons.orphans``, as it is now."""
    lost = or_(
        comparisons.c.lease_owner.is_(None),
        comparisons.c.lease_owner == owner,
        comparisons.c.lease_until < datetime.now(UTC),
    )
    return and_(comparisons.c.status.in_(ACTIVE), lost)
