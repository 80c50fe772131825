"""The wire between Equipoise and SGLang: what a real engine answered, and that the simulated one answers alike.

``data/sglang-0.5.23.json`` was recorded from SGLang 0.5.23 with the plugin on a CPU by ``record.py``;
``data/plugin-0.1.0-steps.jsonl`` is the beginning of the step log of that engine.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from equipoise_evals.model import ArmSpec, ModelRef
from equipoise_service.engines.attestation import Expected, attested
from equipoise_service.engines.client import EngineClient
from equipoise_service.engines.ports import PortChooser
from equipoise_service.engines.process import ProcessTree
from equipoise_service.engines.steplog import StepLog
from tests.contract.record import record
from tests.fakes.launching import ROOT

DATA = Path(__file__).with_name("data")
REAL: dict[str, Any] = json.loads((DATA / "sglang-0.5.23.json").read_text())


@pytest.fixture
async def simulated(tmp_path: Path) -> AsyncIterator[int]:
    """The port of a simulated engine of the persistent arm, ready."""
    chooser = PortChooser()
    ports = chooser.choose()
    folder = tmp_path / "pair-001-B"
    folder.mkdir()
    argv = [sys.executable, "-m", "tests.fakes.simulated_engine", "--model-path", "MODEL", "--port", str(ports.http)]
    variables = {
        "PYTHONPATH": str(ROOT),
        "EQUIPOISE_ARM": "persistent",
        "EQUIPOISE_STEP_LOG": str(folder / "steps.jsonl"),
    }
    tree = await ProcessTree.spawn(argv, variables, "eq-contract", folder / "engine.log", grace_s=1)
    try:
        while "fired up" not in tree.log_tail():
            assert not tree.exit.done(), tree.log_tail()
            await asyncio.sleep(0.05)
        yield ports.http
    finally:
        await tree.stop(ports)


def differences(simulated: object, real: object, path: str = "") -> list[str]:
    """Where the simulated value has a key or a JSON type that the real one has not; null stands for any type."""
    if simulated is None or real is None:
        return []
    if isinstance(simulated, bool) != isinstance(real, bool) or not isinstance(simulated, _kin(real)):
        return [f"{path}: {type(simulated).__name__} for {type(real).__name__}"]
    if isinstance(simulated, dict) and isinstance(real, dict):
        unknown = [f"{path}.{key}: not in the real answer" for key in simulated if key not in real]
        return unknown + [
            line for key in simulated if key in real for line in differences(simulated[key], real[key], f"{path}.{key}")
        ]
    if isinstance(simulated, list) and isinstance(real, list) and simulated and real:
        return differences(simulated[0], real[0], f"{path}[0]")
    return []


def _kin(real: object) -> type | tuple[type, ...]:
    return (int, float) if isinstance(real, float) else type(real)


async def test_the_simulated_engine_answers_every_route_in_the_real_ones_form(simulated: int) -> None:
    answers = await record(simulated)

    assert set(answers) == set(REAL)
    for route, answer in answers.items():
        assert answer["status"] == REAL[route]["status"], route
        if "json" in answer:
            assert differences(answer["json"], REAL[route]["json"], route) == []


async def test_the_simulated_stream_has_the_real_ones_events(simulated: int) -> None:
    stream = (await record(simulated))["stream"]
    events = [line.removeprefix("data: ") for line in stream["lines"] if line]
    real = [line.removeprefix("data: ") for line in REAL["stream"]["lines"] if line]

    assert stream["type"] == REAL["stream"]["type"]
    assert len(events) == len(real)  # two sequences of four tokens, one event each, and the end mark
    assert events[-1] == real[-1] == "[DONE]"
    assert differences(json.loads(events[0]), json.loads(real[0])) == []
    assert differences(json.loads(events[-2]), json.loads(real[-2])) == []


def test_the_comparison_of_shapes_sees_a_difference() -> None:
    assert differences({"a": 1, "b": {"c": "x"}}, {"b": {"c": 2}}, "r") == [
        "r.a: not in the real answer",
        "r.b.c: str for int",
    ]
    assert differences({"a": True}, {"a": 1}) == [".a: bool for int"]
    assert differences([{"a": None}], [{"a": 1.5}]) == []


def test_the_real_record_attests_its_arm() -> None:
    info = REAL["server_info"]["json"]
    expected = Expected(
        arm=ArmSpec(name="persistent", scratch="persistent"),
        model=ModelRef(name="m", source="folder", path="MODEL", revision="0"),
        launch_id=info["internal_states"][0]["equipoise"]["launch_id"],
    )

    record_of_the_plugin = attested(expected, info, REAL["model_info"]["json"])

    assert record_of_the_plugin["kernel_path"] == "reference"


def test_the_real_step_log_is_read() -> None:
    log = StepLog(DATA / "plugin-0.1.0-steps.jsonl")
    header = log.path.read_text().splitlines()[0]

    rows = log.since(len(header) + 1)

    assert json.loads(header)["columns"] == [
        "monotonic_ns", "graph_batch", "real_batch", "context_tokens", "busy_us", "period_us",
    ]  # fmt: skip
    assert len(rows) == 11
    assert rows[0][5] is None


async def test_the_simulated_step_log_has_the_real_ones_header_and_columns(simulated: int, tmp_path: Path) -> None:
    async with EngineClient(simulated, request_s=5) as client:
        await client.stream_batch([[1000] * 8], 4)
        await client.server_info()
    lines = (tmp_path / "pair-001-B" / "steps.jsonl").read_text().splitlines()
    real = (DATA / "plugin-0.1.0-steps.jsonl").read_text().splitlines()

    assert differences(json.loads(lines[0]), json.loads(real[0])) == []
    assert [type(value) for value in json.loads(lines[2])] == [type(value) for value in json.loads(real[2])]
