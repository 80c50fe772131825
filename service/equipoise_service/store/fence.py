"""Who may still write about a comparison: its row is locked first, so that writers of several processes take turns."""

from typing import NamedTuple

from sqlalchemy import Connection, func, select

from equipoise_service.store.tables import comparisons


class Holder(NamedTuple):
    """A worker with one claim on a comparison.

    The owner alone would not do: on a cluster the same worker may claim a comparison again whose process on a lost node
    is taken for dead, and is not yet. Nor would the attempt, which begins anew when a comparison is resumed; the number
    of a claim never comes again.
    """

    owner: str
    claim: int


class LeaseLost(Exception):
    """A worker was to write about a comparison that somebody took over or ended meanwhile; nothing was written."""

    def __init__(self, comparison_id: str) -> None:
        super().__init__(f"comparison {comparison_id} is no longer this worker's to work on")


def require_lease(connection: Connection, comparison_id: str, owner: Holder | None) -> None:
    """Lock the comparison's row until the transaction ends; on SQLite the transaction holds the write lock already.

    Args:
        connection: Of a transaction of the caller's.
        comparison_id: Which comparison.
        owner: The worker that writes, None for whoever needs no lease: the API, an order to cancel.

    Raises:
        LeaseLost: The comparison is not this owner's by this claim now. Without this a worker that was stopped for
            longer than its lease would go on writing into what another one measures.
    """
    holding = select(comparisons.c.lease_owner, comparisons.c.claim).where(comparisons.c.id == comparison_id)
    now = connection.execute(holding.with_for_update()).first()
    if owner is not None and (now is None or tuple(now) != owner):
        raise LeaseLost(comparison_id)


def one_at_a_time(connection: Connection, digest: str) -> None:
    """Wait for every other transaction that was given the same hexadecimal digest, until this one ends.

    For what is not a row yet. On SQLite the transaction holds the write lock already.
    """
    if connection.dialect.name != "sqlite":
        connection.execute(select(func.pg_advisory_xact_lock(int(digest[:15], 16))))
