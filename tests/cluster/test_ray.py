"""Comparisons on a Ray cluster of three nodes on the loopback, over simulated engines. Run by ``make test-ray``.

The service is a process of its own, the nodes are raylets of this machine, and what is asserted is read out of the
records: on which node each engine ran is recorded with its launch.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import pytest

from equipoise_evals.gsm8k.load import SHIPPED
from equipoise_evals.model import LaunchRecord, Records, StopRecord
from equipoise_service.engines.leftovers import engines_below
from equipoise_service.store import FINAL, Status, Store, Stored
from tests.integration.service.served import Serving, variables_of
from tests.integration.service.test_chaos import require_measured_once

pytest.importorskip("ray")

from tests.support.loopback_cluster import loopback_cluster

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1_200)]

COMPARISONS = 60
LONG = 9
"""Comparisons of three launch pairs; the others have one."""
SMALL: dict[str, Any] = {
    "model": "m", "pairs_max": 1, "quads": 1, "steps_per_block": 16, "batch_sizes": [1], "primary_batch": 1,
    "questions": 2, "shots": 0,
}  # fmt: skip
Told = LaunchRecord | StopRecord
SAME = {"scratch": "baseline", "name": "persistent"}
KINDS: dict[str, dict[str, Any]] = {
    "long": SMALL | {"pairs_max": 3},
    "latency": SMALL | {"parts": ["latency"]},
    "accuracy": SMALL | {"parts": ["accuracy"]},
    "inactive": SMALL | {"candidate": SAME},
}
WORLD: dict[str, Any] = {
    "effect": {"persistent": -0.0164}, "accuracy": 1.0, "questions": [str(SHIPPED / "test.jsonl")],
}  # fmt: skip
PATIENCE_S = 600.0


class OnCluster(NamedTuple):
    """A cluster, a service that places comparisons there, and its database."""

    cluster: Any
    serving: Serving
    store: Store
    folder: Path

    def submit(self, body: dict[str, Any]) -> str:
        """Submit a comparison; its id."""
        answer = httpx.post(f"{self.serving.url}/compare", json=body, trust_env=False, timeout=60)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def stored(self, comparison_id: str) -> Stored:
        """It, as it is stored now."""
        found = self.store.comparisons.get(comparison_id)
        assert found is not None
        return found

    def records(self, comparison_id: str) -> Records:
        """What was observed in it so far."""
        return self.store.records.load(comparison_id)

    def nodes(self, comparison_id: str) -> list[str]:
        """The node of each launch so far, as the beginning of its id in the cluster."""
        return [launch.node.split()[1] for launch in self.records(comparison_id).of(LaunchRecord)]


@pytest.fixture
def on_cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[OnCluster]:
    """Three nodes of two logical cores each, so that each has room for one comparison at a time, or one pair of it."""
    with loopback_cluster([2.0, 2.0, 2.0]) as cluster:
        pairs_at_once = getattr(request, "param", 1)
        # A new place takes seconds to import everything; a pair that is to run beside it has to last longer.
        world = WORLD | ({"step_us": {1: 50_000.0}, "time_scale": 0.3} if pairs_at_once > 1 else {})
        variables = variables_of(tmp_path, **world) | {
            "EQUIPOISE_EXECUTOR": "ray", "EQUIPOISE_RAY_ADDRESS": cluster.address, "EQUIPOISE_SLOTS": "3",
            "EQUIPOISE_RAY_PAIRS_AT_ONCE": str(pairs_at_once), "EQUIPOISE_RAY_PLACE_LIMIT_S": "10",
        }  # fmt: skip
        with Serving(tmp_path, variables) as serving:
            store = Store.open(f"sqlite:///{tmp_path / 'data' / 'equipoise.db'}", migrated=False)
            try:
                yield OnCluster(cluster, serving, store, tmp_path)
            finally:
                store.database.close()


def until(holds: Callable[[], object], what: str) -> None:
    """Wait until it holds; the limit is against hanging only."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.2)


def words_of_one_machine(folder: Path) -> dict[str, str]:
    """The word of each kind where nothing is placed and nothing dies."""
    folder.mkdir()
    with Serving(folder, variables_of(folder, **WORLD)) as serving:
        ids = {
            kind: httpx.post(f"{serving.url}/compare", json=body, trust_env=False, timeout=60).json()["id"]
            for kind, body in KINDS.items()
        }
        until(lambda: all(serving.get(f"/comparisons/{one}")["status"] in FINAL for one in ids.values()), "local ends")
        return {kind: serving.get(f"/comparisons/{one}")["verdict"]["overall"]["word"] for kind, one in ids.items()}


