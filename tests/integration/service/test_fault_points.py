"""SIGKILL between any two statements of a launch pair: the next worker goes on to the undisturbed verdict."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.launching import ROOT

MEMORY = Path("/dev/shm")  # noqa: S108 - a folder with a random name is made in it
"""A kill is no power loss: what was written is there, on a disk or not, and each point writes a hundred times."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)


@pytest.mark.sqlite  # each point is killed in a copy of one file
@pytest.mark.parametrize("when", ["first", pytest.param("last", marks=pytest.mark.chaos)])
def test_a_kill_between_any_two_statements_changes_no_verdict(folder: Path, when: str) -> None:
    command = [sys.executable, "-m", "tests.support.fault_points", str(folder), when]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=800)
    undisturbed, *points = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(points) == undisturbed["points"] > 100
    expected = json.loads(undisturbed["verdict"])
    # The fakes hold a device for one second a pair; what a killed launch held is not known and so not counted.
    assert expected.pop("cost") == {"device_seconds": 2.0, "launch_pairs": 2}
    for point in points:
        assert (point["went_on"], point["status"]) == (0, "succeeded"), point
        verdict = json.loads(point["verdict"])
        cost = verdict.pop("cost")
        assert verdict == expected, point
        assert cost["launch_pairs"] == 2
        assert cost["device_seconds"] <= 2.0
        # Nothing that was stored is gone, and nothing is there twice.
        assert (point["kept"], point["questions"], point["passes"]) == (True, 1, 4), point
    # A kill is no end: whatever was begun is gone on with, never left as running.
    assert {point["between"] for point in points} <= {"queued", "running", "judging", "succeeded"}
    # Some steps of the worker's threads come in another order each time, and at the end nothing may be left to kill.
    assert sum(point["died"] == -9 for point in points) > 0.95 * len(points)
