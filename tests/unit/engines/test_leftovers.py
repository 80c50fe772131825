"""Engines of a service that died: waited for, then killed, and given the time to be gone."""

import asyncio
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from equipoise_service.engines import leftovers as module
from equipoise_service.engines.leftovers import Leftovers

STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that passes for an engine of this folder's."""
    variables = {"EQUIPOISE_STEP_LOG": str(tmp_path / "c" / "steps.jsonl")}
    command = [sys.executable, "-c", STUBBORN]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


async def test_whoever_is_cancelled_while_he_waits_leaves_the_wait_to_the_next(
    engine: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    left = Leftovers(tmp_path)
    first = asyncio.create_task(left.of_an_earlier_service(600.0))
    await asyncio.sleep(0.1)
    first.cancel()
    await asyncio.wait({first})
    second = asyncio.create_task(left.of_an_earlier_service(600.0))
    await asyncio.wait({second}, timeout=0.5)
    assert not second.done()
    engine.kill()
    engine.wait()
    await second
    assert left.still_there() == []


async def test_an_engine_that_is_killed_is_given_the_time_to_be_gone(
    engine: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gigabytes take their time: here the kill comes to pass only after a while."""

    def slowly(processes: Iterable[psutil.Process]) -> None:
        assert [process.pid for process in processes] == [engine.pid]
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.5), loop).add_done_callback(lambda _: engine.kill())

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(module, "_kill", slowly)
    left = Leftovers(tmp_path)
    await left.of_an_earlier_service(0.0)
    assert left.still_there() == []
    assert engine.wait() == -9


async def test_an_engine_that_cannot_be_killed_is_named(
    engine: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_kill", lambda processes: None)
    monkeypatch.setattr(module, "KILL_WAIT_S", 0.1)
    left = Leftovers(tmp_path)
    await left.of_an_earlier_service(0.0)
    assert left.still_there() == [f"process {engine.pid} of an earlier engine still runs"]
    engine.kill()  # and is a zombie until it is waited for, which is nothing that runs
    while psutil.Process(engine.pid).status() != psutil.STATUS_ZOMBIE:
        await asyncio.sleep(0.01)
    assert left.still_there() == []
