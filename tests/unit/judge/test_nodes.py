"""Launch pairs of several nodes: the number is theirs together, the nodes are told, and their order plays no part."""

import math
import random
from collections.abc import Sequence

import pytest
from scipy.stats import f_oneway

from equipoise_evals.decode.schedule import launch_order
from equipoise_evals.judge import canonical_json, judge
from equipoise_evals.model import LatencyEvidence, LaunchRecord, Plan, Record, Records, Role
from tests.support import records as make


def on_nodes(nodes: Sequence[str], plan: Plan | None = None) -> list[Record]:
    """Launches of both arms of each pair, on the node named for it."""
    arms: tuple[tuple[Role, str], ...] = (("A", "baseline"), ("B", "persistent"))
    return [
        make.launch(pair, role, arm, launch_order(plan, pair)[0] if plan else None).model_copy(update={"node": node})
        for pair, node in enumerate(nodes, start=1)
        for role, arm in arms
    ]


def evidence(logs: Sequence[float], nodes: Sequence[str], plan: Plan | None = None) -> LatencyEvidence:
    asked = plan or make.plan(accuracy=None)
    records = Records(records=(*on_nodes(nodes, plan), *make.treatment(), *make.exact_blocks(logs, plan)))
    verdict = judge(records, asked)
    assert verdict.latency is not None
    return verdict.latency.evidence


def test_the_interval_is_that_of_all_pairs_and_each_node_is_shown_beside_it() -> None:
    logs = [-0.016, -0.017, -0.018]
    one, two = evidence(logs, ["x", "x", "x"]), evidence(logs, ["x", "y", "x"])
    assert (one.nodes, one.notes) == (None, ())
    assert two.busy == one.busy
    assert two.nodes is not None
    assert two.nodes.units == {"x": 2, "y": 1}
    assert two.nodes.effects == pytest.approx({"x": math.expm1(-0.017), "y": math.expm1(-0.017)}, rel=1e-9)
    assert two.nodes.p_value == pytest.approx(f_oneway([-0.016, -0.018], [-0.017]).pvalue, abs=1e-6)
    assert two.notes == (
        "Launch pairs ran on 2 nodes: -1.69% on x (2), -1.69% on y (1); the number is the mean over all.",
    )


def test_nothing_is_said_of_nodes_where_one_was_not_recorded() -> None:
    """As for a comparison that began on the service's own machine and went on in a cluster."""
    assert evidence([-0.016, -0.017, -0.018], ["", "y", "y"]).nodes is None


def test_nodes_on_which_the_change_is_of_another_size_are_named() -> None:
    found = evidence([-0.0160, -0.0101, -0.0161, -0.0100, -0.0159], ["x", "y", "x", "y", "x"])
    assert found.nodes is not None
    assert found.nodes.p_value is not None
    assert found.nodes.p_value < 0.001
    assert "on another node the change may be of another size" in found.notes[0]
    # What they differ by is in the interval: it is wider than that of the three pairs of one node.
    same = evidence([-0.0160, -0.0161, -0.0159], ["x", "x", "x"])
    assert found.busy.launch_sd is not None
    assert same.busy.launch_sd is not None
    assert found.busy.launch_sd > 10 * same.busy.launch_sd


def test_one_pair_a_node_says_nothing_of_how_pairs_of_a_node_vary() -> None:
    found = evidence([-0.016, -0.010, -0.020], ["x", "y", "z"])
    assert found.nodes is not None
    assert found.nodes.p_value is None
    assert len(found.notes) == 1


def test_a_unit_whose_pairs_ran_on_two_nodes_stands_under_both() -> None:
    plan = make.plan(accuracy=None, layout="crossover")
    found = evidence([-0.016] * 6, ["x", "x", "x", "y", "y", "y"], plan)
    assert found.nodes is not None
    assert found.nodes.units == {"x": 1, "x and y": 1, "y": 1}


def test_a_pair_that_was_launched_again_is_of_the_node_of_its_last_launch() -> None:
    plan = make.plan(accuracy=None)
    again = [one for one in on_nodes(["x", "y"]) if isinstance(one, LaunchRecord) and one.pair == 2]
    blocks = make.exact_blocks([-0.016, -0.017, -0.018])
    launches = [*on_nodes(["x", "z", "x"]), *again]
    verdict = judge(Records(records=(*launches, *make.treatment(), *blocks)), plan)
    assert verdict.latency is not None
    assert verdict.latency.evidence.nodes is not None
    assert verdict.latency.evidence.nodes.units == {"x": 2, "y": 1}


@pytest.mark.parametrize("seed", range(5))
def test_pairs_that_were_measured_at_the_same_time_give_the_same_bytes(seed: int) -> None:
    plan, rng = make.plan(), random.Random(seed)
    by_pair: dict[int, list[Record]] = {0: [make.questions()], 1: [*make.treatment()]}
    for pair in (1, 2, 3):
        by_pair.setdefault(pair, []).extend(
            one for one in (*on_nodes(["x", "y", "x"]), *make.exact_blocks([-0.016, -0.0151, -0.0173]))
            if getattr(one, "pair", 0) == pair
        )  # fmt: skip
    for pair in (1, 2):
        right = {"A": [True] * 12 + [False] * 4, "B": [False] * pair + [True] * (16 - pair)}
        by_pair[pair] += [make.one_pass(pair, role, right[role]) for role in ("A", "B")]
    one_by_one = Records(records=tuple(record for pair in by_pair for record in by_pair[pair]))
    waiting, mixed = {pair: list(of_it) for pair, of_it in by_pair.items() if pair > 1}, [*by_pair[0], *by_pair[1]]
    while any(waiting.values()):
        mixed.append(waiting[rng.choice([pair for pair, left in waiting.items() if left])].pop(0))
    assert [*mixed] != [*one_by_one.records]
    assert canonical_json(judge(Records(records=tuple(mixed)), plan)) == canonical_json(judge(one_by_one, plan))


def test_launch_pairs_on_devices_of_several_kinds_are_named() -> None:
    plan = make.plan(accuracy=None)
    kinds = {1: "H200", 2: "H200", 3: "A100"}
    launches = [
        launch.model_copy(update={"attestation": launch.attestation | {"device": {"name": kinds[launch.pair]}}})
        for launch in make.launches(plan, 3)
        if isinstance(launch, LaunchRecord)
    ]
    blocks = make.exact_blocks([-0.016, -0.017, -0.018])
    latency = judge(make.together(launches, make.treatment(), blocks), plan).latency
    assert latency is not None
    assert latency.evidence.notes == (
        "Launch pairs ran on devices of several kinds: A100 (1), H200 (2). The number is the mean over them, and the "
        "change may be of another size on each.",
    )
