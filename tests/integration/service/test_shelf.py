"""The shelf of bad engines through ``POST /compare``: each ends in its own error, within its limit, and leaves nothing.

Limits are those of ``QUICK``; the seconds of a case are what its limits add up to on an idle machine. Nothing left is
looked for in the process table, among the ports that were handed out and on the simulated device.
"""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from equipoise_evals.gsm8k.load import SHIPPED
from equipoise_evals.judge import judge
from equipoise_evals.model import Plan, Records, Verdict
from equipoise_evals.ports import Launcher, Recorder
from equipoise_service.engines import Limits, SGLangLauncher
from equipoise_service.engines.leftovers import Leftovers
from equipoise_service.engines.ports import EnginePorts
from equipoise_service.server import bind, running_server
from equipoise_service.settings import Settings
from tests.fakes.device import DRIVER_BYTES, SimulatedDevice
from tests.fakes.launching import QUICK, simulated_environment
from tests.fakes.memory import ENGINE_BYTES
from tests.integration.engines.conftest import RememberedPorts, processes_writing_below, still_taken
from tests.integration.service.conftest import Running
from tests.integration.service.served import PLAIN

SMALL: dict[str, Any] = {
    "parts": ["latency", "accuracy"], "questions": 16, "shots": 1, "pairs_max": 1, "quads": 1, "steps_per_block": 16,
    "batch_sizes": [4], "primary_batch": 4,
}  # fmt: skip
SLACK = 4
"""A busy machine may be so much slower; without a limit of its own an engine would hold the test for minutes."""


class StolenPorts(RememberedPorts):
    """Hands out a port that somebody else has, the first ``times`` times."""

    def __init__(self, stolen: int, times: int) -> None:
        super().__init__()
        self._stolen, self.times = stolen, times

    def choose(self) -> EnginePorts:
        """Two ports; the first one stolen."""
        fair = super().choose()
        self.times -= 1
        return EnginePorts(http=self._stolen, nccl=fair.nccl) if self.times >= 0 else fair


class Shelf:
    """A service over simulated engines on a simulated device."""

    def __init__(self, folder: Path, *failures: dict[str, object], ports: RememberedPorts | None = None) -> None:
        self.folder, self.ports = folder, ports or RememberedPorts()
        self.device, self.limits = SimulatedDevice(folder / "device"), QUICK
        self.knobs: dict[str, object] = {
            "questions": [str(SHIPPED / "test.jsonl")], "device": str(folder / "device"), "failures": failures,
        }  # fmt: skip
        self.leftovers = Leftovers()
        self.imports_ahead: int | None = None
        """Engines of later launches that import beside the first start, as on a GPU; None where none overlaps."""

    def launcher(self, comparison_id: str, plan: Plan, recorder: Recorder) -> Launcher:
        """The real launcher, with quick limits."""
        del plan
        environment = simulated_environment(self.knobs)
        if self.imports_ahead is not None:
            environment = replace(environment, device="cuda", overlaps=True)
        launcher = SGLangLauncher(
            {"default": environment},
            recorder,
            self.folder / "engines" / comparison_id,
            self.limits,
            device=self.device,
            leftovers=self.leftovers,
            imports_ahead=self.imports_ahead or 0,
        )
        launcher.ports = self.ports
        return launcher

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Running]:
        """The service and a client."""
        settings = Settings(data=self.folder / "data", cache=self.folder / "cache", device="simulated")
        listening = bind("127.0.0.1", 0)
        async with (
            running_server(settings, listening, listening.url, self.launcher),
            httpx.AsyncClient(base_url=listening.url, timeout=60, trust_env=False, verify=PLAIN) as client,
        ):
            yield Running(client, [])

    def left(self) -> list[str]:
        """Processes, ports and device memory of this shelf's engines."""
        processes = [f"process {process.pid}" for process in processes_writing_below(self.folder)]
        ports = [f"port {port}" for port in still_taken(self.ports.handed)]
        use = self.device.use()
        return processes + ports + [f"{use.used_bytes} bytes"] * (use.used_bytes != DRIVER_BYTES)


class Case(NamedTuple):
    """A failure of the baseline, and how its comparison must end."""

    kind: str
    stage: str
    says: str
    limit_s: float


