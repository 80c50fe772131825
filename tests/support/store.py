"""Comparisons in an empty database, in any status."""

from equipoise_evals.model import StopRecord
from equipoise_service.ids import new_id
from equipoise_service.store import (
    Lease,
    NewComparison,
    Status,
    Store,
    StoredError,
)

LEASE = Lease("here")


STOP = StopRecord(pair=1, role="A", held_s=1.5, clean=True)


def new(key: str | None = None, model: str = "m", sha: str = "0" * 64) -> NewComparison:
    return NewComparison(new_id(), model, "{}", sha, "{}", key)


def add(store: Store, model: str = "m") -> str:
    return store.comparisons.add(new(model=model))[0].id


def lead_to(store: Store, status: Status) -> str:
    """A comparison in this status, by the shortest way."""
    comparison_id = add(store)
    comparisons = store.comparisons
    error = StoredError(stage="gsm8k", reason="it died")
    if status not in (Status.QUEUED, Status.CANCELLED):
        comparisons.claim(LEASE)
    if status in (Status.JUDGING, Status.SUCCEEDED):
        comparisons.judge(comparison_id)
    if status is Status.SUCCEEDED:
        comparisons.succeed(comparison_id, '{"a":1}', "ship")
    elif status is Status.FAILED:
        comparisons.fail(comparison_id, error)
    elif status is Status.CANCELLED:
        comparisons.cancel(comparison_id, "on request")
    elif status is Status.INTERRUPTED:
        comparisons.interrupt(comparison_id, "killed")
    return comparison_id


def claimed(store: Store, owner: str = "here") -> str | None:
    stored = store.comparisons.claim(Lease(owner))
    return None if stored is None else stored.id