def test_sixty_comparisons_over_three_nodes_of_which_one_dies(on_cluster: OnCluster, tmp_path: Path) -> None:
    others = [kind for kind in KINDS if kind != "long"]
    kinds = ["long" if place < LONG else others[place % len(others)] for place in range(COMPARISONS)]
    submitted = {on_cluster.submit(KINDS[kind]): kind for kind in kinds}
    long = [one for one, kind in submitted.items() if kind == "long"]
    victim = on_cluster.cluster.list_all_nodes()[-1]

    def resumable() -> str | None:
        """A comparison that runs on the victim, with one launch pair done and not yet three."""
        for one in long:
            if on_cluster.stored(one).status is Status.RUNNING and on_cluster.store.events.of_kind(one, "look"):
                launched = on_cluster.nodes(one)
                if victim.node_id.startswith(launched[-1]) and len(launched) < 6:
                    return one
        return None

    until(resumable, "a long comparison on the node that will die")
    on_cluster.cluster.remove_node(victim, allow_graceful=False)
    until(lambda: all(on_cluster.stored(one).status in FINAL for one in submitted), "all have ended")

    ended = {one: on_cluster.stored(one) for one in submitted}
    assert Counter(stored.status for stored in ended.values()) == {Status.SUCCEEDED: COMPARISONS}
    expected = words_of_one_machine(tmp_path / "one-machine")
    assert len(set(expected.values())) >= 3
    assert {one: stored.verdict_word for one, stored in ended.items()} == {
        one: expected[kind] for one, kind in submitted.items()
    }
    last_nodes: Counter[str] = Counter()
    moved = 0
    for one, stored in ended.items():
        assert stored.verdict is not None
        require_measured_once(on_cluster.store, one, stored.plan, stored.verdict)
        events = [event.seq for event in on_cluster.store.events.after(one, 0, limit=10_000)]
        assert events == list(range(1, len(events) + 1))
        launches = on_cluster.records(one).of(LaunchRecord)
        last = {(launch.pair, launch.role): launch.node for launch in launches}
        for pair in {launch.pair for launch in launches}:
            assert last[pair, "A"] == last[pair, "B"] != ""
        last_nodes[launches[-1].node] += 1
        moved += stored.attempt > 1
        assert stored.attempt == 1 or len({launch.node for launch in launches}) == 2
        # Pairs that were complete when the node died are not launched again: at most one was cut short.
        again = len(launches) - len(last)
        assert again <= 2 * (stored.attempt - 1)
    assert len(last_nodes) >= 2
    assert sum(last_nodes.values()) == COMPARISONS
    assert 1 <= moved <= 2
    nodes = {node for one in submitted for node in on_cluster.nodes(one)}
    assert len(nodes) == 3
    until(lambda: not engines_below(on_cluster.folder), "no engine is left")
    shares = ", ".join(str(count) for count in sorted(last_nodes.values(), reverse=True))
    words = dict(Counter(stored.verdict_word for stored in ended.values()))
    print(
        f"on node after node, of {COMPARISONS}: {shares}, by their last one; {moved} went on elsewhere; words {words}"
    )


def measuring_processes(folder: Path) -> set[psutil.Process]:
    """The processes of places whose engines run."""
    above = {parent for engine in engines_below(folder) for parent in engine.parents()}
    found = {process for process in above if "ComparisonActor" in " ".join(process.cmdline())}
    assert found
    return found


def test_an_engine_that_does_not_start_on_a_node_is_a_stored_failure(on_cluster: OnCluster, tmp_path: Path) -> None:
    folder = tmp_path / "without-engines"
    folder.mkdir()
    variables = variables_of(folder) | {
        "EQUIPOISE_EXECUTOR": "ray", "EQUIPOISE_RAY_ADDRESS": on_cluster.cluster.address,
        "EQUIPOISE_ENGINE_MODULE": "tests.fakes.none",
    }  # fmt: skip
    with Serving(folder, variables) as serving:
        sent = httpx.post(f"{serving.url}/compare", json=SMALL, trust_env=False, timeout=60).json()["id"]
        until(lambda: serving.get(f"/comparisons/{sent}")["status"] in FINAL, "it ends")
        view = serving.get(f"/comparisons/{sent}")
    assert (view["status"], view["error"]["stage"], view["attempt"]) == ("failed", "start", 1)
    assert "tests.fakes.none" in view["error"]["log_tail"]


