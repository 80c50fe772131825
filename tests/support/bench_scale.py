"""1,000 comparisons a day over 200 GPUs of three kinds: waiting, use, failures, storage and cost, simulated.

``make bench-scale`` writes docs/evidence/bench-scale.txt; docs/scale.md says what it means. Durations of launch pairs
and the size of records are those of real runs on H200s (docs/evidence/h200), drawn with replacement; what is assumed
instead is printed first. The records are of the earlier half of a day: engines started one after the other, those of
the first pair were traced before they were timed, and all had six seconds to end. Later warm pairs that only time
decoding take 58 to 71 s where these take 67 to 102 s (docs/scale.md). Bytes in PostgreSQL are measured in a database
that those records are put into.
"""

import heapq
import json
import lzma
import math
import os
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import text

from equipoise_service.interchange import RecordsDocument
from equipoise_service.store import Store
from tests.support import postgres
from tests.support import stored as keep

EVIDENCE = Path(__file__).resolve().parents[2] / "docs" / "evidence" / "h200"
LATENCY = ("llama-8b-shape", "llama-8b-shape-first", "aa-baseline", "aa-upstream")
BOTH = ("smollm2",)
COLD = frozenset({("llama-8b-shape-first", 1), ("smollm2", 1)})
"""The first launch pair on a host compiles kernels."""

DAYS, PER_DAY = 10, 1_000
HOUR_S, DAY_S = 3_600.0, 86_400.0
OFFICE = (9, 17, 2 / 3)
"""From this hour to that one comes this share of a day's comparisons."""
GPUS_PER_NODE = 8
KINDS = {"H200": 15, "B200": 7, "H100": 3}
"""Nodes of each kind, 200 GPUs in all; comparisons ask for a kind in the same proportion."""
SETS = {1: 0.70, 2: 0.15, 4: 0.10, 8: 0.05}
"""GPUs of a comparison, both arms on the same ones, and the share that needs so many."""
WITH_ACCURACY = 0.6
PAIRS = {
    "3 pairs": {3: 1.0},
    "mixed": {3: 0.6, 4: 0.1, 5: 0.1, 6: 0.05, 8: 0.05, 10: 0.1},
    "10 pairs": {10: 1.0},
}
"""Launch pairs until a comparison is decided. Quiet machines need 3.0 to 3.5 on average (docs/calibration.md)."""
NODE_FAILS_DAYS, NODE_BACK_S = 30.0, HOUR_S
LEASE_S = 60.0
USD_PER_GPU_HOUR = 3.0


class Measured(NamedTuple):
    """What the evidence gives: seconds of launch pairs, and how many launches it holds, none of which failed.

    The shares are those of a pair's seconds that went into the starts of its engines, first pairs on a host left out.
    """

    latency_s: list[float]
    both_s: list[float]
    cold_s: list[float]
    launches: int
    latency_starts: list[float]
    both_starts: list[float]


class World(NamedTuple):
    """What is varied: launch pairs, how many times longer one takes, a launch's chance to fail, share of the nodes."""

    pairs: str
    slower: float = 1.0
    launch_fails: float = 0.0
    nodes: float = 1.0


@dataclass
class Node:
    """One host."""

    kind: str
    free: int = GPUS_PER_NODE
    up: bool = True
    cold: bool = True
    running: "set[Job]" = field(default_factory=set)


@dataclass(eq=False)
class Job:
    """One comparison; ``epoch`` grows when its node is lost, which makes what was to happen there void."""

    submitted_s: float
    kind: str
    gpus: int
    pairs: int
    both: bool
    done: int = 0
    epoch: int = 0
    node: Node | None = None
    begun_s: float | None = None
    ended_s: float | None = None
    failed: bool = False


