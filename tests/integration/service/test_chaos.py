"""Chaos: services, supervisors and engines killed at random moments, comparisons cancelled, everything seeded.

Each seed drives a service of its own, a process, over simulated engines until its comparisons have ended. What is
asserted holds whatever the moments were: nothing finished is lost or changed, nothing is measured twice into a result,
every comparison ends, nothing is left behind.
"""

import json
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from equipoise_evals.decode.schedule import planned_blocks
from equipoise_evals.gsm8k.load import SHIPPED
from equipoise_evals.judge import canonical_json, judge
from equipoise_evals.model import PassRecord, Plan, QuestionsRecord
from equipoise_service.engines.leftovers import engines_below
from equipoise_service.engines.ports import HIGHEST, LOWEST
from equipoise_service.store import FINAL, Store
from tests.integration.service.preloaded import PreloadedServing
from tests.integration.service.served import PATIENCE_S, PLAIN, variables_of

SEEDS = (1, 2, 3, 4)
COMPARISONS = 50
"""Of each seed."""
LIMIT_S = 3_000
ACTS_PER_END = 0.8
SMALL: dict[str, Any] = {
    "model": "m", "pairs_max": 1, "quads": 1, "steps_per_block": 8, "batch_sizes": [1], "primary_batch": 1,
    "questions": 2, "shots": 0,
}  # fmt: skip
PARTS = (["latency"], ["accuracy"], ["latency", "accuracy"])


class Chaos:
    """One service and what is done to it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng = folder, random.Random(seed)
        variables = variables_of(folder, questions=[str(SHIPPED / "test.jsonl")])
        self.serving = PreloadedServing(folder, variables)
        self.ids: dict[str, str] = {}
        self.verdicts: dict[str, object] = {}
        self.done: Counter[str] = Counter()

    def submit(self, number: int) -> None:
        """Submit a comparison; a client that gets no answer sends it again with the same key."""
        body = SMALL | {"parts": self.rng.choice(PARTS), "pairs_max": self.rng.choice([1, 1, 2])}
        key = f"chaos-{number}"
        if self.rng.random() < 0.1:  # the service dies while it answers, or before, or after
            self.kill_service()
        answer = self.ask("POST", "/compare", json=body, headers={"Idempotency-Key": key})
        assert answer.status_code == 202, answer.text
        assert self.ids.setdefault(key, answer.json()["id"]) == answer.json()["id"]

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request, sent again as long as the service is away."""
        while True:
            try:
                return httpx.request(
                    method, f"{self.serving.url}{path}", trust_env=False, verify=PLAIN, timeout=60, **options
                )
            except httpx.TransportError:
                self.restart()

    def restart(self) -> None:
        """Start the service again; what an earlier one noted is gone first."""
        (self.folder / "data" / "service.json").unlink(missing_ok=True)
        self.serving.__enter__()

    def look(self) -> int:
        """How many have not ended; what has a verdict keeps it, byte for byte."""
        with sqlite3.connect(self.folder / "data" / "equipoise.db") as connection:
            rows = connection.execute("SELECT id, status, verdict FROM comparisons").fetchall()
        connection.close()
        for comparison_id, status, verdict in rows:
            if status == "succeeded":
                assert self.verdicts.setdefault(comparison_id, verdict) == verdict
            else:
                assert comparison_id not in self.verdicts
        assert {row[0] for row in rows} >= set(self.ids.values())
        return sum(status not in FINAL for _, status, _ in rows)

    def kill_service(self) -> None:
        """SIGKILL to the service, and another one."""
        self.serving.kill()
        self.restart()

    def end_service(self) -> None:
        """SIGTERM to the service, and another one."""
        assert self.serving.process is not None
        self.serving.process.terminate()
        self.serving.process.wait(60)
        self.restart()

    def kill_engine(self) -> None:
        """SIGKILL to any process of an engine, its supervisor included."""
        engines = engines_below(self.folder)
        if engines:
            victim = self.rng.choice(engines)
            try:
                victim.kill()
            except psutil.NoSuchProcess:
                return

    def cancel(self) -> None:
        """An order to cancel any comparison; most have ended or wait."""
        victim = self.rng.choice(sorted(self.ids.values()))
        assert self.ask("POST", f"/comparisons/{victim}/cancel").status_code in (202, 409)

    def act(self) -> None:
        """One of these, at random."""
        actions: list[Callable[[], None]] = [self.kill_service, self.end_service, self.kill_engine, self.cancel]
        action = self.rng.choices(actions, weights=[3, 2, 5, 2])[0]
        self.done[action.__name__] += 1
        action()


