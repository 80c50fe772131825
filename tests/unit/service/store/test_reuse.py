"""A request that is at work is reused, also where two services are asked at once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from equipoise_service.store import Store
from tests.support.store import new


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