@pytest.mark.parametrize(
    "case",
    [
        Case("crash_at_start", "start", "exited with status 3", 4),
        Case("hang_at_start", "start", "log has not grown for 10 s", 20),
        Case("no_generation", "start", "no generation came within 3 s", 8),
        Case("wrong_model", "attest", "the engine serves '/another/model'", 6),
        Case("wrong_arm", "attest", "expected arm 'baseline', attested 'upstream'", 6),
        Case("no_attestation", "attest", "the Equipoise plugin is missing", 6),
        Case("oom_at_capture", "start", "oom_at_graph_capture", 4),
        Case("dies_in_gsm8k", "gsm8k", "was killed by SIGKILL", 10),
        Case("dies_in_block", "decode", "was killed by SIGKILL", 10),
        Case("garbage_stream", "decode", "no JSON", 10),
        Case("truncated_stream", "decode", "without its end mark", 10),
        Case("unknown_flag", "start", "unknown_flag", 4),
    ],
    ids=lambda case: case.kind,
)
async def test_each_bad_engine_ends_in_its_own_error(tmp_path: Path, case: Case) -> None:
    shelf = Shelf(tmp_path, {"kind": case.kind, "role": "A", "after": 3})
    async with shelf.running() as running:
        began_s = time.monotonic()
        view = await running.ended(await running.submit(**SMALL))
        assert time.monotonic() - began_s < SLACK * case.limit_s
        assert (view["status"], view["error"]["arm"], view["error"]["stage"]) == ("failed", "A", case.stage)
        assert case.says in view["error"]["reason"]
        assert shelf.left() == []


async def test_a4_09_answers_of_an_engine_that_died_are_kept_and_give_no_verdict(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, {"kind": "dies_in_gsm8k", "role": "B", "after": 8})
    async with shelf.running() as running:
        comparison_id = await running.submit(**SMALL | {"concurrency": 1})
        view = await running.ended(comparison_id)
        assert (view["status"], view["verdict"], view["error"]["arm"]) == ("failed", None, "B")
        assert "was killed by SIGKILL" in view["error"]["reason"]
        assert "fired up" in view["error"]["log_tail"]
        records = (await running.client.get(f"/comparisons/{comparison_id}/records")).json()["records"]
        kept = [record["role"] for record in records if record["kind"] == "answer"]
        # The launcher's first generation is one of the eight.
        assert kept == ["B"] * 7
        # The other arm is not affected: its pass is whole if it came first.
        assert {record["role"] for record in records if record["kind"] == "pass"} <= {"A"}
        # More than one an arm where another test's engine took its port meanwhile.
        stops = [record for record in records if record["kind"] == "stop"]
        assert {record["role"] for record in stops} == {"A", "B"}
        assert all(record["clean"] for record in stops)


async def test_a4_15_a_dead_engine_is_noticed_at_once_and_not_at_the_limit(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, {"kind": "crash_at_start", "role": "A"})
    async with shelf.running() as running:
        view = await running.ended(await running.submit(**SMALL))
        # From its last word to the end of the comparison; a start may take 20 s, or 10 in silence.
        died_s = next((tmp_path / "engines").glob("*/pair-001-A-*/engine.log")).stat().st_mtime
        assert datetime.fromisoformat(view["finished_at"]).timestamp() - died_s < QUICK.start_idle_s
        assert "exited with status 3" in view["error"]["reason"]
        assert "crashed at start" in view["error"]["log_tail"]


async def test_a4_17_a_port_in_use_is_tried_again_only_so_often(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, {"kind": "address_in_use", "role": "A"})
    async with shelf.running() as running:
        view = await running.ended(await running.submit(**SMALL))
        assert (view["status"], view["error"]["stage"]) == ("failed", "start")
        folders = [one.name for one in (tmp_path / "engines").glob("*/pair-001-A-*")]
        assert sorted(name.split("-")[3] for name in folders) == ["1", "2", "3"]
        assert len(set(shelf.ports.handed)) == len(shelf.ports.handed)


