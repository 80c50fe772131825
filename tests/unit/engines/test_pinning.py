"""Pinning the scheduler of a CPU engine, on a process that bears its name."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from equipoise_service.engines.pinning import pin_scheduler

needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


@pytest.fixture
def scheduler() -> Iterator[psutil.Process]:
    """A process with two threads whose command line says ``sglang::scheduler``."""
    code = "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); print('x', flush=True)"
    child = subprocess.Popen([sys.executable, "-c", code, "sglang::scheduler"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(0.05)
    yield psutil.Process(child.pid)
    child.kill()
    child.wait()
    child.stdout.close()


@needs_two_cores
def test_every_thread_of_the_scheduler_gets_the_last_allowed_core(scheduler: psutil.Process) -> None:
    core = pin_scheduler([psutil.Process(), scheduler])

    threads = [thread.id for thread in scheduler.threads()]
    assert core == max(os.sched_getaffinity(0))
    assert len(threads) == 2
    assert all(os.sched_getaffinity(thread) == {core} for thread in threads)
    assert len(os.sched_getaffinity(0)) > 1


def test_without_a_scheduler_nothing_is_pinned() -> None:
    assert pin_scheduler([psutil.Process()]) is None
