"""Throughput of four logical nodes against one machine, and what placing a comparison costs, for ``make bench-ray``.

Simulated engines wait in real time for their pretended steps and hardly compute, as engines on other machines would:
four nodes that are processes of one machine then disturb each other little, and what is measured is the scheduling.
"""

import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import httpx

from tests.integration.service.served import Serving, variables_of
from tests.support.kept import circumstances
from tests.support.loopback_cluster import loopback_cluster

ONE, FOUR = 4, 16
"""Comparisons on one machine, and on four nodes: as long by the clock if four are four times as fast."""
STEP_MS = 50.0
REQUEST: dict[str, Any] = {
    "model": "m", "pairs_max": 1, "quads": 1, "steps_per_block": 24, "batch_sizes": [1], "primary_batch": 1,
    "parts": ["latency"],
}  # fmt: skip
ENDED = {"succeeded", "failed", "cancelled", "interrupted"}


class Run(NamedTuple):
    """So many comparisons, submitted at once.

    Attributes:
        seconds: From the first one's start to the last one's end.
        before_s: Of each, from its claim to the start of its first engine.
        after_s: Of each, from its last engine's stop, or the event that follows it, to its end.
    """

    comparisons: int
    seconds: float
    before_s: list[float]
    after_s: list[float]

    @property
    def per_hour(self) -> float:
        """Comparisons per hour."""
        return 3600 * self.comparisons / self.seconds


def run(serving: Serving, number: int) -> Run:
    """Submit, wait for all, and read when what happened."""
    sent = [httpx.post(f"{serving.url}/compare", json=REQUEST, trust_env=False, timeout=60) for _ in range(number)]
    ids = [answer.raise_for_status().json()["id"] for answer in sent]
    while any(serving.get(f"/comparisons/{one}")["status"] not in ENDED for one in ids):
        time.sleep(2.0)
    views = [serving.get(f"/comparisons/{one}") for one in ids]
    assert {view["status"] for view in views} == {"succeeded"}, [view["error"] for view in views]
    before, after = [], []
    for view in views:
        records = serving.get(f"/comparisons/{view['id']}/records")["records"]
        first = min(instant(one["started_at"]) for one in records if one["kind"] == "launch")
        held = max(one["held_s"] for one in records if one["kind"] == "stop")
        before.append(first - instant(view["started_at"]))
        after.append(instant(view["finished_at"]) - first - held)
    began = min(instant(view["started_at"]) for view in views)
    ended = max(instant(view["finished_at"]) for view in views)
    return Run(number, ended - began, before, after)


def instant(text: str) -> float:
    """Seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def variables(folder: Path) -> dict[str, str]:
    """A service over engines that take their time."""
    return variables_of(folder, step_us={1: 1000 * STEP_MS}, time_scale=1.0)


def said(name: str, done: Run) -> str:
    """One line of the report."""
    return (
        f"{name}: {done.comparisons} comparisons in {done.seconds:.0f} s, {done.per_hour:.0f} per hour; from claim "
        f"to the first engine's start {median(done.before_s):.2f} s (median, at most {max(done.before_s):.2f}), around "
        f"the engines' time {median(done.after_s):.2f} s (median, at most {max(done.after_s):.2f})"
    )


def main() -> int:
    """Measure and print; 0 if both promises hold."""
    with tempfile.TemporaryDirectory() as folder, Serving(Path(folder), variables(Path(folder))) as serving:
        one = run(serving, ONE)
    with loopback_cluster([2.0] * 4) as cluster, tempfile.TemporaryDirectory() as folder:
        placed = {"EQUIPOISE_EXECUTOR": "ray", "EQUIPOISE_RAY_ADDRESS": cluster.address, "EQUIPOISE_SLOTS": "4"}
        with Serving(Path(folder), variables(Path(folder)) | placed) as serving:
            run(serving, 4)  # processes start, and import
            four = run(serving, FOUR)
    gain = four.per_hour / one.per_hour
    overhead = [
        (before + after) - (median(one.before_s) + median(one.after_s))
        for before, after in zip(four.before_s, four.after_s, strict=True)
    ]
    print(f"{circumstances()}; simulated engines in real time, {STEP_MS:g} ms a step")
    print(said("One machine, executor local", one))
    print(said("Four logical nodes, executor ray", four))
    print(f"Throughput: {gain:.2f} times that of one machine (at least 3.6 wanted)")
    print(
        f"Overhead of placing, beyond that of the local executor: {median(overhead):+.2f} s median, "
        f"{max(overhead):+.2f} s at most (2 s allowed)"
    )
    return 0 if gain >= 3.6 and max(overhead) <= 2.0 else 1


if __name__ == "__main__":
    sys.exit(main())
