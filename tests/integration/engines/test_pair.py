"""The real launcher drives simulated engines as real processes: normal pairs, from start to nothing left."""

import asyncio
import errno
import socket
import subprocess
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from equipoise_evals.decode.schedule import launch_order, launches
from equipoise_evals.model import ROLES, LaunchRecord, Layout, Role, SamplingPlan
from equipoise_evals.model.records import StopRecord
from equipoise_evals.ports import EngineFault
from tests.fakes.launching import ListRecorder, latency_plan
from tests.integration.engines.conftest import LauncherOf, processes_writing_below

LAYERS = 30


async def test_a_pair_starts_in_order_measures_and_leaves_nothing(
    launcher_of: LauncherOf, recorder: ListRecorder
) -> None:
    launcher = launcher_of(effect={"persistent": -0.1})

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


async def test_on_a_gpu_the_second_engine_imports_beside_the_first_and_waits_for_its_memory(
    launcher_of: LauncherOf, recorder: ListRecorder
) -> None:
    """Simulated engines stop at the gate as the plugin does, and then say that they have their memory."""
    launcher = launcher_of("cuda", overlaps=True)

    async with launcher.launch_pair(latency_plan(), 1, ("B", "A")) as engines:
        launches = {role: await engine.attest() for role, engine in engines.items()}

    assert list(engines) == ["B", "A"]
    assert launches["B"].started_first
    gates = {role: Path(launch.environment["EQUIPOISE_START_GATE"]) for role, launch in launches.items()}
    assert gates["B"].is_dir()  # its own folder: it waits for nothing
    assert gates["A"].is_file()
    assert all({"spawn", "gate", "kv_pool"} <= set(launch.stage_s) for launch in launches.values())
    spawned = {role: datetime.fromisoformat(launch.started_at) for role, launch in launches.items()}
    first_ready = spawned["B"] + timedelta(seconds=launches["B"].stage_s["spawn_to_ready"])
    assert spawned["B"] <= spawned["A"] < first_ready
    assert [stop.clean for stop in recorder.kept if isinstance(stop, StopRecord)] == [True, True]


async def test_a_first_engine_that_dies_takes_the_waiting_second_with_it(
    launcher_of: LauncherOf, recorder: ListRecorder
) -> None:
    launcher = launcher_of("cuda", overlaps=True, failures=[{"kind": "crash_at_start", "role": "A"}])
    with pytest.raises(EngineFault, match="stage start"):
        async with launcher.launch_pair(latency_plan(), 1, ("A", "B")):
            pass
    assert all(stop.clean for stop in recorder.kept if isinstance(stop, StopRecord))


async def test_where_engines_run_one_after_the_other_the_second_imports_ahead(
    launcher_of: LauncherOf, recorder: ListRecorder
) -> None:
    launcher, plan = launcher_of("cuda", overlaps=True), latency_plan(layout="alternating", pairs_max=2, looks=(2,))
    (first,), (second,) = launches(plan, 1)
    began_s = time.monotonic()
    async with launcher.launch_pair(plan, 1, (first,)) as engines:
        assert set(engines) == {first}
        (waiting,) = launcher_of.work_dir.glob(f"*-{second}-1-*/engine.log")
        assert waiting.read_text().splitlines() == ["equipoise: at the start gate"]
        of_first = await engines[first].attest()
        await asyncio.sleep(1.0)
    assert waiting.read_text().splitlines() == ["equipoise: at the start gate"]
    async with launcher.launch_pair(plan, 1, (second,)) as engines:
        assert set(engines) == {second}
        of_second = await engines[second].attest()
    both_s = time.monotonic() - began_s

    assert of_second.stage_s["ahead"] > 1.0
    assert "ahead" not in of_first.stage_s
    assert "spawn" in of_first.stage_s
    assert "spawn" not in of_second.stage_s  # it was over before its turn: not known, and not 0
    assert {"gate", "kv_pool"} <= set(of_second.stage_s)
    since_spawn_s = of_second.stage_s["ahead"] + of_second.stage_s["spawn_to_ready"]
    assert since_spawn_s < both_s
    held_s = {stop.role: stop.held_s for stop in recorder.kept if isinstance(stop, StopRecord) and stop.clean}
    assert set(held_s) == {"A", "B"}
    assert sum(held_s.values()) < both_s  # waiting holds no device