def records_of(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(lzma.decompress((EVIDENCE / f"{name}.records.json.xz").read_bytes()))
    return document


def measured() -> Measured:
    """A pair lasts as long as its device was held: from the start of its first engine to the end of both."""
    found = Measured([], [], [], 0, [], [])
    launches = 0
    for name in (*LATENCY, *BOTH):
        held: dict[int, float] = {}
        starts: dict[int, float] = {}
        for record in records_of(name)["records"]:
            if record["kind"] == "launch":
                launches += 1
                starts[record["pair"]] = starts.get(record["pair"], 0.0) + record["stage_s"]["spawn_to_ready"]
            if record["kind"] == "stop":
                held[record["pair"]] = max(held.get(record["pair"], 0.0), record["held_s"])
        for pair, seconds in held.items():
            of_kind = found.both_s if name in BOTH else found.latency_s
            (found.cold_s if (name, pair) in COLD else of_kind).append(seconds)
            if (name, pair) not in COLD:
                (found.both_starts if name in BOTH else found.latency_starts).append(starts[pair] / seconds)
    return found._replace(launches=launches)


def arrivals(rng: random.Random, world: World) -> Iterator[Job]:
    """A Poisson process whose rate follows the hours of a day."""
    start, end, share = OFFICE
    inside, outside = share / (end - start), (1 - share) / (24 - (end - start))
    peak = max(inside, outside) * PER_DAY / HOUR_S
    now = 0.0
    while (now := now + rng.expovariate(peak)) < DAYS * DAY_S:
        rate = inside if start <= now % DAY_S / HOUR_S < end else outside
        if rng.random() < rate * PER_DAY / HOUR_S / peak:
            (gpus,) = rng.choices(list(SETS), weights=list(SETS.values()))
            (kind,) = rng.choices(list(KINDS), weights=list(KINDS.values()))
            chosen = PAIRS[world.pairs]
            (pairs,) = rng.choices(list(chosen), weights=list(chosen.values()))
            yield Job(now, kind, gpus, pairs, rng.random() < WITH_ACCURACY)


class Simulation:
    """Comparisons in the order of their submission; one that fits goes past a larger one that does not yet."""

    def __init__(self, world: World, times: Measured, seed: int) -> None:
        self.world, self.times, self.rng = world, times, random.Random(seed)
        self.nodes = [Node(kind) for kind, many in KINDS.items() for _ in range(max(1, round(many * world.nodes)))]
        self.queue: list[Job] = []
        self.jobs: list[Job] = []
        self.busy_gpu_s = self.peak = 0.0
        self.lost_pairs = 0
        self._events: list[tuple[float, int, str, Any]] = []
        self._number = 0

    def run(self) -> "Simulation":
        """Until everything has ended."""
        for job in arrivals(self.rng, self.world):
            self._at(job.submitted_s, "submitted", job)
        for node in self.nodes:
            self._at(self.rng.expovariate(1 / (NODE_FAILS_DAYS * DAY_S)), "node lost", node)
        while self._events:
            now, _, what, about = heapq.heappop(self._events)
            if what == "submitted":
                self.jobs.append(about)
                self._queue(about)
            elif what == "queued":
                self._queue(about)
            elif what == "pair":
                self._pair_done(now, *about)
            elif what == "node lost" and now < DAYS * DAY_S:
                self._lose(now, about)
            elif what == "node back":
                about.up, about.cold = True, True
                self._at(now + self.rng.expovariate(1 / (NODE_FAILS_DAYS * DAY_S)), "node lost", about)
            self._place(now)
        return self

    def _at(self, when: float, what: str, about: Any) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, what, about))

    def _queue(self, job: Job) -> None:
        self.queue.append(job)
        self.queue.sort(key=lambda one: one.submitted_s)  # what was cut short keeps its place

    def _place(self, now: float) -> None:
        for job in list(self.queue):
            fitting = [one for one in self.nodes if one.up and one.kind == job.kind and one.free >= job.gpus]
            if fitting:
                node = min(fitting, key=lambda one: one.free)
                self.queue.remove(job)
                node.free -= job.gpus
                node.running.add(job)
                job.node = node
                job.begun_s = now if job.begun_s is None else job.begun_s
                self._begin_pair(now, job)
        busy = sum(GPUS_PER_NODE - one.free for one in self.nodes if one.up)
        self.peak = max(self.peak, busy)

    def _begin_pair(self, now: float, job: Job) -> None:
        assert job.node is not None
        warm = self.times.both_s if job.both else self.times.latency_s
        seconds = self.rng.choice(self.times.cold_s if job.node.cold else warm) * self.world.slower
        job.node.cold = False
        self._at(now + seconds, "pair", (job, job.epoch, seconds))

    def _pair_done(self, now: float, job: Job, epoch: int, seconds: float) -> None:
        if epoch != job.epoch or job.node is None:
            return
        self.busy_gpu_s += seconds * job.gpus
        job.done += 1
        job.failed = self.rng.random() > (1 - self.world.launch_fails) ** 2
        if job.failed or job.done == job.pairs:
            job.node.free += job.gpus
            job.node.running.remove(job)
            job.node, job.ended_s = None, now
        else:
            self._begin_pair(now, job)

    def _lose(self, now: float, node: Node) -> None:
        for job in sorted(node.running, key=lambda one: one.submitted_s):  # a set's order is another in each run
            self.lost_pairs += 1
            job.epoch, job.node = job.epoch + 1, None
            self._at(now + LEASE_S, "queued", job)
        node.running, node.free, node.up = set(), GPUS_PER_NODE, False
        self._at(now + NODE_BACK_S, "node back", node)


def quantile(values: Sequence[float], q: float) -> float:
    """The smallest value that so many are at most."""
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


