"""Trends and noise over stored comparisons. Expected SDs are worked out by hand in the tests."""

import math
from pathlib import Path

import pytest

from equipoise_service.api.halves import shown
from equipoise_service.api.overviews import trend_charts
from equipoise_service.report.history import changes_between, noise_of, past_of, pooled_sd
from equipoise_service.store import Store
from tests.support import records as make
from tests.support import stored as keep
from tests.support.attached import ARMS, client_blocks, launches
from tests.support.worlds import attested, declared_aa, every_word, observed


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(f"sqlite:///{tmp_path / 'equipoise.db'}")


def test_a_trend_is_in_the_order_of_time_and_says_what_changed(store: Store) -> None:
    ship = every_word()["ship"]
    worlds = [attested(ship, "0.5.17"), attested(ship, "0.5.17"), attested(ship, "0.5.23", "NVIDIA B200")]
    ids = [keep.finish(store, *world).id for world in worlds]
    keep.add(store, make.plan())
    past = past_of(store, "simulated", None)
    assert [one.id for one in past] == ids
    assert [one.changes for one in past[:2]] == [(), ()]
    assert past[2].changes == (
        "device: NVIDIA H200, now NVIDIA B200",
        "sglang (baseline): 0.5.17, now 0.5.23",
        "sglang (candidate): 0.5.17, now 0.5.23",
    )
    latency, accuracy = (chart for _, chart in trend_charts(past))
    assert "3 comparisons" in latency and "1 changes marked" in latency
    assert latency.count('class="level"') == accuracy.count('class="level"') == 1
    assert past_of(store, "simulated", "other arms") == []
    assert past_of(store, "unknown", None) == []
    assert trend_charts([]) == []


def test_a_fact_that_is_new_is_a_change() -> None:
    assert changes_between({"a": "1"}, {"a": "1", "b": "2"}) == ("b: not recorded, now 2",)


def test_the_noise_of_each_machine_is_pooled_over_its_controls(store: Store) -> None:
    first = keep.finish(store, *declared_aa()).id
    second = keep.finish(store, *attested(declared_aa(), "0.5.17", "other")).id
    keep.finish(store, *every_word()["ship"])
    machines = noise_of(store)
    assert [one.machine for one in machines] == ["NVIDIA H200", "other"]
    assert [control.id for one in machines for control in one.controls] == [first, second]
    busy = machines[0].controls[0].busy
    assert machines[0].launch_sd == pytest.approx(busy.launch_sd)
    three, five = (busy.model_copy(update={"pairs": n, "launch_sd": sd}) for n, sd in ((3, 0.01), (5, 0.02)))
    # (2 x 0.01^2 + 4 x 0.02^2) / 6
    assert pooled_sd([three, five]) == pytest.approx(math.sqrt(0.0003))
    assert pooled_sd([busy.model_copy(update={"pairs": 1, "launch_sd": None})]) is None


def test_layouts_are_not_pooled_with_each_other(store: Store) -> None:
    together = declared_aa()
    keep.finish(store, *together)
    apart = make.plan(4, declared_aa=True, arms=together.plan.arms, layout="alternating")
    alone = attested(observed(apart, fills=(60.0, 60.0)), "0.5.17")
    keep.finish(store, *alone)
    machines = noise_of(store)
    assert [one.machine for one in machines] == ["NVIDIA H200", "NVIDIA H200, alternating"]
    assert [len(one.controls) for one in machines] == [1, 1]
    assert machines[1].launch_sd == pytest.approx(machines[1].controls[0].busy.launch_sd)


def test_a_clients_times_are_no_noise_of_launches(store: Store) -> None:
    plan = make.plan(arms=ARMS, accuracy=None, declared_aa=True)
    keep.finish(store, plan, make.together(launches(plan, 3), client_blocks(plan, 3, 0.0)))
    assert noise_of(store) == []


def test_a_comparison_that_is_pruned_meanwhile_is_left_out_of_a_trend(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, pruned = (keep.finish(store, *every_word()["ship"]).id for _ in range(2))
    get = store.comparisons.get
    monkeypatch.setattr(store.comparisons, "get", lambda wanted: None if wanted == pruned else get(wanted))
    assert [one.id for one in past_of(store, "simulated", None)] == [kept]


def test_what_is_missing_is_not_drawn_as_zero(store: Store) -> None:
    keep.finish(store, *every_word()["ship"])
    (one,) = past_of(store, "simulated", None)
    effect, low, high, margin = one.intervals["latency"]
    for missing in ([None, low, high, margin], [effect, low, high, None]):
        assert shown("latency", missing) is None
        assert trend_charts([one._replace(intervals={"latency": missing})]) == []
    assert shown("latency", [-0.02, None, 0.01, 0.005]) == (-2.0, None, 0.5, (-0.5, 0.5))


def test_accuracy_can_only_be_lost(store: Store) -> None:
    keep.finish(store, *every_word()["ship"])
    (one,) = past_of(store, "simulated", None)
    latency, accuracy = (chart for _, chart in trend_charts([one]))
    # The band reaches from the margin of loss to the upper edge of the drawing.
    assert 'class="band" x="64" y="30"' in accuracy
    assert 'class="band" x="64" y="30"' not in latency
    found = shown("accuracy", one.intervals["accuracy"])
    assert found is not None
    assert found.bounds == (-1.0, None)
