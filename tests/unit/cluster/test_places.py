"""What a comparison asks of a node; needs the extra, and no cluster."""

import pytest

from tests.support import records as make

pytest.importorskip("ray")

from equipoise_service.cluster.places import LABEL, resources, some_node_has, told
from equipoise_service.store import StoredError
from equipoise_service.worker import MeasuredElsewhere, PlaceLost, stored_error


def test_all_gpus_of_a_comparison_are_one_bundle_of_one_node() -> None:
    arms = make.plan().arms
    wide = {
        name: getattr(arms, name).model_copy(update={"flags": ("--tp-size", "2")}) for name in type(arms).model_fields
    }
    plan = make.plan(layout="crossover", arms=arms.model_copy(update=wide), gpu_type="H200")
    assert dict(resources(plan, "cuda", 3.0)) == {"CPU": 3.0, "GPU": 4.0, "accelerator_type:H200": LABEL}
    assert dict(resources(make.plan(layout="crossover"), "cuda", 1.0)) == {"CPU": 1.0, "GPU": 2.0}
    assert dict(resources(make.plan(), "cpu", 2.0)) == {"CPU": 2.0}


def test_what_failed_elsewhere_is_stored_as_it_was_told() -> None:
    told = StoredError(arm="B", stage="decode", reason="it died", log_tail="tail")
    assert stored_error(MeasuredElsewhere(told, expected=True)) == told
    assert stored_error(PlaceLost("the node is gone")) == StoredError(stage="place", reason="the node is gone")


def test_all_of_it_has_to_be_on_one_node() -> None:
    bundle = (("CPU", 2.0), ("GPU", 2.0))
    apart = {"a": {"CPU": 8.0, "GPU": 1.0}, "b": {"CPU": 8.0, "GPU": 1.0}}
    assert not some_node_has(bundle, apart)
    assert some_node_has(bundle, apart | {"c": {"CPU": 2.0, "GPU": 2.0}})
    assert not some_node_has(bundle, {})


def test_nodes_are_told_by_what_a_comparison_can_ask_for() -> None:
    nodes = {"b": {"CPU": 8.0, "GPU": 1.0, "accelerator_type:H200": 1.0, "memory": 1e9}, "a": {"memory": 1e9}}
    assert told(nodes) == "b: 8 CPU, 1 GPU, accelerator_type:H200"
    assert told({"a": {"memory": 1e9}}) == "no node with cores"
