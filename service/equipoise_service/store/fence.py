"""Who may still write about a comparison: its row is locked first, so that writers of several processes take turns."""

from sqlalchemy import Connection, select

from equipoise_service.store.tables import comparisons


class LeaseLost(Exception):
    """A worker was to write about a comparison that somebody took over or ended meanwhile; nothing was written."""

    def __init__(self, comparison_id: str) -> None:
        super().__init__(f"comparison {comparison_id} is no longer this worker's to work on")


def require_lease(connection: Connection, comparison_id: str, owner: str | None) -> None:
    """Lock the comparison's row until the transaction ends; on SQLite the transaction holds the write lock already.

    Args:
        connection: Of a transaction of the caller's.
        comparison_id: Which comparison.
        owner: The worker that writes, None for whoever needs no lease: the API, an order to cancel.

    Raises:
        LeaseLost: The comparison is not this owner's now. Without this a worker that was stopped for longer than its
            lease would go on writing into what another one measures.
    """
    query = select(comparisons.c.lease_owner).where(comparisons.c.id == comparison_id).with_for_update()
    holder = connection.scalar(query)
    if owner is not None and holder != owner:
        raise LeaseLost(comparison_id)
