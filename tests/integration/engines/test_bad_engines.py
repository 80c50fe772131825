"""The shelf of bad engines: each ends in its own named error within its limit, and nothing is left behind.

That nothing is left is asserted by the fixture behind ``launcher_of``, over the process table and the port range.
"""

import asyncio
import dataclasses
import os
import signal
import socket
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pytest

from equipoise_evals.model import SamplingPlan
from equipoise_evals.model.records import StopRecord
from equipoise_evals.ports import Engine, EngineFault, RequestFailed
from equipoise_service.engines import EngineEnvironment, SGLangLauncher
from equipoise_service.engines.engine import SGLangEngine
from equipoise_service.engines.ports import EnginePorts, PortChooser
from tests.fakes.launching import QUICK, ListRecorder, latency_plan
from tests.integration.engines.conftest import LauncherOf

PROMPT = "Question: How many?\nAnswer:"


SLACK = 4
"""A busy machine may be so much slower; without a limit of its own an engine would hold the test for minutes."""


def sglang(engine: Engine) -> SGLangEngine:
    assert isinstance(engine, SGLangEngine)
    return engine


class Case(NamedTuple):
    """A failure, and how it must end."""

    kind: str
    stage: str
    says: str
    limit_s: float


@pytest.mark.parametrize(
    "case",
    [
        Case("crash_at_start", "start", "exited with status 3", 4),
        Case("oom_at_capture", "start", "oom_at_graph_capture", 4),
        Case("unknown_flag", "start", "unknown_flag", 4),
        Case("address_in_use", "start", "address_in_use", 8),
        Case("hang_at_start", "start", "log has not grown for 10 s", 20),
        Case("no_generation", "start", "no generation came within 3 s", 8),
        Case("no_plugin", "attest", "Equipoise plugin is missing from its environment", 4),
        Case("wrong_model", "attest", "expected model '/simulated/model', the engine serves '/another/model'", 6),
        Case("wrong_arm", "attest", "expected arm 'baseline', attested 'upstream'", 6),
        Case("no_attestation", "attest", "plugin is missing", 6),
    ],
    ids=lambda case: case.kind,
)
async def test_an_engine_that_never_becomes_ready(launcher_of: LauncherOf, recorder: ListRecorder, case: Case) -> None:
    launcher = launcher_of(failures=[{"kind": case.kind, "role": "A"}])
    began_s = time.monotonic()

    with pytest.raises(EngineFault, match=case.says) as caught:
        async with launcher.launch_pair(latency_plan(), 1, ("A", "B")):
            pytest.fail("the pair must not start")

    assert (caught.value.role, caught.value.stage) == ("A", case.stage)
    assert time.monotonic() - began_s < SLACK * case.limit_s
    stops = [record for record in recorder.kept if isinstance(record, StopRecord)]
    assert stops
    assert all(stop.role == "A" and stop.clean for stop in stops)


async def test_a4_15_a_start_that_logs_for_ever_ends_at_the_hard_limit(launcher_of: LauncherOf) -> None:
    # A4-15 (a): progress alone does not make it ready.
    launcher_of.limits = dataclasses.replace(QUICK, start_s=6)
    launcher = launcher_of(failures=[{"kind": "logs_for_ever"}])

    with pytest.raises(EngineFault, match="not ready after 6 s, though its log still grows"):
        async with launcher.launch_pair(latency_plan(), 1, ("A", "B")):
            pytest.fail("the pair must not start")


async def test_unequal_kv_pools_are_refused(launcher_of: LauncherOf) -> None:
    pair = latency_plan().arms
    smaller = pair.candidate.model_copy(update={"flags": (*pair.candidate.flags, "--max-total-tokens", "8192")})
    plan = latency_plan(pair.model_copy(update={"candidate": smaller}))

    with pytest.raises(EngineFault, match=r"KV pools differ: \{'A': 16384, 'B': 8192\} tokens"):
        async with launcher_of().launch_pair(plan, 1, ("A", "B")):
            pytest.fail("the pools differ")


