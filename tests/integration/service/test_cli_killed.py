"""Commands and services that are killed or interrupted: nothing is lost, nothing is left, nothing is asked twice."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from equipoise_evals.gsm8k.load import SHIPPED
from tests.integration.service.command import Command, engines_below, id_in
from tests.integration.service.served import PATIENCE_S, Serving, clean_environment, variables_of


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Engines so slow that there is time to kill something."""
    yield variables_of(tmp_path, time_scale=20.0)
    assert engines_below(tmp_path) == []


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_killed_service_loses_nothing_and_leaves_nothing(tmp_path: Path, slow: dict[str, str]) -> None:
    body = {"model": "m", "parts": ["latency"], "steps_per_block": 64, "pairs_max": 1}
    with Serving(tmp_path, slow) as serving:
        comparison_id = httpx.post(f"{serving.url}/compare", json=body, trust_env=False, timeout=PATIENCE_S).json()[
            "id"
        ]
        path = f"/comparisons/{comparison_id}"
        until(lambda: len(serving.get(f"{path}/records")["records"]) > 2)
        before = serving.get(f"{path}/records")["records"]
        heard = events(serving.url, path, after=0, most=4)
        serving.kill()
        until(lambda: engines_below(tmp_path) == [])
        (tmp_path / "data" / "service.json").unlink()
    with Serving(tmp_path, slow) as serving:
        # Who listened before the kill goes on after it: each event once, in order, to the end.
        heard += events(serving.url, path, after=heard[-1], most=None)
        assert heard == list(range(1, len(heard) + 1))
        view = serving.get(path)
        assert (view["status"], view["attempt"]) == ("succeeded", 2)
        assert serving.get(f"{path}/records")["records"][: len(before)] == before
        measured = view["verdict"]["latency"]["evidence"]["busy"]["pairs"]
        assert view["verdict"]["cost"]["launch_pairs"] == measured == 1


QUESTIONS = 24


def asked_of_engines(folder: Path) -> Counter[str]:
    """How often each prompt was asked of any engine, by the digest that the simulated engines log."""
    logs = (folder / "data" / "engines").glob("*/*/engine.log")
    lines = [line for log in logs for line in log.read_text().splitlines()]
    return Counter(line.removeprefix("asked ") for line in lines if line.startswith("asked "))


def test_a_service_killed_in_a_pass_resumes_without_asking_an_answered_question_again(
    tmp_path: Path, equipoise: Command
) -> None:
    """Issue 5, acceptance 8, with SIGKILL."""
    knobs = {"questions": [str(SHIPPED / "test.jsonl")]}
    body = {
        "model": "m", "parts": ["accuracy"], "questions": QUESTIONS, "shots": 1, "pairs_max": 1, "concurrency": 2,
    }  # fmt: skip
    stored: list[dict[str, Any]] = []
    with Serving(tmp_path, variables_of(tmp_path, time_scale=5.0, **knobs)) as serving:
        answer = httpx.post(f"{serving.url}/compare", json=body, trust_env=False, timeout=PATIENCE_S)
        comparison_id = answer.json()["id"]

        def five_are_stored() -> bool:
            records = serving.get(f"/comparisons/{comparison_id}/records")["records"]
            stored[:] = [record for record in records if record["kind"] == "answer"]
            return len(stored) >= 5

        until(five_are_stored)
        serving.kill()
        until(lambda: engines_below(tmp_path) == [])
        (tmp_path / "data" / "service.json").unlink()
    assert equipoise("resume", comparison_id, **knobs) == 2
    assert equipoise("report", comparison_id, "-f", "records", "-o", str(tmp_path / "records.json")) == 0
    records = json.loads((tmp_path / "records.json").read_text())["records"]
    first, second = (record for record in records if record["kind"] == "pass")
    assert len(first["answers"]) == len(second["answers"]) == QUESTIONS
    assert len(stored) <= first["resumed"] < QUESTIONS
    assert second["resumed"] == 0
    assert [record for record in records if record["kind"] == "answer"] == []
    prompts = {one["question"]["id"]: one["prompt_sha256"] for one in records[0]["asked"]}
    asked = asked_of_engines(tmp_path)
    assert all(asked[prompt] >= 2 for prompt in prompts.values())
    assert [asked[prompts[one["answer"]["question_id"]]] for one in stored] == [2] * len(stored)  # once in each arm


def events(url: str, path: str, after: int, most: int | None) -> list[int]:
    """Numbers of the events after one, until the stream ends or ``most`` are heard."""
    numbers: list[int] = []
    headers = {"Last-Event-ID": str(after)}
    with httpx.stream("GET", f"{url}{path}/events", headers=headers, timeout=60, trust_env=False) as stream:
        for line in stream.iter_lines():
            if line.startswith("id: "):
                numbers.append(int(line.removeprefix("id: ")))
            if len(numbers) == most:
                break
    return numbers


HEEDS_INTERRUPTS = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "runpy.run_module('equipoise_service', run_name='__main__', alter_sys=True)"
)
"""A shell starts its background jobs with SIGINT ignored, and a test that runs in one would hand that on."""


PLANS_SLOWLY = """
import signal, sys, time
from pathlib import Path

from equipoise_service.api import app

signal.signal(signal.SIGINT, signal.default_int_handler)
resolve, go = app.resolve, Path(sys.argv[1])


def slowly(request, machine):
    print("planning", flush=True)
    while not go.exists():
        time.sleep(0.02)
    return resolve(request, machine)


app.resolve = slowly
from equipoise_service.cli import main

sys.exit(main(["compare", "m", "--parts", "latency", "--steps-per-block", "64"]))
"""
"""A plan that takes its time, as where a model is downloaded for it."""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 3)])
def test_a_command_that_is_interrupted_before_its_comparison_is_queued_leaves_none_queued(
    tmp_path: Path, slow: dict[str, str], sent: signal.Signals, code: int
) -> None:
    environment, go = clean_environment() | slow, tmp_path / "go"
    command = [sys.executable, "-c", PLANS_SLOWLY, str(go)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "planning\n"
        process.send_signal(sent)
        assert process.stderr is not None
        said = process.stderr.readline()
        go.touch()
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert "waiting for the service's answer" in said
    with Serving(tmp_path, {}) as serving:
        assert [one["status"] for one in serving.get("/comparisons")["items"]] == ["cancelled"]


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 3)])
def test_an_interrupted_command_cancels_its_comparison(
    tmp_path: Path, slow: dict[str, str], sent: signal.Signals, code: int
) -> None:
    environment = clean_environment() | slow
    command = [sys.executable, "-c", HEEDS_INTERRUPTS, "compare", "m", "--parts", "latency", "--steps-per-block", "64"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    until(lambda: len(engines_below(tmp_path)) >= 2)
    process.send_signal(sent)
    _, said = process.communicate(timeout=PATIENCE_S)
    # A time limit of a pipeline sends SIGTERM; 1 would mean that the release is blocked.
    assert process.returncode == code
    assert ("ended by a signal before there was a verdict" in said) == (sent == signal.SIGTERM)
    assert (sent == signal.SIGINT) or "Traceback" not in said
    with Serving(tmp_path, {}) as serving:
        view = serving.get(f"/comparisons/{id_in(said)}")
        assert view["status"] == "cancelled"
