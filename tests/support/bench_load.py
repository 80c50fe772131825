"""The service under load: ``python -m tests.support.bench_load``, by ``make bench-load`` into docs/evidence.

1,000 queued comparisons, 10,000 finished ones, 50 listeners to events, 100 requests a second of lists and pages for a
minute, beside a running comparison over simulated engines in real time. Requests are sent when they are due, however
late the ones before are answered, so that a slow answer is not hidden by the wait for it. Then the same without any.
"""

import asyncio
import os
import platform
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import numpy as np
import psutil

from equipoise_service.ids import new_id
from tests.integration.service.served import address_of, variables_of

FINISHED, QUEUED, LISTENERS = 10_000, 1_000, 50
RATE_PER_S, SECONDS, IDLE_SECONDS = 100, 60, 60
P95_MS, IDLE_SHARE = 100.0, 0.05
BODY: dict[str, Any] = {"model": "m", "parts": ["latency"], "pairs_max": 3, "quads": 1}
LONG = BODY | {
    "quads": 100, "steps_per_block": 256, "prompt_tokens": 512, "batch_sizes": [1], "primary_batch": 1,
}  # fmt: skip
STEP_US = {1: 4_600.0, 16: 4_800.0}
"""Of an 8B model on one H200: a block takes 1.2 s, and there are more of them in a pair than the bench lasts."""


class Answer(NamedTuple):
    """One request: what was asked, how it was answered, and how long after it was due."""

    path: str
    status: int
    took_ms: float


def serve(folder: Path, time_scale: float) -> tuple[subprocess.Popen[bytes], str]:
    """Start the service; its process and address."""
    environment = os.environ | variables_of(folder, time_scale=time_scale, step_us=STEP_US)
    with (folder / "serve.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "equipoise_service", "serve"], env=environment, stdout=log, stderr=log
        )
    return process, address_of(folder / "data", process)


async def until(session: aiohttp.ClientSession, path: str, field: str, wanted: str) -> None:
    """Wait until a comparison's field (``status``, or the stage of its progress) is this."""
    while True:
        async with session.get(path) as answer:
            view = await answer.json()
        if wanted in (view[field], (view.get("progress") or {}).get("stage")):
            return
        await asyncio.sleep(0.1)


def multiply(database: Path, finished: str, queued: str) -> None:
    """Rows like these two until there are as many as wanted, each with an id and events of its own."""
    with sqlite3.connect(database) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(comparisons)") if row[1] != "id"]
        names = ", ".join(column for column in columns if column != "idempotency_key")
        for source, many in ((finished, FINISHED), (queued, QUEUED)):
            for _ in range(many):
                made = new_id()
                connection.execute(
                    f"INSERT INTO comparisons (id, {names}) SELECT ?, {names} FROM comparisons WHERE id = ?",  # noqa: S608
                    (made, source),
                )
                connection.execute(
                    "INSERT INTO events SELECT ?, seq, at, kind, payload FROM events WHERE comparison_id = ?",
                    (made, source),
                )
    connection.close()


async def prepare(folder: Path) -> None:
    """A data folder with finished and queued comparisons."""
    process, url = serve(folder, time_scale=0.0)
    async with aiohttp.ClientSession(url) as session:
        async with session.post("/compare", json=BODY) as answer:
            finished = (await answer.json())["id"]
        await until(session, f"/comparisons/{finished}", "status", "succeeded")
        async with session.post("/compare", json=LONG) as answer:
            queued = (await answer.json())["id"]
    process.kill()
    process.wait()
    (folder / "data" / "service.json").unlink()
    with sqlite3.connect(folder / "data" / "equipoise.db") as connection:
        connection.execute("UPDATE comparisons SET status = 'queued', lease_owner = NULL WHERE id = ?", (queued,))
    connection.close()
    multiply(folder / "data" / "equipoise.db", finished, queued)


async def listen(session: aiohttp.ClientSession, path: str, heard: Counter[str]) -> None:
    """Listen to a comparison's events until cancelled."""
    async with session.get(path, timeout=aiohttp.ClientTimeout(total=None)) as stream:
        async for line in stream.content:
            heard["lines"] += bool(line.strip())


async def ask(session: aiohttp.ClientSession, path: str, due_s: float, answers: list[Answer]) -> None:
    """One request, timed from when it was due."""
    try:
        async with session.get(path) as answer:
            await answer.read()
            status = answer.status
    except (aiohttp.ClientError, TimeoutError):
        status = 0
    answers.append(Answer(path.partition("?")[0], status, (time.monotonic() - due_s) * 1000))