async def test_the_first_engine_is_stopped_when_the_second_does_not_start(
    launcher_of: LauncherOf, recorder: ListRecorder
) -> None:
    launcher = launcher_of(failures=[{"kind": "crash_at_start", "role": "B"}])

    with pytest.raises(EngineFault, match="arm B"):
        async with launcher.launch_pair(latency_plan(), 1, ("A", "B")):
            pytest.fail("the pair must not start")

    assert sorted(record.role for record in recorder.kept if isinstance(record, StopRecord)) == ["A", "B"]


async def test_the_log_tail_is_in_the_error(launcher_of: LauncherOf) -> None:
    launcher = launcher_of(failures=[{"kind": "crash_at_start"}])

    with pytest.raises(EngineFault) as caught:
        async with launcher.launch_pair(latency_plan(), 1, ("A", "B")):
            pytest.fail("the pair must not start")

    assert caught.value.log_tail == "simulated: crashed at start"


async def test_a_port_stolen_between_choice_and_bind_costs_one_more_start(
    launcher_of: LauncherOf, recorder: ListRecorder
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as thief:
        stolen = thief.getsockname()[1]

        class Unlucky(PortChooser):
            def choose(self) -> EnginePorts:
                fair = super().choose()
                first = not recorder.kept
                return EnginePorts(http=stolen, nccl=fair.nccl) if first else fair

        launcher = launcher_of()
        launcher.ports = Unlucky()
        async with launcher.launch_pair(latency_plan(), 1, ("A", "B")) as engines:
            generation = await engines["A"].generate(PROMPT, SamplingPlan())

    assert generation.output_ids
    assert [record.role for record in recorder.kept if isinstance(record, StopRecord)].count("A") == 2


async def test_a4_13_an_old_server_on_the_port_is_never_measured(launcher_of: LauncherOf) -> None:
    """A4-13: it answers every question that readiness asks, with another model; ownership of the port gives it away."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b'{"model_path": "/simulated/model"}'
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        await writer.drain()
        writer.close()

    old = await asyncio.start_server(answer, "127.0.0.1", 0)
    stolen = old.sockets[0].getsockname()[1]

    class Stubborn(PortChooser):
        def choose(self) -> EnginePorts:
            return EnginePorts(http=stolen, nccl=super().choose().nccl)

    launcher = launcher_of(failures=[{"kind": "hang_at_start"}])
    launcher.ports = Stubborn()
    async with old:
        with pytest.raises(EngineFault, match=f"port {stolen}, chosen for arm A, is used by process {os.getpid()}"):
            async with launcher.launch_pair(latency_plan(), 1, ("A", "B")):
                pytest.fail("the old server must not be taken for an engine")


async def test_a4_09_an_engine_that_dies_while_it_answers_questions(launcher_of: LauncherOf) -> None:
    # A4-09; the first generation of the launcher is one of the three answers.
    launcher = launcher_of(failures=[{"kind": "dies_in_gsm8k", "role": "B", "after": 3}])
    answers = []

    async def ask() -> None:
        async with launcher.launch_pair(latency_plan(), 1, ("A", "B")) as engines:
            for _ in range(5):
                answers.append(await engines["B"].generate(PROMPT, SamplingPlan()))

    with pytest.raises(EngineFault, match="was killed by SIGKILL") as caught:
        await ask()

    assert (caught.value.role, caught.value.stage, len(answers)) == ("B", "gsm8k", 2)
    assert "fired up" in caught.value.log_tail


async def test_an_engine_that_dies_in_a_block(launcher_of: LauncherOf) -> None:
    launcher = launcher_of(failures=[{"kind": "dies_in_block", "role": "A", "after": 10}])

    with pytest.raises(EngineFault, match="was killed by SIGKILL") as caught:
        async with launcher.launch_pair(latency_plan(), 1, ("A", "B")) as engines:
            await engines["A"].decode(4, 16, 40, seed=1)

    assert (caught.value.role, caught.value.stage) == ("A", "decode")


@pytest.mark.parametrize(
    ("kind", "says"), [("garbage_stream", "no JSON"), ("truncated_stream", "without its end mark")]
)
async def test_a_bad_stream_fails_the_block(launcher_of: LauncherOf, kind: str, says: str) -> None:
    launcher = launcher_of(failures=[{"kind": kind}])

    with pytest.raises(EngineFault, match=says) as caught:
        async with launcher.launch_pair(latency_plan(), 1, ("A", "B")) as engines:
            await engines["A"].decode(2, 16, 8, seed=1)

    assert caught.value.stage == "decode"


async def test_failed_requests_are_the_requests_own(launcher_of: LauncherOf) -> None:
    launcher = launcher_of(failures=[{"kind": "errors", "share": 0.5, "role": "A"}])
    outcomes = []

    async with launcher.launch_pair(latency_plan(), 1, ("A", "B")) as engines:
        for number in range(20):
            try:
                await engines["A"].generate(f"Question: {number}?", SamplingPlan())
            except RequestFailed as failed:
                outcomes.append(str(failed))

    # A fair coin gives 3 to 17 heads of 20 with probability 0.9996; the seed makes it one number.
    assert 3 <= len(outcomes) <= 17
    assert all("HTTP 500" in outcome for outcome in outcomes)


async def test_a_slow_engine_is_slow_and_no_fault(launcher_of: LauncherOf) -> None:
    launcher = launcher_of(failures=[{"kind": "slow", "role": "B", "factor": 10}])

    async with launcher.launch_pair(latency_plan(), 1, ("A", "B")) as engines:
        means = {role: np.mean((await engine.decode(1, 16, 20, 1)).steps.busy_us) for role, engine in engines.items()}

    assert means["B"] / means["A"] == pytest.approx(10, rel=0.02)


async def test_an_engine_that_ignores_sigterm_is_killed_after_the_grace(
    launcher_of: LauncherOf, recorder: ListRecorder
) -> None:
    launcher = launcher_of(failures=[{"kind": "ignores_sigterm", "role": "A"}])

    async with launcher.launch_pair(latency_plan(), 1, ("A", "B")):
        began_s = time.monotonic()

    assert 1 <= time.monotonic() - began_s < SLACK * 5
    assert all(record.clean for record in recorder.kept if isinstance(record, StopRecord))


async def test_a4_11_a_detached_grandchild_is_ended_too(launcher_of: LauncherOf) -> None:
    # A4-11: it left our session, and its parent has ended.
    launcher = launcher_of(failures=[{"kind": "orphan", "role": "A"}])

    async with launcher.launch_pair(latency_plan(), 1, ("A", "B")) as engines:
        orphans = [process for process in sglang(engines["A"]).tree.members() if process.name() == "sleep"]
        assert len(orphans) == 1
        assert os.getsid(orphans[0].pid) == orphans[0].pid

    assert not orphans[0].is_running()


async def test_a4_21_a_megabyte_of_log_blocks_nothing_and_its_tail_is_short(launcher_of: LauncherOf) -> None:
    # A4-21: more than a pipe holds.
    launcher = launcher_of(failures=[{"kind": "chatty", "role": "A"}])

    async with launcher.launch_pair(latency_plan(), 1, ("A", "B")) as engines:
        tree = sglang(engines["A"]).tree
        assert tree.log.stat().st_size > 1_000_000
        assert len(tree.log_tail()) <= 32_768


@pytest.mark.parametrize("victim", ["supervisor", "engine"])
async def test_sigkill_from_outside_is_noticed_at_once(launcher_of: LauncherOf, victim: str) -> None:
    launcher = launcher_of(time_scale=1.0)
    killed_s: list[float] = []

    async def kill_while_it_decodes() -> None:
        async with launcher.launch_pair(latency_plan(), 1, ("A", "B")) as engines:
            running = asyncio.ensure_future(engines["A"].decode(16, 16, 4000, seed=1))
            await asyncio.sleep(0.3)
            members = {process: " ".join(process.cmdline()) for process in sglang(engines["A"]).tree.members()}
            doomed = [one for one, line in members.items() if ("supervisor.py" in line) == (victim == "supervisor")]
            for process in doomed:
                process.kill()
            killed_s.append(time.monotonic())
            await running

    with pytest.raises(EngineFault, match="was killed by SIGKILL") as caught:
        await kill_while_it_decodes()

    assert time.monotonic() - killed_s[0] < SLACK * 3
    assert (caught.value.role, caught.value.stage) == ("A", "decode")


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.6, 2.0])
async def test_cancelling_a_start_leaves_nothing(
    launcher_of: LauncherOf, recorder: ListRecorder, after_s: float
) -> None:
    launcher = launcher_of(failures=[{"kind": "hang_at_start", "role": "B"}])

    async def start() -> None:
        async with launcher.launch_pair(latency_plan(), 1, ("A", "B")):
            pytest.fail("the second engine hangs")

    task = asyncio.ensure_future(start())
    await asyncio.sleep(after_s)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert all(record.clean for record in recorder.kept if isinstance(record, StopRecord))


async def test_what_cannot_be_ended_is_named_and_blocks_the_next_start(
    launcher_of: LauncherOf, recorder: ListRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = launcher_of(failures=[{"kind": "ignores_sigterm", "role": "A"}])
    killed = os.kill
    stubborn: list[int] = []

    async with launcher.launch_pair(latency_plan(), 1, ("A", "B")) as engines:
        tree = sglang(engines["A"]).tree
        stubborn += [process.pid for process in tree.members()]
        # Nothing reaches this tree any more, as if it hung in the kernel.
        monkeypatch.setattr("equipoise_service.engines.process.KILL_WAIT_S", 0.5)
        monkeypatch.setattr(psutil.Process, "kill", lambda process: None)
        monkeypatch.setattr(tree, "terminate", lambda: None)

    stop = next(record for record in recorder.kept if isinstance(record, StopRecord) and record.role == "A")
    assert not stop.clean
    assert any(f"process {stubborn[0]}" in leftover for leftover in stop.leftovers)
    with pytest.raises(EngineFault, match="of an earlier engine still runs"):
        async with launcher.launch_pair(latency_plan(), 2, ("A", "B")):
            pytest.fail("the next pair must not start")
    monkeypatch.undo()
    processes = tree.members()
    for pid in stubborn:
        killed(pid, signal.SIGKILL)
    await asyncio.wait({tree.exit})
    await asyncio.to_thread(psutil.wait_procs, processes)


async def test_an_unknown_engine_environment_is_named(launcher_of: LauncherOf) -> None:
    plan = latency_plan()
    arm = plan.arms.baseline.model_copy(update={"engine": "other"})
    plan = latency_plan(plan.arms.model_copy(update={"baseline": arm}))

    with pytest.raises(EngineFault, match="no engine environment is called 'other'; there are: default"):
        async with launcher_of().launch_pair(plan, 1, ("A", "B")):
            pytest.fail("there is no such environment")


async def test_an_interpreter_that_is_not_there_is_named(recorder: ListRecorder, tmp_path: Path) -> None:
    environment = EngineEnvironment("default", Path("/no/such/python"), device="cpu")
    launcher = SGLangLauncher({"default": environment}, recorder, tmp_path, QUICK)

    with pytest.raises(EngineFault, match="interpreter_missing") as caught:
        async with launcher.launch_pair(latency_plan(), 1, ("A", "B")):
            pytest.fail("there is no such interpreter")

    assert "/no/such/python" in caught.value.log_tail
