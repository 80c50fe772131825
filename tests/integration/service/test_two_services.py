"""Chaos over PostgreSQL: two service processes on one database, stopped and killed at random; no comparison runs twice.

Their leases last two seconds. A service that is stopped for longer loses what it works on to the other one, wakes up in
the middle of it and must not write another line; one that is killed finds its own comparison again or the other does.
"""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from equipoise_evals.gsm8k.load import SHIPPED
from equipoise_service.store import FINAL, Store
from tests.fakes.short_lease import LEASE_S
from tests.integration.service.served import PATIENCE_S, PLAIN, Serving, variables_of
from tests.integration.service.test_chaos import PARTS, SMALL, require_measured_once, require_nothing_left
from tests.support import postgres

pytestmark = pytest.mark.skipif(postgres.VARIABLE not in os.environ, reason="needs PostgreSQL: make test-postgres")
LIMIT_S = 1_500


class Two:
    """Two services with a data folder each, and what is done to them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.url = postgres.database_for(folder / "shared.db")
        self.folders = [folder / name for name in ("one", "two")]
        self.services = []
        for own in self.folders:
            own.mkdir()
            variables = variables_of(own, questions=[str(SHIPPED / "test.jsonl")])
            shared = {"EQUIPOISE_DATABASE_URL": self.url}
            self.services.append(Serving(own, variables | shared, program="tests.fakes.short_lease"))
        self.done: Counter[str] = Counter()
        self.ids: list[str] = []

    def submit(self, number: int) -> None:
        """To either service; the key makes sure that an answer that was lost queues nothing twice."""
        body: dict[str, Any] = SMALL | {"parts": self.rng.choice(PARTS), "pairs_max": self.rng.choice([1, 1, 2])}
        headers = {"Idempotency-Key": f"two-{number}"}
        while True:
            service = self.rng.choice(self.services)
            try:
                answer = httpx.post(
                    f"{service.url}/compare",
                    json=body,
                    headers=headers,
                    trust_env=False,
                    verify=PLAIN,
                    timeout=PATIENCE_S,
                )
            except httpx.TransportError:
                continue
            assert answer.status_code == 202, answer.text
            self.ids.append(answer.json()["id"])
            return

    def stop_for_longer_than_its_lease(self) -> None:
        """SIGSTOP, until the other one has had time to take over, then on."""
        process = self.rng.choice(self.services).process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        time.sleep(2.5 * LEASE_S)
        process.send_signal(signal.SIGCONT)

    def kill_and_start_again(self) -> None:
        """SIGKILL, and its successor finds its comparison before the other service may have it."""
        service = self.rng.choice(self.services)
        service.kill()
        self._again(service)

    def kill_and_stay_away(self) -> None:
        """SIGKILL, and nobody comes before the lease has run out."""
        service = self.rng.choice(self.services)
        service.kill()
        time.sleep(2.5 * LEASE_S)
        self._again(service)

    def _again(self, service: Serving) -> None:
        (self.folders[self.services.index(service)] / "data" / "service.json").unlink(missing_ok=True)
        service.__enter__()

    def act(self) -> None:
        """One of these, each in its turn."""
        actions = [self.stop_for_longer_than_its_lease, self.kill_and_start_again, self.kill_and_stay_away]
        action = actions[sum(self.done.values()) % len(actions)]
        self.done[action.__name__] += 1
        action()


def watched(store: Store, ids: list[str], verdicts: dict[str, str]) -> int:
    """How many have not ended; a verdict that is there stays as it is."""
    waiting = 0
    for comparison_id in ids:
        stored = store.comparisons.get(comparison_id)
        assert stored is not None
        waiting += stored.status not in FINAL
        if stored.verdict is not None:
            assert verdicts.setdefault(comparison_id, stored.verdict) == stored.verdict
        else:
            assert comparison_id not in verdicts
    return waiting


def run(folder: Path, seed: int, comparisons: int, acts: int) -> None:
    """So many comparisons by two services, to which so many things are done meanwhile."""
    two = Two(folder, seed)
    store = Store.open(two.url)
    verdicts: dict[str, str] = {}
    deadline = time.monotonic() + LIMIT_S
    with two.services[0], two.services[1]:
        for number in range(comparisons):
            two.submit(number)
        while waiting := watched(store, two.ids, verdicts):
            assert time.monotonic() < deadline, f"{waiting} have not ended"
            ended = comparisons - waiting
            if sum(two.done.values()) < acts and ended >= sum(two.done.values()) * comparisons / (acts + 1):
                two.act()
            time.sleep(two.rng.uniform(0.05, 0.5))
    assert sum(two.done.values()) == acts
    owners: Counter[str] = Counter()
    for comparison_id in two.ids:
        stored = store.comparisons.get(comparison_id)
        assert stored is not None
        assert stored.status in ("succeeded", "interrupted"), stored.error
        events = [event.seq for event in store.events.after(comparison_id, 0, limit=10_000)]
        assert events == list(range(1, len(events) + 1))
        statuses = [event.payload for event in store.events.of_kind(comparison_id, "status")]
        # However often it was begun again, it came to one end, and nothing was told after that.
        assert sum('"status":"succeeded"' in one or '"status":"interrupted"' in one for one in statuses) == 1
        assert store.events.after(comparison_id, len(events) - 1)[0].kind == "status"
        if stored.verdict is not None:
            require_measured_once(store, comparison_id, stored.plan, stored.verdict)
        owners[f"attempt {stored.attempt}"] += 1
    print(f"seed {seed}: {dict(two.done)}, {dict(owners)}")
    assert len(verdicts) > comparisons / 2
    assert max(stored_attempts(store, two.ids)) > 1  # something was cut short, or nothing was tested
    store.database.close()
    for own in two.folders:
        require_nothing_left(own)


def stored_attempts(store: Store, ids: list[str]) -> list[int]:
    return [stored.attempt for one in ids if (stored := store.comparisons.get(one)) is not None]


def test_two_services_never_run_one_comparison_twice(tmp_path: Path) -> None:
    run(tmp_path, seed=1, comparisons=9, acts=3)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_two_services_never_run_one_comparison_twice_for_longer(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed=seed, comparisons=28, acts=12)