@pytest.mark.chaos
@pytest.mark.sqlite  # it looks into the file; test_two_services.py is the chaos of PostgreSQL
@pytest.mark.timeout(LIMIT_S + 120)
def test_whatever_dies_every_comparison_ends_and_no_result_is_lost(tmp_path: Path) -> None:
    """Several at once, each with a service of its own: mostly they wait for processes to start and to end."""
    with ThreadPoolExecutor(len(SEEDS)) as pool:
        runs = [pool.submit(run, tmp_path / f"seed-{seed}", seed) for seed in SEEDS]
    for one in runs:
        one.result()
    require_nothing_left(tmp_path)


def run(folder: Path, seed: int) -> None:
    """One service's comparisons, from the first to the end of the last."""
    folder.mkdir()
    chaos = Chaos(folder, seed)
    deadline = time.monotonic() + LIMIT_S
    with chaos.serving:
        for number in range(10):
            chaos.submit(number)
        while (waiting := chaos.look()) or len(chaos.ids) < COMPARISONS:
            assert time.monotonic() < deadline, f"{waiting} have not ended"
            while waiting < 10 and len(chaos.ids) < COMPARISONS:
                chaos.submit(len(chaos.ids))
                waiting += 1
            ended_so_far = len(chaos.ids) - waiting
            # As often as comparisons end: on a slow machine none would get through if the clock alone decided.
            if sum(chaos.done.values()) < ACTS_PER_END * (ended_so_far + 3) and chaos.rng.random() < 0.3:
                chaos.act()
            time.sleep(chaos.rng.expovariate(1 / 0.7))
    assert len(chaos.done) == 4, chaos.done
    ended = dict.fromkeys(FINAL, 0)
    store = Store.open(f"sqlite:///{folder / 'data' / 'equipoise.db'}")
    for comparison_id in chaos.ids.values():
        stored = store.comparisons.get(comparison_id)
        assert stored is not None
        ended[stored.status] += 1
        events = [event.seq for event in store.events.after(comparison_id, 0, limit=10_000)]
        assert events == list(range(1, len(events) + 1))
        if stored.verdict is not None:
            require_measured_once(store, comparison_id, stored.plan, stored.verdict)
    store.database.close()
    print(f"seed {seed}: {dict(chaos.done)}, { ({str(name): n for name, n in ended.items()}) }")
    assert ended[next(name for name in FINAL if name == "succeeded")] > COMPARISONS / 4


def require_measured_once(store: Store, comparison_id: str, plan_text: str, verdict: str) -> None:
    """A result rests on one launch of each pair, one pass of each arm, one list of questions, and on what is stored."""
    plan, records = Plan.model_validate_json(plan_text), store.records.load(comparison_id)
    assert canonical_json(judge(records, plan)) == verdict
    assert len(records.of(QuestionsRecord)) == 1
    passes = Counter((one.pair, one.role) for one in records.of(PassRecord))
    assert set(passes.values()) <= {1}
    blocks = Counter(block.pair for block in records.current_blocks())
    for pair, count in blocks.items():
        assert plan.latency is not None
        assert count == len(list(planned_blocks(plan.latency, pair)))
    word = json.loads(verdict)["overall"]["word"]
    assert word in {"ship", "neutral", "block", "inconclusive", "invalid", "treatment_inactive"}


def require_nothing_left(folder: Path) -> None:
    """No engine of this folder, and no engine port that a process of ours listens on."""
    deadline = time.monotonic() + PATIENCE_S
    while engines_below(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert engines_below(folder) == []
    ours = {process.pid for process in psutil.Process().children(recursive=True)}
    ports = [one.laddr.port for one in psutil.net_connections("tcp") if one.pid in ours and one.laddr]
    assert [port for port in ports if LOWEST <= port <= HIGHEST] == []
