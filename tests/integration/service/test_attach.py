"""Comparisons of engines that run already: simulated ones, started here as anybody would start theirs."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from equipoise_evals.gsm8k.load import SHIPPED
from equipoise_evals.model import ArmPair, ModelRef, Record
from equipoise_evals.ports import Engine, EngineFault, RequestFailed
from equipoise_service.cli import main
from equipoise_service.engines.attached import AttachedEngine, AttachedLauncher
from equipoise_service.engines.client import EngineClient
from equipoise_service.store import LeaseLost
from tests.fakes.launching import QUICK, ROOT, ListRecorder
from tests.integration.service.served import clean_environment, variables_of
from tests.support import records as make
from tests.support.attached import ARMS

MODEL = "/models/anybodys"
SMALL: dict[str, Any] = {
    "model": MODEL, "pairs_max": 2, "quads": 1, "steps_per_block": 16, "batch_sizes": [1, 4], "primary_batch": 4,
    "questions": 8, "shots": 1,
}  # fmt: skip
Start = Callable[..., str]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Start]:
    """Starts an engine that is none of ours, and returns its address; it must still run at the end."""
    running: list[tuple[subprocess.Popen[bytes], bool]] = []

    def start(arm: str, *, model: str = MODEL, port: int | None = None, lives: bool = True, **knobs: object) -> str:
        port = port or free_port()
        folder = tmp_path / f"engine-{port}-{len(running)}"
        folder.mkdir()
        knobs = {"questions": [str(SHIPPED / "test.jsonl")], "time_scale": 1.0} | knobs
        environment = clean_environment() | {
            "EQUIPOISE_ARM": arm,
            "EQUIPOISE_LAUNCH_ID": f"somebody-{port}",
            "EQUIPOISE_STEP_LOG": str(folder / "steps.jsonl"),
            "EQUIPOISE_SIM": json.dumps(knobs),
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "tests.fakes.simulated_engine", "--model-path", model, "--port", str(port)]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        running.append((process, lives))
        address = f"http://127.0.0.1:{port}"
        until_healthy(address)
        return address

    yield start
    try:
        assert all(process.poll() is None for process, lives in running if lives)
    finally:
        for process, _ in running:
            process.kill()
            process.wait()


def until_healthy(address: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{address}/health", trust_env=False).is_success:
                return
        time.sleep(0.05)
    raise AssertionError(address)


@pytest.fixture
def compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """Compares two addresses; returns the exit code, the comparison as JSON where there is one, and what was said."""

    def run(baseline: str, candidate: str, /, **fields: object) -> tuple[int, dict[str, Any], str]:
        for name, value in variables_of(tmp_path).items():
            monkeypatch.setenv(name, value)
        body = SMALL | {"baseline": {"attach": baseline}, "candidate": {"attach": candidate}} | fields
        (tmp_path / "request.json").write_text(json.dumps(body))
        capsys.readouterr()
        code = main(["compare", "--request", str(tmp_path / "request.json"), "--json"])
        said = capsys.readouterr()
        return code, json.loads(said.out) if said.out else {}, said.err

    return run


Compare = Callable[..., tuple[int, dict[str, Any], str]]


def test_two_running_engines_are_compared_as_they_are(
    tmp_path: Path, engine: Start, compare: Compare, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = engine("baseline"), engine("persistent", effect={"persistent": -0.3})
    code, view, said = compare(old, new)
    assert code == 2, said
    verdict = view["verdict"]
    assert verdict["overall"]["word"] == "inconclusive"
    assert verdict["accuracy"]["word"] == "identical"
    assert verdict["treatment"] is None
    evidence = verdict["latency"]["evidence"]
    assert (evidence["clock"], verdict["latency"]["word"]) == ("client", "inconclusive")
    # How long the client waits for simulated steps is the machine's doing, so only that both were timed is asserted.
    assert min(evidence["client"]["baseline_us"], evidence["client"]["candidate_us"]) > 0
    assert view["plan"]["model"] == {
        "name": MODEL, "source": "attached", "path": MODEL, "revision": "not known",
    }  # fmt: skip
    assert main(["report", view["id"], "-f", "records", "-o", str(tmp_path / "records.json")]) == 0
    records = json.loads((tmp_path / "records.json").read_text())["records"]
    launches = [one for one in records if one["kind"] == "launch"]
    assert [(one["attached"], one["argv"], one["attestation"]["launch_id"]) for one in launches] == [
        (True, [], f"somebody-{address.rpartition(':')[2]}") for address in (old, new)
    ] * 2
    assert {one["clock"] for one in records if one["kind"] == "block"} == {"client"}
    assert not (tmp_path / "data" / "engines").exists()
    assert main(["judge", str(tmp_path / "records.json"), "--check", "-o", str(tmp_path / "v.json")]) == 0
    capsys.readouterr()
    assert main(["report", view["id"]]) == 0
    report = capsys.readouterr().out
    assert "the baseline's engine ran already: its flags and environment are not recorded" in report
    assert "and it attests its arm" in report
    assert "Times are the client's, network included" in report
    assert f"ran already at `{new}`" in report
    assert "busy (device" not in report


def test_engines_without_the_plugin_are_compared_and_it_is_said(
    tmp_path: Path, engine: Start, compare: Compare, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = {"failures": [{"kind": "no_attestation"}]}
    code, view, said = compare(engine("baseline", **silent), engine("baseline", **silent), parts=["accuracy"])
    assert code == 2, said
    assert view["verdict"]["accuracy"]["word"] == "identical"
    assert main(["report", view["id"]]) == 0
    report = capsys.readouterr().out
    assert "it shows no attestation, so nobody has shown what it runs" in report
    assert "nothing is attested" in report


@pytest.mark.parametrize(
    ("fields", "pointer", "says"),
    [
        ({"baseline": {"attach": "http://10.0.0.9:1"}}, "/baseline/attach", "EQUIPOISE_ATTACH_HOSTS"),
        ({"candidate": {"attach": "http://127.0.0.1:2/x"}}, "/candidate/attach", "nothing else"),
        ({"candidate": {"attach": "http://127.0.0.1:1"}}, "/candidate/attach", "only a declared A/A can be"),
        ({"candidate": {"attach": "http://localhost:1"}}, "/candidate/attach", "only a declared A/A can be"),
        ({"candidate": None}, "request", "attach is given for the baseline alone"),
        ({"candidate": {"attach": "http://127.0.0.1:2", "flags": ["--x"]}}, "request", "flags and environment do not"),
        ({"stress": True}, "request", "are not put under stress"),
        ({"preset": "none"}, "", "there is no preset"),
    ],
)
def test_what_cannot_be_attached_to_is_refused_before_anything_is_asked(
    compare: Compare, fields: dict[str, Any], pointer: str, says: str
) -> None:
    code, _, said = compare("http://127.0.0.1:1", "http://127.0.0.1:2", **fields)
    assert code == 64
    assert f"{pointer}" in said
    assert says in said


@pytest.mark.parametrize(
    ("arm", "model", "says"),
    [
        ("upstream", MODEL, "arm B, stage attest: the engine at {address}: rank 0: expected arm 'persistent'"),
        ("persistent", "/other", f"it serves the model '/other', and {MODEL!r} was asked for"),
    ],
)
def test_an_engine_that_is_not_what_was_meant_fails_the_run(
    engine: Start, compare: Compare, arm: str, model: str, says: str
) -> None:
    new = engine(arm, model=model)
    code, _, said = compare(new, new, declared_aa=True, baseline={"attach": new, "scratch": "upstream"})
    assert code == 3
    assert says.format(address=new) in " ".join(said.split())


def test_an_address_where_nobody_answers_fails_the_run_by_name(compare: Compare) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    code, _, said = compare(nobody, nobody, declared_aa=True)
    assert code == 3
    assert f"stage start: the engine at {nobody}: /health" in " ".join(said.split())


async def answered(engine: Engine, times: int) -> None:
    sampling = make.accuracy_plan().sampling
    for _ in range(times):
        await engine.generate("1 + 1 =", sampling)


async def test_an_engine_that_goes_away_is_the_engines_fault_and_one_that_is_replaced_too(engine: Start) -> None:
    address = engine("persistent", lives=False, failures=[{"kind": "dies_in_gsm8k", "after": 2}])
    spec = ARMS.candidate.model_copy(update={"attach": address})
    plan = make.plan(
        arms=ArmPair(baseline=spec, candidate=spec),
        declared_aa=True,
        model=ModelRef(name=MODEL, source="attached", path=MODEL, revision="not known"),
    )
    recorder = ListRecorder()
    async with AttachedLauncher(recorder, QUICK).launch_pair(plan, 1, ("A", "B")) as both:
        first = both["B"]
        assert (await first.attest()).attestation["arm"] == "persistent"
        with pytest.raises(EngineFault, match="is not traced"):
            await first.count_kernels(1, 8)
        with pytest.raises(EngineFault, match="is not put under stress"):
            await first.stress(1, 1)
        with contextlib.suppress(EngineFault, RequestFailed):
            await answered(first, 4)
        with pytest.raises(EngineFault, match=f"arm B, stage gsm8k: the engine at {address}: "):
            await answered(first, 1)
        await asyncio.to_thread(engine, "persistent", port=int(address.rpartition(":")[2]))
        await answered(first, 1)
        with pytest.raises(EngineFault, match="another engine answers there than before: it has another pid"):
            await first.attest()
    assert [(one.kind, getattr(one, "role", None)) for one in recorder.kept] == [("stop", "A"), ("stop", "B")]


async def test_a_recorder_that_refuses_leaves_no_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(ListRecorder):
        def append(self, record: Record) -> None:
            raise LeaseLost("x")

    closed: list[EngineClient] = []
    close = EngineClient.close

    async def noted(client: EngineClient) -> None:
        await close(client)
        closed.append(client)

    async def ready(*_: object) -> None:
        """As if somebody answered."""

    monkeypatch.setattr(EngineClient, "close", noted)
    monkeypatch.setattr(AttachedEngine, "ready", ready)
    plan = make.plan(3, arms=ARMS)
    with pytest.raises(LeaseLost):
        async with AttachedLauncher(Refusing(), QUICK).launch_pair(plan, 1, ("A", "B")):
            pass
    assert len(set(closed)) == 2


async def test_a_redirect_leads_nowhere() -> None:
    asked: list[str] = []

    async def redirect(request: web.Request) -> web.Response:
        asked.append(request.path)
        raise web.HTTPTemporaryRedirect("/elsewhere")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", redirect)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        async with EngineClient(f"http://127.0.0.1:{port}", request_s=5) as client:
            for work in (client.health(), client.stream_batch([[1, 2]], 4)):
                with pytest.raises(RequestFailed, match="HTTP 307"):
                    await work
    finally:
        await runner.cleanup()
    assert asked == ["/health", "/generate"]
