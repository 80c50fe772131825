"""Real engines on this machine's CPU: each arm attested, clocked, and its fills counted in ``/start_profile`` traces.

Needs the engine's environment and two folders: ``EQUIPOISE_TEST_MODEL`` (the converted model) and
``EQUIPOISE_TEST_PLUGIN`` (made by ``uv pip install --no-deps --target``). One engine at a time, about a minute each.
"""

import contextlib
import gzip
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MODEL, PLUGIN = os.environ.get("EQUIPOISE_TEST_MODEL"), os.environ.get("EQUIPOISE_TEST_PLUGIN")
pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        not (MODEL and PLUGIN), reason="EQUIPOISE_TEST_MODEL and EQUIPOISE_TEST_PLUGIN are not both set"
    ),
]
START_LIMIT_S = 400
FLAGS = [
    "--device",
    "cpu",
    "--attention-backend",
    "torch_native",
    "--dtype",
    "float32",
    "--sleep-on-idle",
    "--disable-radix-cache",
    "--random-seed",
    "1",
    "--mem-fraction-static",
    "0.2",
    "--max-total-tokens",
    "16384",
    "--max-running-requests",
    "16",
]
PROMPTS = [[1000 + number] * 64 for number in range(3)]
PROFILED_STEPS = 8


def call(port: int, path: str, body: dict[str, object] | None = None) -> str:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=300) as answer:  # noqa: S310
        return answer.read().decode()


def generate(port: int, tokens: int) -> list[list[int]]:
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    answers = json.loads(call(port, "/generate", {"input_ids": PROMPTS, "sampling_params": sampling}))
    return [answer["output_ids"] for answer in answers]


def attested(port: int) -> dict[str, Any]:
    return json.loads(call(port, "/server_info"))["internal_states"][0]["equipoise"]


@contextlib.contextmanager
def engine(arm: str, folder: Path) -> Iterator[int]:
    """A running engine of an arm; yields its port. Its whole process group is gone afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = os.environ | {
        "PYTHONPATH": str(PLUGIN),
        "SGLANG_PLATFORM": "equipoise-cpu",
        "EQUIPOISE_ARM": arm,
        "EQUIPOISE_STEP_LOG": str(folder / "steps.jsonl"),
        "EQUIPOISE_LAUNCH_ID": f"test-{arm}",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    place = ["--model-path", str(MODEL), "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "engine.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "sglang.launch_server", *place, *FLAGS],
            env=env,
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until_ready(process, port, folder / "engine.log")
        yield port
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until_ready(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            call(port, "/health")
            return
        time.sleep(1)
    pytest.fail(f"the engine did not start: {log.read_text(errors='replace')[-3000:]}")


def profile(port: int, folder: Path) -> dict[str, Any]:
    """The trace of 8 decode steps: complete when the generation that made them has been answered."""
    generation = threading.Thread(target=generate, args=(port, 40))
    generation.start()
    steps = attested(port)["steps_seen"]
    while attested(port)["steps_seen"] < steps + 2:
        time.sleep(0.05)
    asked = {"output_dir": str(folder), "activities": ["CPU"], "num_steps": PROFILED_STEPS}
    call(port, "/start_profile", asked | {"with_stack": False, "record_shapes": False})
    generation.join()
    [path] = folder.glob("*.trace.json.gz")
    with gzip.open(path) as file:
        return json.load(file)


def fills_per_step(trace: dict[str, Any]) -> list[tuple[int, int]]:
    """Numbers of ``aten::zeros`` and ``aten::ones`` inside each decode step of a trace."""
    events = trace["traceEvents"]
    steps = [e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("step[DECODE")]
    found = []
    for step in steps:
        end = step["ts"] + step["dur"]
        names = Counter(
            e["name"]
            for e in events
            if e.get("cat") == "cpu_op" and e["tid"] == step["tid"] and step["ts"] <= e["ts"] < end
        )
        found.append((names["aten::zeros"], names["aten::ones"]))
    return found


# 30 layers; the counts are DESIGN's: one allocation of counters and two of scales per layer, or none.
FILLS = {"baseline": (30, 60), "persistent": (0, 0), "upstream": (0, 0)}
KERNEL_PATHS = {"baseline": "reference", "persistent": "reference", "upstream": "torch_native"}


def test_three_arms_attest_clock_and_differ_only_in_their_fills(tmp_path: Path) -> None:
    texts = {}
    for arm, expected in FILLS.items():
        folder = tmp_path / arm
        folder.mkdir()
        with engine(arm, folder) as port:
            texts[arm] = generate(port, 24)
            assert fills_per_step(profile(port, folder)) == [expected] * PROFILED_STEPS
            record = attested(port)
        assert (record["arm"], record["launch_id"], record["seam"]) == (arm, f"test-{arm}", "ok")
        assert record["kernel_path"] == KERNEL_PATHS[arm]
        assert record["scratch"]["scale_shared"] == {"baseline": False, "persistent": True, "upstream": None}[arm]
        assert record["guard"]["state"] == ("clean" if arm == "persistent" else "not_applicable")
        assert_clocked(folder / "steps.jsonl", record)
    assert texts["baseline"] == texts["persistent"] == texts["upstream"]


def assert_clocked(log: Path, record: dict[str, Any]) -> None:
    rows = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    assert len(rows) == record["steps_written"] == record["steps_seen"]
    full = [row for row in rows if row[2] == len(PROMPTS)]
    # 24 tokens: one from the prefill, 23 from steps; the last step attends to 3 * (64 + 23) tokens.
    first = full[:23]
    assert [row[3] for row in first] == [3 * (64 + number) for number in range(1, 24)]
    assert first[0][5] is None
    assert all(row[4] > 0 for row in first)
    for earlier, later in itertools.pairwise(first):
        assert later[5] >= earlier[4], "a period holds the work of the step before"
