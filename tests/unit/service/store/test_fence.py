"""Who lost a comparison writes nothing about it, however like its successor it looks."""

import pytest

from equipoise_service.store import (
    Holder,
    Lease,
    LeaseLost,
    Status,
    Store,
    StoredError,
    StoredRecorder,
)
from tests.unit.service.store.moves import STOP, add, claimed


def test_an_earlier_claim_of_the_same_worker_writes_nothing(store: Store) -> None:
    """On a cluster a process that was taken for dead may outlive the claim that its own worker makes next."""
    comparison_id = add(store)
    recorders = []
    for claim in (1, 2):
        assert claimed(store) == comparison_id
        recorders.append(StoredRecorder(store.records, comparison_id, owner=Holder("here", claim)))
        if claim == 1:
            store.comparisons.release(comparison_id, "its node was lost")
    recorders[1].append(STOP)
    with pytest.raises(LeaseLost):
        recorders[0].append(STOP)
    assert len(store.records.load(comparison_id).records) == 1


def test_a_worker_that_lost_its_comparison_writes_nothing_about_it(store: Store) -> None:
    comparison_id = add(store)
    store.comparisons.claim(Lease("stopped", lease_s=-1.0))
    stopped = Holder("stopped", 1)
    recorder = StoredRecorder(store.records, comparison_id, owner=stopped)
    recorder.append(STOP)
    (orphan,) = store.comparisons.orphans("here")
    assert store.comparisons.release_orphan(orphan, "here", "no heartbeat")
    assert claimed(store) == comparison_id
    events = store.events.after(comparison_id, 0)
    comparisons, owner = store.comparisons, stopped
    for write in (
        lambda: recorder.append(STOP),
        lambda: store.events.append(comparison_id, "progress", {}, owner),
        lambda: comparisons.judge(comparison_id, owner),
        lambda: comparisons.succeed(comparison_id, "{}", "ship", owner),
        lambda: comparisons.fail(comparison_id, StoredError(stage="s", reason="r"), owner),
        lambda: comparisons.cancel(comparison_id, "r", owner),
        lambda: comparisons.interrupt(comparison_id, "r", owner),
        lambda: comparisons.release(comparison_id, "r", owner),
    ):
        with pytest.raises(LeaseLost, match="no longer this worker's"):
            write()
    assert store.events.after(comparison_id, 0) == events
    assert len(store.records.load(comparison_id).records) == 1
    assert store.comparisons.get(comparison_id).status is Status.RUNNING  # type: ignore[union-attr] # it was just added


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
