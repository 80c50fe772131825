"""Claims of a resumed comparison: nobody is taken for the one who held it before."""

import pytest

from equipoise_service.store import Holder, Lease, LeaseLost, Store, StoredRecorder
from tests.support.store import STOP, add, claimed


def test_a_resume_does_not_open_the_fence_again(store: Store) -> None:
    """Attempts are counted anew then, so the first one of the same worker looks like the one before it."""
    comparison_id = add(store)
    assert claimed(store) == comparison_id
    before = StoredRecorder(store.records, comparison_id, owner=holder(store, comparison_id))
    before.append(STOP)
    store.comparisons.cancel(comparison_id, "on request")
    store.comparisons.resume(comparison_id)
    assert claimed(store) == comparison_id
    after = StoredRecorder(store.records, comparison_id, owner=holder(store, comparison_id))
    after.append(STOP)
    with pytest.raises(LeaseLost):
        before.append(STOP)
    stored = store.comparisons.get(comparison_id)
    assert stored is not None
    assert (stored.attempt, stored.claim) == (1, 2)
    assert len(store.records.load(comparison_id).records) == 2


def holder(store: Store, comparison_id: str) -> Holder:
    """Whoever has claimed a comparison just now."""
    stored = store.comparisons.get(comparison_id)
    assert stored is not None
    return Holder("here", stored.claim)


def test_an_orphan_that_was_resumed_meanwhile_is_not_the_one_that_was_seen(store: Store) -> None:
    comparison_id = add(store)
    store.comparisons.claim(Lease("here", lease_s=-1.0))
    (seen,) = store.comparisons.orphans("there")
    store.comparisons.cancel(comparison_id, "on request")
    store.comparisons.resume(comparison_id)
    store.comparisons.claim(Lease("here", lease_s=-1.0))
    assert not store.comparisons.interrupt_orphan(seen, "there", "r")
    (again,) = store.comparisons.orphans("there")
    assert again.attempt == seen.attempt
    assert store.comparisons.interrupt_orphan(again, "there", "r")