def paths(ids: Sequence[str], rng: random.Random) -> list[str]:
    """What is asked: lists of several kinds and places, and pages."""
    made = []
    for _ in range(RATE_PER_S * SECONDS):
        one = rng.choice(ids)
        queries = ("limit=50", f"cursor={one}", "verdict=inconclusive", "status=queued", "model=m")
        lists = [f"/comparisons?{query}" for query in queries]
        made.append(rng.choice([*lists, "/", f"/?cursor={one}", f"/comparisons/{one}/page"]))
    return made


async def load(url: str, running: str, ids: Sequence[str]) -> tuple[list[Answer], int]:
    """Listeners and requests for as long as it is measured; the answers, and the lines that listeners heard."""
    answers: list[Answer] = []
    heard: Counter[str] = Counter()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, connector=connector, timeout=aiohttp.ClientTimeout(total=30)) as session:
        listeners = [
            asyncio.create_task(listen(session, f"/comparisons/{running}/events", heard)) for _ in range(LISTENERS)
        ]
        await asyncio.sleep(2)
        began_s = time.monotonic()
        pending = []
        for number, path in enumerate(paths(ids, random.Random(1))):
            due_s = began_s + number / RATE_PER_S
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            pending.append(asyncio.create_task(ask(session, path, due_s, answers)))
        await asyncio.gather(*pending)
        for listener in listeners:
            listener.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)
    return answers, heard["lines"]


def processor_s(process: psutil.Process) -> float:
    """Seconds of a core that a process, without its children, has taken."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def measure(folder: Path) -> int:
    """Measure both and print what was found; 1 if a limit does not hold."""
    await prepare(folder)
    process, url = serve(folder, time_scale=1.0)
    try:
        async with aiohttp.ClientSession(url) as session:
            async with session.get("/comparisons?status=running") as answer:
                running = (await answer.json())["items"][0]["id"]
            ids = []
            for query in ("limit=100", "limit=100&status=succeeded"):
                async with session.get(f"/comparisons?{query}") as answer:
                    ids += [item["id"] for item in (await answer.json())["items"]]
            await until(session, f"/comparisons/{running}", "status", "decode")
        service = psutil.Process(process.pid)
        began_s, before_s = time.monotonic(), processor_s(service)
        answers, heard = await load(url, running, ids)
        loaded = (processor_s(service) - before_s) / (time.monotonic() - began_s)
        await asyncio.sleep(3)
        began_s, before_s = time.monotonic(), processor_s(service)
        await asyncio.sleep(IDLE_SECONDS)
        idle = (processor_s(service) - before_s) / (time.monotonic() - began_s)
    finally:
        process.terminate()
        process.wait()
    return report(answers, heard, loaded, idle)


def report(answers: Sequence[Answer], heard: int, loaded: float, idle: float) -> int:
    """Print the figures and whether each limit holds."""
    took = np.array([answer.took_ms for answer in answers])
    p50, p95, p99 = np.percentile(took, [50, 95, 99])
    errors = sum(answer.status != 200 for answer in answers)
    print(f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"load average {os.getloadavg()[0]:.1f}, the bench's own load included; niceness {os.nice(0)}")
    print(f"{FINISHED} finished and {QUEUED} queued comparisons, {LISTENERS} listeners ({heard} lines heard),")
    print(f"{RATE_PER_S} requests/s of lists and pages for {SECONDS} s, beside a running comparison:")
    print(f"  {len(answers)} answers, {errors} errors;", end=" ")
    print(f"p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f}, max {took.max():.1f} ms")
    for path in sorted({answer.path if "page" not in answer.path else "page" for answer in answers}):
        of_path = [a.took_ms for a in answers if (a.path if "page" not in a.path else "page") == path]
        name = "/comparisons/{id}/page" if path == "page" else path
        print(
            f"  {name}: p50 {np.percentile(of_path, 50):.1f}, p95 {np.percentile(of_path, 95):.1f} ms of {len(of_path)}"
        )
    print(f"  the service took {loaded:.1%} of a core")
    print(f"without requests, while blocks of 256 steps of {STEP_US[1] / 1000:g} ms decode at batch 1:")
    print(f"  the service took {idle:.1%} of a core in {IDLE_SECONDS} s")
    holds = p95 <= P95_MS and errors == 0 and idle <= IDLE_SHARE
    print(f"limits: p95 {P95_MS:g} ms, no error, {IDLE_SHARE:.0%} of a core: {'all hold' if holds else 'NOT all hold'}")
    return 0 if holds else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        sys.exit(asyncio.run(measure(Path(place))))