async def test_an_engine_that_imported_ahead_ends_with_the_one_that_failed(
    launcher_of: LauncherOf, recorder: ListRecorder
) -> None:
    launcher, plan = launcher_of("cuda", overlaps=True), latency_plan(layout="alternating", pairs_max=2, looks=(2,))
    first, _ = launches(plan, 1)
    with pytest.raises(EngineFault, match="stage decode"):
        async with launcher.launch_pair(plan, 1, first) as engines:
            raise EngineFault(first[0], "decode", f"made up in {set(engines)}")
    # The fixture sees that nothing of the second is left; it was never launched.
    assert [stop.role for stop in recorder.kept if isinstance(stop, StopRecord)] == list(first)


@pytest.mark.parametrize("layout", ["alternating", "co_resident"])
async def test_engines_up_to_the_next_look_import_beside_the_first_start(
    launcher_of: LauncherOf, recorder: ListRecorder, layout: Layout
) -> None:
    launcher = launcher_of("cuda", overlaps=True, imports_ahead=8)
    plan = latency_plan(layout=layout, pairs_max=4, looks=(2, 4))
    found: dict[tuple[int, Role], LaunchRecord] = {}
    for pair in (1, 2):
        for group in launches(plan, pair):
            async with launcher.launch_pair(plan, pair, group) as engines:
                assert list(engines) == list(group)
                found |= {(pair, role): await engine.attest() for role, engine in engines.items()}
                folders = {path.name[:10] for path in launcher_of.work_dir.iterdir() if path.is_dir()}
                assert folders == {"pair-001-A", "pair-001-B", "pair-002-A", "pair-002-B"}
    assert ["ahead" in found[2, role].stage_s for role in ROLES] == [True, True]
    assert [found[2, role].started_first for role in launch_order(plan, 2)] == [True, False]
    stops = [stop for stop in recorder.kept if isinstance(stop, StopRecord)]
    assert [(stop.pair, stop.clean) for stop in stops] == [(1, True), (1, True), (2, True), (2, True)]


async def test_engines_whose_turn_never_comes_are_ended(launcher_of: LauncherOf, recorder: ListRecorder) -> None:
    launcher = launcher_of("cuda", overlaps=True, imports_ahead=3)
    plan = latency_plan(pairs_max=4, looks=(4,))
    async with launcher.launch_pair(plan, 1, launches(plan, 1)[0]):
        pass
    assert len(list(launcher_of.work_dir.glob("pair-*-1-*"))) == 2 + 3
    await launcher.close()
    await launcher.close()
    assert {stop.pair for stop in recorder.kept if isinstance(stop, StopRecord)} == {1}


async def test_an_engine_that_died_while_it_waited_fails_its_launch(launcher_of: LauncherOf) -> None:
    launcher, plan = launcher_of("cuda", overlaps=True), latency_plan(layout="alternating", pairs_max=2, looks=(2,))
    first, (second,) = launches(plan, 1)
    async with launcher.launch_pair(plan, 1, first):
        (log,) = launcher_of.work_dir.glob(f"*-{second}-1-*/engine.log")
        for process in processes_writing_below(log.parent):
            process.kill()
    with pytest.raises(EngineFault, match="stage start"):
        async with launcher.launch_pair(plan, 1, (second,)):
            pass


async def test_an_engine_that_waited_ends_too_where_its_launch_may_not_begin(launcher_of: LauncherOf) -> None:
    launcher, plan = launcher_of("cuda", overlaps=True), latency_plan(layout="alternating", pairs_max=2, looks=(2,))
    first, second = launches(plan, 1)
    async with launcher.launch_pair(plan, 1, first):
        pass
    with subprocess.Popen(["sleep", "600"]) as left:
        launcher_of.leftovers.processes([psutil.Process(left.pid)])
        with pytest.raises(EngineFault, match=f"process {left.pid} of an earlier engine still runs"):
            async with launcher.launch_pair(plan, 1, second):
                pass
        left.kill()