def test_orders_and_failures_reach_a_node_and_come_back(on_cluster: OnCluster) -> None:
    cancelled = on_cluster.submit(KINDS["long"])
    until(lambda: on_cluster.nodes(cancelled), "its engines run")
    httpx.post(f"{on_cluster.serving.url}/comparisons/{cancelled}/cancel", trust_env=False).raise_for_status()
    until(lambda: on_cluster.stored(cancelled).status in FINAL, "it is cancelled")
    assert on_cluster.stored(cancelled).status is Status.CANCELLED
    assert engines_below(on_cluster.folder) == []

    process = on_cluster.submit(KINDS["long"])
    until(lambda: on_cluster.nodes(process), "its engines run")
    for one in measuring_processes(on_cluster.folder):
        one.kill()
    until(lambda: on_cluster.stored(process).status in FINAL, "it goes on after its process was killed")
    assert (on_cluster.stored(process).status, on_cluster.stored(process).attempt) == (Status.SUCCEEDED, 2)

    resumed = on_cluster.submit(KINDS["long"])
    until(lambda: on_cluster.nodes(resumed), "its engines run")
    assert on_cluster.serving.process is not None
    on_cluster.serving.process.terminate()
    assert on_cluster.serving.process.wait(120) == 0
    assert on_cluster.stored(resumed).status is Status.QUEUED
    assert engines_below(on_cluster.folder) == []


@pytest.mark.parametrize("on_cluster", [3], indirect=True)
def test_pairs_of_one_comparison_run_on_two_nodes_at_once_of_which_one_dies(
    on_cluster: OnCluster, tmp_path: Path
) -> None:
    slow = KINDS["long"] | {"parts": ["latency"], "quads": 4}
    unbroken = on_cluster.submit(slow)
    until(lambda: on_cluster.stored(unbroken).status in FINAL, "it ends")
    assert on_cluster.stored(unbroken).status is Status.SUCCEEDED, on_cluster.stored(unbroken).error
    launches = on_cluster.records(unbroken).of(LaunchRecord)
    assert len(launches) == 6
    of_pair = {launch.pair: launch.node for launch in launches}
    assert of_pair == {launch.pair: launch.node for launch in reversed(launches)}  # both arms on one node
    assert of_pair[2] != of_pair[3]
    order = [(one.kind, one.pair) for one in on_cluster.records(unbroken).records if isinstance(one, Told)]
    assert order.index(("stop", 1)) < min(order.index(("launch", 2)), order.index(("launch", 3)))
    # Each had engines while the other had: neither pair's stop stands before the other's launch.
    assert max(order.index(("launch", 2)), order.index(("launch", 3))) < min(
        order.index(("stop", 2)), order.index(("stop", 3))
    )

    broken = on_cluster.submit(slow)
    until(lambda: {2, 3} <= {one.pair for one in on_cluster.records(broken).of(LaunchRecord)}, "both pairs run")
    node = next(one.node for one in on_cluster.records(broken).of(LaunchRecord) if one.pair == 3).split()[1]
    victim = next(one for one in on_cluster.cluster.list_all_nodes() if one.node_id.startswith(node))
    on_cluster.cluster.remove_node(victim, allow_graceful=False)
    until(lambda: on_cluster.stored(broken).status in FINAL, "it goes on elsewhere")

    for one, attempt in ((unbroken, 1), (broken, 2)):
        stored = on_cluster.stored(one)
        assert (stored.status, stored.attempt) == (Status.SUCCEEDED, attempt), stored.error
        assert stored.verdict is not None
        require_measured_once(on_cluster.store, one, stored.plan, stored.verdict)
        counting = last_launches(on_cluster.records(one))
        assert len({(launch.pair, launch.node) for launch in counting}) == 3  # both arms on one node
        # On one node in the end, it may be, where it took the cluster long to notice the loss.
        several = len({launch.node for launch in counting}) > 1
        told = json.loads(stored.verdict)["latency"]["evidence"].get("nodes")
        assert (sum(told["units"].values()) if told else None) == (3 if several else None)
    assert on_cluster.stored(broken).verdict_word == on_cluster.stored(unbroken).verdict_word
    assert node not in {launch.node.split()[1] for launch in last_launches(on_cluster.records(broken))}
    until(lambda: not engines_below(on_cluster.folder), "no engine is left")


def last_launches(records: Records) -> list[LaunchRecord]:
    """The launch of each arm in each pair that counts."""
    return list({(launch.pair, launch.role): launch for launch in records.of(LaunchRecord)}.values())


def test_what_no_node_has_is_a_stored_failure_that_names_it(on_cluster: OnCluster) -> None:
    asked = on_cluster.submit(SMALL | {"gpu_type": "B200"})
    until(lambda: on_cluster.stored(asked).status in FINAL, "it is given up")
    error = on_cluster.stored(asked).error
    assert error is not None
    assert error.stage == "place"
    assert "no node has 2 CPU, 0.001 accelerator_type:B200, for 10 s now; the cluster has " in error.reason
    assert error.reason.count(": 2 CPU") == 3
    well = on_cluster.submit(KINDS["latency"])
    until(lambda: on_cluster.stored(well).status is Status.SUCCEEDED, "the slot is free for others")
