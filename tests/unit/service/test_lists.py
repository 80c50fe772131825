"""What lists are narrowed to and sorted by. Expected orders follow from the effects and times that are put in."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from equipoise_evals.model import ArmPair, ArmSpec, LaunchRecord, Plan
from equipoise_service.store import ListFilter, Sort, Store
from equipoise_service.store.lists import spark_of
from equipoise_service.store.tables import comparisons
from tests.support import records as make
from tests.support import stored as keep
from tests.support.worlds import every_word, observed

EFFECTS = (-0.01, 0.03, -0.05, 0.0)
MONDAY = datetime(2026, 11, 30, tzinfo=UTC)


def on(device: object, plan: Plan) -> tuple[LaunchRecord, ...]:
    launch = make.launch(1, "A", plan.arms.baseline.scratch)
    return (launch.model_copy(update={"attestation": launch.attestation | {"device": device}}),)


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, list[str]]:
    """Four comparisons with verdicts, one a day from Monday on, and one without."""
    store = Store.open(f"sqlite:///{tmp_path_factory.mktemp('lists') / 'equipoise.db'}")
    ids = []
    for day, effect in enumerate(EFFECTS):
        plan, records = observed(make.plan(), effect=effect, launch_sd=0.0)
        if day % 2:
            other = ArmSpec(name="forked", scratch="persistent")
            plan = plan.model_copy(update={"arms": ArmPair(baseline=plan.arms.baseline, candidate=other)})
        first = on({"name": "NVIDIA H200", "type": "cuda"} if day < 3 else {"name": "x86_64", "type": "cpu"}, plan)
        ids.append(keep.finish(store, plan, records.model_copy(update={"records": first + records.records})).id)
    ids.append(keep.add(store, make.plan()))
    with store.database.write() as connection:
        for day, comparison_id in enumerate(ids):
            when = MONDAY + timedelta(days=day, hours=1)
            connection.execute(update(comparisons).where(comparisons.c.id == comparison_id).values(created_at=when))
    return store, ids


def shown(listed: tuple[Store, list[str]], chosen: ListFilter, sort: Sort = "newest", limit: int = 2) -> list[int]:
    """Places of the comparisons listed, over all pages."""
    store, ids = listed
    found, before = [], None
    while True:
        page = store.comparisons.page(chosen, limit, before, sort)
        found += [ids.index(item.id) for item in page.items]
        if (before := page.next_before) is None:
            return found


@pytest.mark.parametrize(
    ("chosen", "sort", "expected"),
    [
        (ListFilter(), "newest", [4, 3, 2, 1, 0]),
        (ListFilter(), "oldest", [0, 1, 2, 3, 4]),
        (ListFilter(), "fastest", [2, 0, 3, 1]),
        (ListFilter(), "slowest", [1, 3, 0, 2]),
        (ListFilter(arms="baseline → forked"), "newest", [3, 1]),
        (ListFilter(arms="baseline → persistent"), "fastest", [2, 0]),
        (ListFilter(machine="NVIDIA H200"), "newest", [2, 1, 0]),
        (ListFilter(machine="x86_64"), "newest", [3]),
        (ListFilter(model="simulated"), "slowest", [1, 3, 0, 2]),
        (ListFilter(model="simulated", machine="NVIDIA H200"), "oldest", [0, 1, 2]),
        (ListFilter(since=MONDAY + timedelta(days=3)), "newest", [4, 3]),
        (ListFilter(until=MONDAY + timedelta(days=1)), "newest", [0]),
        (ListFilter(since=MONDAY + timedelta(days=1), until=MONDAY + timedelta(days=2)), "newest", [1]),
        (ListFilter(machine="none"), "newest", []),
    ],
)
def test_lists(listed: tuple[Store, list[str]], chosen: ListFilter, sort: Sort, expected: list[int]) -> None:
    assert shown(listed, chosen, sort) == expected


def test_equal_effects_are_neither_lost_nor_repeated(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'equipoise.db'}")
    world = observed(make.plan(), launch_sd=0.0)
    ids = [keep.finish(store, *world).id for _ in range(5)]
    for sort in ("fastest", "slowest"):
        assert sorted(shown((store, ids), ListFilter(), sort)) == [0, 1, 2, 3, 4]


def test_an_effect_that_proves_nothing_has_no_place_among_the_fastest(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'equipoise.db'}")
    ids = [keep.finish(store, *world).id for world in every_word().values()]
    words = list(every_word())
    for sort in ("fastest", "slowest"):
        found = [words[place] for place in shown((store, ids), ListFilter(), sort)]
        assert sorted(found) == ["block", "inconclusive", "neutral", "ship"]
    assert len(shown((store, ids), ListFilter())) == len(words)


def test_facets_are_what_occurs(listed: tuple[Store, list[str]]) -> None:
    facets = listed[0].comparisons.facets()
    assert facets.models == ("simulated",)
    assert facets.arms == ("baseline → forked", "baseline → persistent")
    assert facets.machines == ("NVIDIA H200", "x86_64")


def test_a_half_that_was_not_measured_has_no_interval() -> None:
    assert spark_of({"latency": None, "accuracy": None}) == {}
    evidence = {"busy": {"effect": -0.5, "interval": None}, "margin": 0.1}
    assert spark_of({"latency": {"evidence": evidence}, "accuracy": None}) == {"latency": [-0.5, None, None, 0.1]}
