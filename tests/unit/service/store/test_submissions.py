"""A key is accepted once, and a request that is at work can be found again."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError

from equipoise_service.store import (
    Store,
)
from tests.unit.service.store.moves import new


def test_a_key_is_accepted_once(store: Store) -> None:
    first, added = store.comparisons.add(new("k"))
    again, added_again = store.comparisons.add(new("k"))
    assert (added, added_again) == (True, False)
    assert again == first
    assert store.comparisons.by_key("k") == first
    assert store.comparisons.by_key("other") is None


def test_comparisons_without_a_key_never_meet(store: Store) -> None:
    assert store.comparisons.add(new())[0].id != store.comparisons.add(new())[0].id


def test_a_repeated_id_without_a_key_is_a_defect(store: Store) -> None:
    one = new()
    store.comparisons.add(one)
    with pytest.raises(IntegrityError):
        store.comparisons.add(one)


def test_parallel_submissions_with_one_key_make_one_comparison(store: Store) -> None:
    with ThreadPoolExecutor(10) as threads:
        made = [done.result() for done in [threads.submit(store.comparisons.add, new("k")) for _ in range(10)]]
    assert len({stored.id for stored, _ in made}) == 1
    assert [added for _, added in made].count(True) == 1


def test_the_oldest_unfinished_twin_is_found(store: Store) -> None:
    ended, first, _ = [store.comparisons.add(new(sha="a" * 64))[0].id for _ in range(3)]
    store.comparisons.cancel(ended, "r")
    twin = store.comparisons.unfinished_twin("a" * 64)
    assert twin is not None
    assert twin.id == first
    assert store.comparisons.unfinished_twin("b" * 64) is None


def test_of_requests_that_come_at_once_and_may_be_reused_one_is_stored(store: Store, tmp_path: Path) -> None:
    """Each from a service of its own, with a writer of its own, as on a database that they share."""
    stores = [Store.open(f"sqlite:///{tmp_path / 'deep' / 'equipoise.db'}") for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda one: one.comparisons.add(new(sha="1" * 64), reuse=True), stores))
    for one in stores:
        one.database.close()
    assert sorted(added for _, added in made) == [False] * 5 + [True]
    assert len({stored.id for stored, _ in made}) == 1
    other, added = store.comparisons.add(new(sha="2" * 64), reuse=True)
    assert added
    store.comparisons.cancel(other.id, "on request")
    assert store.comparisons.add(new(sha="2" * 64), reuse=True)[1], "what has ended is not reused"