def row(world: World, times: Measured) -> str:
    """One line of the table; every comparison that was submitted has ended."""
    done = Simulation(world, times, seed=1).run()
    assert all(job.ended_s is not None for job in done.jobs)
    waits = [job.begun_s - job.submitted_s for job in done.jobs if job.begun_s is not None]
    large = [
        job.begun_s - job.submitted_s for job in done.jobs if job.begun_s is not None and job.gpus == GPUS_PER_NODE
    ]
    took = [job.ended_s - job.begun_s for job in done.jobs if job.ended_s is not None and job.begun_s is not None]
    gpus = len(done.nodes) * GPUS_PER_NODE
    hours = done.busy_gpu_s / HOUR_S / DAYS
    failed = sum(job.failed for job in done.jobs) / len(done.jobs)
    return (
        f"{world.pairs:9} {world.slower:5.0f}x {world.launch_fails:8.1%} {gpus:5d} "
        f"{len(done.jobs) / DAYS:8.0f} {statistics.mean(took) / 60:7.1f} {quantile(waits, 0.5) / 60:7.1f} "
        f"{quantile(waits, 0.99) / 60:8.1f} {max(waits) / 60:8.1f} {quantile(large, 0.99) / 60:8.1f} "
        f"{hours:8.0f} {hours / (gpus * 24):6.1%} {done.peak:5.0f} {failed:7.1%} {done.lost_pairs / DAYS:6.1f} "
        f"{hours * USD_PER_GPU_HOUR:8,.0f}  {longest_by_kind(done)}"
    )


def longest_by_kind(done: Simulation) -> str:
    """The longest wait for each kind, in minutes."""
    waits = {kind: [0.0] for kind in KINDS}
    for job in done.jobs:
        if job.begun_s is not None:
            waits[job.kind].append(job.begun_s - job.submitted_s)
    return " ".join(f"{max(of_kind) / 60:6.0f}" for of_kind in waits.values())


HEAD = (
    "pairs     longer  fails/l  GPUs  per day  min run   wait    wait     wait     wait    GPU-h    use  peak  failed"
    "   lost   USD a  max wait for one of\n"
    "                                                     p50     p99      max  8GPU p99  a day         GPUs"
    "          pairs     day  " + " ".join(f"{kind:>6}" for kind in KINDS)
)


def storage() -> Iterator[str]:
    """Bytes that a comparison takes in PostgreSQL, measured by putting each record into a fresh database many times."""
    many = 20
    for name, what in (("llama-8b-shape", "speed only, 3 pairs"), ("smollm2", "speed and 1,319 questions x 6 passes")):
        document = RecordsDocument.model_validate(records_of(name))
        store = Store.open(postgres.database_for(name))
        sized = text("SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relnamespace = "
                     "'public'::regnamespace")  # fmt: skip
        with store.database.read() as connection:
            before = int(connection.scalar(sized) or 0)
        for _ in range(many):
            keep.finish(store, document.plan, document.observed)
        with store.database.read() as connection:
            each = (int(connection.scalar(sized) or 0) - before) / many
        store.database.close()
        yield (
            f"{what}: {each / 1e6:.2f} MB each; 1,000 a day: {each / 1e6:.2f} GB a day, "
            f"{each * 1_000 * 365 / 1e12:.2f} TB a year; 90 days kept: {each * 90_000 / 1e9:.0f} GB"
        )


def main() -> None:
    times = measured()
    print("Measured, in seconds: launch pairs, from the start of the first engine to the end of both")
    for name, values in (("speed only", times.latency_s), ("with 1,319 questions, an arm", times.both_s),
                         ("the first on a host", times.cold_s)):  # fmt: skip
        print(f"  {name}: {', '.join(f'{value:.0f}' for value in sorted(values))}")
    speed, both = statistics.median(times.latency_starts), statistics.median(times.both_starts)
    print(f"  starts of both engines, share of a pair (median): speed only {speed:.0%}, with questions {both:.0%}")
    print(f"  launches: {times.launches}, all of runs that finished: how often one fails they cannot say")
    print("Assumed")
    print(f"  nodes of {GPUS_PER_NODE} GPUs: {KINDS}; every kind as fast as the H200, the only one measured")
    print(f"  {PER_DAY} a day, {OFFICE[2]:.0%} of them from {OFFICE[0]} to {OFFICE[1]} h; GPUs of one: {SETS}")
    print(f"  {WITH_ACCURACY:.0%} ask questions too; pairs until decided, mixed: {PAIRS['mixed']}")
    print(f"  a node is lost every {NODE_FAILS_DAYS:.0f} days and back after {NODE_BACK_S / 60:.0f} min; "
          f"what ran there is queued again after {LEASE_S:.0f} s; {USD_PER_GPU_HOUR:.0f} USD a GPU-hour")  # fmt: skip
    print(f"\n{DAYS} simulated days, waits in minutes\n{HEAD}")
    worlds = [World(pairs, slower) for slower in (1.0, 5.0) for pairs in PAIRS]
    worlds += [World("mixed", 1.0, fails) for fails in (0.001, 0.01, 0.095)]
    worlds += [World("mixed", 1.0, 0.0, share) for share in (0.5, 0.25, 0.12)]
    worlds += [World("10 pairs", 5.0, 0.0, share) for share in (0.75, 0.5)]
    for world in worlds:
        print(row(world, times), flush=True)
    if postgres.VARIABLE in os.environ:
        print("\nStorage, measured in PostgreSQL 15 (tables, their indexes and TOAST)")
        for line in storage():
            print(line, flush=True)


if __name__ == "__main__":
    main()