async def test_a4_19_memory_that_does_not_suffice_is_named_with_what_was_asked_for(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, {"kind": "oom_at_capture", "role": "A"})
    async with shelf.running() as running:
        comparison_id = await running.submit(**SMALL)
        view = await running.ended(comparison_id)
        assert "oom_at_graph_capture" in view["error"]["reason"]
        assert "(--mem-fraction-static 0.2 was asked for)" in view["error"]["reason"]
        assert "Capture cuda graph failed: CUDA out of memory" in view["error"]["log_tail"]
        # Nothing was started again with other arguments.
        assert len(list((tmp_path / "engines" / comparison_id).glob("pair-*-A-*"))) == 1


async def test_failed_requests_are_missing_answers_and_no_wrong_ones(tmp_path: Path) -> None:
    # Of 16 questions one is 6 %, more than the 1 % that may be missing; the seeded share of 20 % fails at least one.
    shelf = Shelf(tmp_path, {"kind": "errors", "role": "B", "share": 0.2})
    async with shelf.running() as running:
        view = await running.ended(await running.submit(**SMALL))
        assert view["status"] == "succeeded"
        overall = view["verdict"]["overall"]
        assert (overall["word"], overall["reason"]) == ("invalid", "missing_answers")
        assert shelf.left() == []


async def test_an_engine_ten_times_slower_is_measured_as_slower(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, {"kind": "slow", "role": "B", "factor": 10})
    async with shelf.running() as running:
        view = await running.ended(await running.submit(**{**SMALL, "parts": ["latency"], "pairs_max": 3}))
        assert view["verdict"]["overall"]["word"] == "block"
        # exp(effect): ten times the step time is an effect of +9.
        assert view["verdict"]["latency"]["evidence"]["busy"]["effect"] == pytest.approx(9, rel=0.02)
        assert shelf.left() == []


@pytest.mark.parametrize("kind", ["ignores_sigterm", "orphan"])
async def test_an_engine_that_resists_its_end_leaves_nothing(tmp_path: Path, kind: str) -> None:
    shelf = Shelf(tmp_path, {"kind": kind})
    async with shelf.running() as running:
        comparison_id = await running.submit(**SMALL)
        assert (await running.ended(comparison_id))["status"] == "succeeded"
        records = (await running.client.get(f"/comparisons/{comparison_id}/records")).json()["records"]
        # More than one an arm where another test's engine took its port meanwhile.
        stops = [record for record in records if record["kind"] == "stop"]
        assert {record["role"] for record in stops} == {"A", "B"}
        assert all(record["clean"] for record in stops)
        assert shelf.left() == []


