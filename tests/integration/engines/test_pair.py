"""The real launcher drives simulated engines as real processes: one normal pair, from start to nothing left."""

from pathlib import Path

import psutil
import pytest

from equipoise_evals.model import SamplingPlan
from equipoise_evals.model.records import StopRecord
from equipoise_service.engines import SGLangLauncher
from equipoise_service.engines.process import LAUNCH_ID
from tests.fakes.launching import QUICK, ListRecorder, latency_plan, simulated_environment

LAYERS = 30


def processes_of_launches() -> list[psutil.Process]:
    """Every process that carries a launch's mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if LAUNCH_ID in process.environ():
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


async def test_a_pair_starts_in_order_measures_and_leaves_nothing(tmp_path: Path) -> None:
    recorder = ListRecorder()
    launcher = SGLangLauncher(
        {"default": simulated_environment({"effect": {"persistent": -0.1}})}, recorder, tmp_path, QUICK
    )

    async with launcher.launch_pair(latency_plan(), 1, ("B", "A")) as engines:
        launches = {role: await engine.attest() for role, engine in engines.items()}
        blocks = {role: await engine.decode(16, 32, 24, seed=7) for role, engine in engines.items()}
        fills = {role: (await engine.count_kernels(1, 8)).per_step for role, engine in engines.items()}
        answers = [await engine.generate("Question: 2 + 2?", SamplingPlan()) for engine in engines.values()]

    assert list(engines) == ["B", "A"]
    assert launches["B"].started_first
    assert not launches["A"].started_first
    assert launches["A"].attestation["arm"] == "baseline"
    assert launches["B"].attestation["arm"] == "persistent"
    assert set(launches["A"].stage_s) == {"spawn_to_ready", "first_generation"}
    assert all(len(block.steps) == 24 and len(block.client) == 16 for block in blocks.values())
    assert set(blocks["A"].steps.real_batch) == {16}
    # The knob says -10 %; the step noise of 0.5 % over 24 steps leaves about 0.15 % of uncertainty in the ratio.
    ratio = sum(blocks["B"].steps.busy_us) / sum(blocks["A"].steps.busy_us)
    assert ratio == pytest.approx(0.9, abs=0.01)
    assert fills["A"]["aten::zeros"] == LAYERS
    assert fills["A"]["aten::ones"] == 2 * LAYERS
    assert "aten::zeros" not in fills["B"]
    assert answers[0] == answers[1]
    stops = [record for record in recorder.kept if isinstance(record, StopRecord)]
    assert sorted(stop.role for stop in stops) == ["A", "B"]
    assert all(stop.clean and stop.held_s > 0 for stop in stops)
    assert processes_of_launches() == []
