"""Places on a cluster: an actor on a placement group of one bundle, packed strictly onto one node.

A place whose comparison has ended is kept for a moment, so that the next one that needs the same does not wait for a
new process to import everything. As soon as something else is needed, what is idle is given back.
"""

import asyncio
import contextlib
import logging
import signal
import uuid
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from equipoise_evals.model import Plan
from equipoise_service.cluster.actor import ComparisonActor
from equipoise_service.engines.environment import Device
from equipoise_service.engines.placing import gpus_needed

log = logging.getLogger(__name__)

Bundle = tuple[tuple[str, float], ...]
"""What a comparison takes of one node, by Ray's names of resources."""
LABEL = 0.001
"""Ray gives each node 1.0 of ``accelerator_type:…``; a comparison takes so little that it only chooses by it."""
KEPT_S = 10.0


class Place(NamedTuple):
    """An actor and what it holds."""

    bundle: Bundle
    group: PlacementGroup
    actor: "ray.actor.ActorHandle"


class Places:
    """The places of one service."""

    def __init__(self) -> None:
        self._idle: list[Place] = []
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def take(self, bundle: Bundle, name: str) -> Place:
        """An idle place of this kind, or a new one, which may have to wait for room."""
        for place in self._idle:
            if place.bundle == bundle:
                self._idle.remove(place)
                self._timers.pop(id(place)).cancel()  # or it would end the next time that the place is kept
                return place
        for place in list(self._idle):
            self._expire(place)
        return new_place(bundle, name)

    def keep(self, place: Place) -> None:
        """Keep a place for the next comparison, but not for long."""
        self._idle.append(place)
        self._timers[id(place)] = asyncio.get_running_loop().call_later(KEPT_S, self._expire, place)

    def give_back(self, place: Place) -> None:
        """End its process and free what it held."""
        ray.kill(place.actor)
        remove_placement_group(place.group)

    def _expire(self, place: Place) -> None:
        if any(place is idle for idle in self._idle) and ray.is_initialized():
            self._idle = [idle for idle in self._idle if idle is not place]
            self.give_back(place)


def resources(plan: Plan, device: Device, cpus: float) -> Bundle:
    """What one comparison takes of a node: cores, all its GPUs, and a GPU of the kind that the plan asks for."""
    bundle = {"CPU": cpus}
    if device == "cuda":
        bundle["GPU"] = float(gpus_needed(plan.arms, plan.layout))
    if plan.gpu_type:
        bundle[f"accelerator_type:{plan.gpu_type}"] = LABEL
    return tuple(bundle.items())


def amounts(bundle: Bundle) -> str:
    """What a place takes, for people."""
    return ", ".join(f"{amount:g} {name}" for name, amount in bundle)


Node = Mapping[str, float]
"""What one node has in all, by Ray's names of resources."""


def nodes_now() -> dict[str, Node]:
    """The nodes that are alive, by address and the beginning of their id."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    return {f"{node['NodeManagerAddress']} {node['NodeID'][:12]}": node["Resources"] for node in alive}


def some_node_has(bundle: Bundle, nodes: Mapping[str, Node]) -> bool:
    """Whether a node has all of it, were it idle."""
    return any(all(node.get(name, 0.0) >= amount for name, amount in bundle) for node in nodes.values())


def told(nodes: Mapping[str, Node]) -> str:
    """What each node has that a comparison can ask for, for people."""
    said = [f"{name}: {_amounts(node)}" for name, node in sorted(nodes.items()) if _amounts(node)]
    return "; ".join(said) or "no node with cores"


def _amounts(node: Node) -> str:
    kinds = [name for name in sorted(node) if name.startswith("accelerator_type:")]
    return ", ".join([f"{node[name]:g} {name}" for name in ("CPU", "GPU") if node.get(name)] + kinds)


def new_place(bundle: Bundle, name: str) -> Place:
    """A new actor on a placement group of its own. It is not waited for: its first task waits for room."""
    needed = dict(bundle)
    # Ray wants each name once, and one comparison may have several places, or soon another one after a loss.
    unique = f"equipoise {name} {uuid.uuid4().hex[:8]}"
    group = placement_group([needed], strategy="STRICT_PACK", name=unique)
    remote = ray.remote(ComparisonActor).options(
        num_cpus=needed["CPU"],
        num_gpus=needed.get("GPU", 0.0),
        resources={name: amount for name, amount in needed.items() if name not in {"CPU", "GPU"}},
        max_restarts=0,
        scheduling_strategy=PlacementGroupSchedulingStrategy(group),
    )
    return Place(bundle, group, remote.remote())


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """Be a driver of the cluster while the context lasts; places end with it. A connection that is there stays."""
    ours = not ray.is_initialized()
    if ours:
        ending = signal.getsignal(signal.SIGTERM)
        ray.init(address=address, namespace="equipoise", log_to_driver=False, configure_logging=False)
        signal.signal(signal.SIGTERM, ending)  # Ray's own would end this process at once, engines and all
    try:
        yield
    finally:
        if ours:
            ray.shutdown()