async def test_a_port_stolen_before_it_is_bound_costs_another_start_and_no_verdict(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as thief:
        port = thief.getsockname()[1]
        shelf = Shelf(tmp_path, ports=StolenPorts(port, times=1))
        async with shelf.running() as running:
            assert (await running.ended(await running.submit(**SMALL)))["status"] == "succeeded"
            assert shelf.left() == []
            shelf.ports = StolenPorts(port, times=100)
            view = await running.ended(await running.submit(**SMALL))
            assert view["error"]["stage"] == "start"
            assert f"port {port}" in view["error"]["reason"] or "address_in_use" in view["error"]["reason"]
            assert shelf.left() == []


async def test_device_memory_that_stays_is_named_and_blocks_the_next_start(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, {"kind": "keeps_memory", "role": "A"})
    async with shelf.running() as running:
        first = await running.submit(**SMALL)
        assert (await running.ended(first))["status"] == "succeeded"
        records = (await running.client.get(f"/comparisons/{first}/records")).json()["records"]
        note = next((tmp_path / "device").glob("*.kept"))
        line = f"process {note.stem} holds {ENGINE_BYTES} bytes of device memory"
        assert [record["leftovers"] for record in records if record["kind"] == "stop"] == [[line], [line]]
        view = await running.ended(await running.submit(**SMALL))
        assert (view["status"], view["error"]["stage"]) == ("failed", "start")
        assert line in view["error"]["reason"]
        # Once the memory is back, so is the service.
        note.unlink()
        shelf.knobs["failures"] = ()
        assert (await running.ended(await running.submit(**SMALL)))["status"] == "succeeded"
        assert shelf.left() == []


async def test_a_foreign_process_on_the_device_is_written_down(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    (tmp_path / "device").mkdir()
    (tmp_path / "device" / "1").write_text(json.dumps(ENGINE_BYTES))  # init lives and is not ours
    async with shelf.running() as running:
        comparison_id = await running.submit(**SMALL)
        assert (await running.ended(comparison_id))["status"] == "succeeded"
        records = (await running.client.get(f"/comparisons/{comparison_id}/records")).json()["records"]
        assert [r["server_info"]["foreign_processes"] for r in records if r["kind"] == "launch"] == [[1], [1]]
        assert all(record["clean"] for record in records if record["kind"] == "stop")


PROMISED_S = 10
"""A cancelled comparison has left nothing by then, at whatever stage it was and whatever its engines do; ``make
bench-cancel`` shows it. A busy machine gets more time here, since what a test asserts is that nothing is left."""
PATIENCE_S = 60


async def until_stage(running: Running, comparison_id: str, stage: str) -> None:
    """Wait until the comparison reports this stage, or has this status."""
    async with running.client.stream("GET", f"/comparisons/{comparison_id}/events") as stream:
        async for line in stream.aiter_lines():
            if f'"stage":"{stage}"' in line or f'"status":"{stage}"' in line:
                return
    pytest.fail(f"the comparison ended before {stage}")


@pytest.mark.parametrize(
    ("stage", "failures"),
    [
        ("running", ()),
        ("launch", ()),
        ("launch", ({"kind": "hang_at_start"},)),
        ("warm_up", ()),
        ("treatment", ()),
        ("gsm8k", ()),
        ("decode", ()),
        ("decode", ({"kind": "ignores_sigterm"}, {"kind": "orphan"})),
        ("judging", ()),
    ],
)
async def test_cancelling_at_any_stage_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, failures: tuple[dict[str, object], ...]
) -> None:
    shelf = Shelf(tmp_path, *failures)
    shelf.limits = Limits()
    shelf.knobs["time_scale"] = 0.0 if stage == "judging" else 10.0
    released = threading.Event()

    def slowly(records: Records, plan: Plan) -> Verdict:
        released.wait(10 * PATIENCE_S)
        return judge(records, plan)

    monkeypatch.setattr("equipoise_service.measuring.judge", slowly)
    async with shelf.running() as running:
        comparison_id = await running.submit(**SMALL)
        await until_stage(running, comparison_id, stage)
        began_s = time.monotonic()
        assert (await running.client.post(f"/comparisons/{comparison_id}/cancel")).status_code == 202
        async with asyncio.timeout(PATIENCE_S):
            assert (await running.ended(comparison_id))["status"] == "cancelled"
        released.set()
        assert shelf.left() == []
        kinds = " and ".join(str(failure["kind"]) for failure in failures) or "sound engines"
        print(f"cancelled in {stage}, {kinds}: nothing left after {time.monotonic() - began_s:.1f} s of {PROMISED_S}")


@pytest.mark.parametrize("layout", ["alternating", "co_resident"])
async def test_engines_that_import_ahead_leave_nothing_behind_however_a_comparison_ends(
    tmp_path: Path, layout: str
) -> None:
    shelf = Shelf(tmp_path)
    shelf.imports_ahead = 7
    request = SMALL | {"pairs_max": 4, "layout": layout}
    async with shelf.running() as running:
        view = await running.ended(await running.submit(**request))
        assert (view["status"], view["verdict"]["cost"]["launch_pairs"]) == ("succeeded", 4)
        assert shelf.left() == []
        # Nothing differs, so the first pair ends it: of the engines that imported for later ones, none is left.
        equal = {"name": "baseline-again", "scratch": "baseline"}
        view = await running.ended(await running.submit(**request, candidate=equal))
        assert view["verdict"]["overall"]["word"] == "treatment_inactive"
        assert view["verdict"]["cost"]["launch_pairs"] == 1
        assert len(list((tmp_path / "engines" / view["id"]).glob("pair-003-*-1-*"))) >= 1
        assert shelf.left() == []
        shelf.knobs["time_scale"] = 10.0
        comparison_id = await running.submit(**request)
        await until_stage(running, comparison_id, "decode")
        assert (await running.client.post(f"/comparisons/{comparison_id}/cancel")).status_code == 202
        assert (await running.ended(comparison_id))["status"] == "cancelled"
        assert shelf.left() == []
