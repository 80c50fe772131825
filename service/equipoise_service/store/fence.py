"""Who may still write about a comparison: its row is locked first, so that writers of several processes take turns."""

from typing import NamedTuple

from sqlalchemy import Connection, select

from equipoise_service.store.tables import comparisons


class Holder(NamedTuple):
    """A worker in one attempt at a comparison.

    The owner alone would not do: on a cluster the same worker may claim a comparison again whose process on a lost node
    is taken for dead, and is not yet.
    """

    owner: str
    attempt: int


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
        LeaseLost: The comparison is not this owner's in this attempt now. Without this a worker that was stopped for
            longer than its lease would go on writing into what another one measures.
    """
    holding = select(comparisons.c.lease_owner, comparisons.c.attempt).where(comparisons.c.id == comparison_id)
    now = connection.execute(holding.with_for_update()).first()
    if owner is not None and (now is None or tuple(now) != owner):
        raise LeaseLost(comparison_id)