async def test_a_disk_that_is_full_fails_an_import_as_any_start(
    launcher_of: LauncherOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher, plan = launcher_of("cuda", overlaps=True), latency_plan(layout="alternating", pairs_max=2, looks=(2,))
    first, (second,) = launches(plan, 1)
    make = Path.mkdir

    def full(folder: Path, *args: Any, **kw: Any) -> None:
        if f"-{second}-1-" in folder.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        make(folder, *args, **kw)

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(EngineFault, match=f"arm {second}.*No space left on device"):
        async with launcher.launch_pair(plan, 1, first):
            pass


async def test_a_port_that_is_taken_while_an_engine_waits_costs_another_start(launcher_of: LauncherOf) -> None:
    launcher, plan = launcher_of("cuda", overlaps=True), latency_plan(layout="alternating", pairs_max=2, looks=(2,))
    first, second = launches(plan, 1)
    async with launcher.launch_pair(plan, 1, first):
        (log,) = launcher_of.work_dir.glob(f"*-{second[0]}-1-*/engine.log")
        (process, *_) = [one for one in processes_writing_below(log.parent) if "--port" in one.cmdline()]
        port = int(process.cmdline()[process.cmdline().index("--port") + 1])
        taken = socket.create_server(("127.0.0.1", port))
    with taken:
        async with launcher.launch_pair(plan, 1, second) as engines:
            launch = await engines[second[0]].attest()
    assert f"--port {port}" not in " ".join(launch.argv)
    assert "ahead" not in launch.stage_s


async def test_a_trace_that_was_begun_too_late_gets_decode_steps_all_the_same(launcher_of: LauncherOf) -> None:
    launcher = launcher_of(failures=[{"kind": "late_profile", "role": "B"}])

    async with launcher.launch_pair(latency_plan(), 1, ("A", "B")) as engines:
        counted = await engines["B"].count_kernels(1, 8)

    assert (
        counted.steps == 7
    )  # SGLang traces eight forward passes, here beginning with the prefill of what was run late
    assert "aten::zeros" not in counted.per_step


async def test_the_arms_of_the_preset_differ_in_scratch_alone(launcher_of: LauncherOf) -> None:
    async with launcher_of().launch_pair(latency_plan(), 1, ("A", "B")) as engines:
        launches = {role: await engine.attest() for role, engine in engines.items()}

    differing = {
        name
        for name, value in launches["A"].environment.items()
        if launches["B"].environment[name] != value and name not in ("EQUIPOISE_LAUNCH_ID", "EQUIPOISE_STEP_LOG")
    }
    ports = {
        launch.argv[launch.argv.index(flag) + 1] for launch in launches.values() for flag in ("--port", "--nccl-port")
    }
    assert differing == {"EQUIPOISE_ARM"}
    assert len(ports) == 4
    commands = {tuple(word for word in launch.argv if word not in ports) for launch in launches.values()}
    assert len(commands) == 1


async def test_a_seed_gives_the_same_steps_again(launcher_of: LauncherOf) -> None:
    seen = []
    for _ in range(2):
        async with launcher_of(seed=5).launch_pair(latency_plan(), 2, ("A", "B")) as engines:
            seen.append((await engines["A"].decode(4, 16, 10, seed=1)).steps.busy_us)

    assert seen[0] == seen[1]


async def test_secrets_among_an_arms_variables_are_not_recorded(launcher_of: LauncherOf) -> None:
    plan = latency_plan()
    arm = plan.arms.baseline.model_copy(update={"environment": {"HF_TOKEN": "hf_x", "OMP_NUM_THREADS": "1"}})
    plan = latency_plan(plan.arms.model_copy(update={"baseline": arm}))

    async with launcher_of().launch_pair(plan, 1, ("A", "B")) as engines:
        environment = (await engines["A"].attest()).environment

    assert environment["OMP_NUM_THREADS"] == "1"
    assert "HF_TOKEN" not in environment
