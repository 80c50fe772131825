"""What pages cost the service: ``python -m tests.support.bench_pages``, by ``make bench-pages`` into docs/evidence.

Processor time of the process that serves, least of several tries: lists over 10,000 comparisons, and the page and the
reports of the largest one. The limits are those of the issues; a ratio to the JSON list tells a slow machine from slow
code.
"""

import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fastapi.testclient import TestClient

from equipoise_service.api import create_app
from equipoise_service.settings import Settings
from equipoise_service.store import Store
from tests.support import stored as keep
from tests.support.large import long_plan, long_records
from tests.support.stored import fill

MANY = 10_000
LISTS = ("/", "/?verdict=ship&sort=fastest", "/?model=model-7", "/?machine=none&since=2026-01-01", "/trend")
LIST_MS, PAGE_MS = 200.0, 1_000.0


class Cost(NamedTuple):
    """What one address cost: milliseconds of processor time, bytes, and the most that it may take."""

    address: str
    took_ms: float
    size_bytes: int
    limit_ms: float


def least_ms(work: Callable[[], object], tries: int = 5) -> float:
    """Least processor time of this process, in milliseconds."""

    def once() -> float:
        begun = time.process_time()
        work()
        return 1_000 * (time.process_time() - begun)

    return min(once() for _ in range(tries))


def measured(folder: Path) -> list[Cost]:
    """The cost of every address over a database that is filled first."""
    settings = Settings(data=folder / "data", cache=folder / "cache", device="simulated")
    store = Store.open(settings.url_of_database)
    plan = long_plan()
    long = keep.finish(store, plan, long_records(plan)).id
    fill(store, MANY)
    store.database.close()
    asked = [(address, LIST_MS) for address in ("/comparisons?limit=50", *LISTS)]
    asked += [(f"/comparisons/{long}/{kind}", PAGE_MS) for kind in ("page", "report.html", "report.md", "report.json")]
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        return [
            Cost(
                address.replace(long, "ID"), least_ms(lambda a=address: client.get(a)),  # type: ignore[misc] # bound now
                len(client.get(address).raise_for_status().content), limit_ms,
            )
            for address, limit_ms in asked
        ]  # fmt: skip


def main() -> int:
    """Measure, print, and fail where a limit is passed."""
    with tempfile.TemporaryDirectory() as folder:
        costs = measured(Path(folder))
    print(f"Processor time, least of 5; {MANY} comparisons stored; {platform.python_version()}, {platform.machine()}")
    for cost in costs:
        print(f"{cost.took_ms:7.0f} ms of {cost.limit_ms:5.0f} {cost.size_bytes:9,} bytes  {cost.address}")
    return int(any(cost.took_ms > cost.limit_ms for cost in costs))


if __name__ == "__main__":
    sys.exit(main())
