"""``POST /compare`` over HTTP through two real SGLang engines on the CPU: the line as a user runs it, only smaller."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from equipoise_evals.judge import canonical_json, judge
from equipoise_evals.model import BlockRecord, LaunchRecord, PassRecord, StopRecord, Verdict
from equipoise_service.engines import EngineEnvironment
from equipoise_service.interchange import RecordsDocument
from equipoise_service.server import bind, running_server
from equipoise_service.settings import Settings

pytestmark = pytest.mark.engine

LAYERS = 30
SMALL: dict[str, Any] = {
    "model": "embedded", "pairs_max": 1, "questions": 8, "shots": 2, "max_new_tokens": 32, "concurrency": 8,
    "batch_sizes": [1, 4], "primary_batch": 4, "quads": 1, "steps_per_block": 16, "prompt_tokens": 32,
}  # fmt: skip


class Line:
    """A running service with real engines behind it."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def submit(self, **fields: object) -> str:
        """Submit and return the id."""
        answer = await self.client.post("/compare", json=SMALL | fields)
        assert answer.status_code == 202, answer.text
        assert answer.headers["Location"] == f"/comparisons/{answer.json()['id']}"
        return str(answer.json()["id"])

    async def ended(self, comparison_id: str) -> dict[str, Any]:
        """The comparison once its event stream ends."""
        async with self.client.stream("GET", f"/comparisons/{comparison_id}/events") as stream:
            async for _ in stream.aiter_lines():
                pass
        return self.view_of(await self.client.get(f"/comparisons/{comparison_id}"))

    @staticmethod
    def view_of(answer: httpx.Response) -> dict[str, Any]:
        """The body of a comparison's page for programs."""
        assert answer.status_code == 200, answer.text
        view: dict[str, Any] = answer.json()
        return view


@pytest.fixture(scope="module")
async def line(real_environment: EngineEnvironment, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    settings = Settings(
        data=tmp_path_factory.mktemp("data"),
        cache=Settings.from_env().cache,
        engine_python=real_environment.python,
        plugin_path=real_environment.plugin_path,
        device="cpu",
        gsm8k="shipped",
    )
    async with serving(settings) as line:
        yield line


@contextlib.asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Line]:
    """The service on a free port."""
    listening = bind("127.0.0.1", 0)
    async with (
        running_server(settings, listening, None),
        httpx.AsyncClient(base_url=listening.url, timeout=600, trust_env=False) as client,
    ):
        yield Line(client)


async def test_two_real_engines_reach_an_honest_verdict(line: Line) -> None:
    comparison = await line.submit()

    view = await line.ended(comparison)

    assert view["status"] == "succeeded", view
    document = RecordsDocument.model_validate((await line.client.get(f"/comparisons/{comparison}/records")).json())
    records, plan = document.observed, document.plan
    verdict = Verdict.model_validate(view["verdict"])
    assert verdict.overall.word == "inconclusive"
    assert verdict.latency is not None
    assert verdict.latency.word == "inconclusive"
    assert verdict.treatment is not None
    allocations = {"aten::ones": 2 * LAYERS, "aten::zeros": LAYERS}
    assert verdict.treatment.baseline_per_step.items() >= allocations.items()
    assert verdict.treatment.candidate_per_step.items() >= dict.fromkeys(allocations, 0.0).items()
    assert verdict.accuracy is not None
    assert verdict.accuracy.evidence.matches == {"A1-B1": 1.0}  # float32 greedy answers are equal in both arms
    assert [launch.attestation["arm"] for launch in sorted(records.of(LaunchRecord), key=lambda r: r.role)] == [
        "baseline",
        "persistent",
    ]
    assert len(records.of(PassRecord)) == 2
    assert {block.batch for block in records.of(BlockRecord)} == {1, 4}
    assert all(stop.clean for stop in records.of(StopRecord))
    assert canonical_json(judge(records, plan)) == canonical_json(verdict)
    outputs = (await line.client.get(f"/comparisons/{comparison}/report.json")).json()["outputs"]
    (pair,) = outputs["pairs"]
    assert (pair["texts_equal"], pair["tokens_equal"], pair["compared"], pair["parted"]) == (8, 8, 8, [])


async def test_answers_of_another_precision_part_and_the_report_shows_where(line: Line) -> None:
    """Issue 5, acceptance 9: the shipped questions, a candidate that computes in bfloat16."""
    comparison = await line.submit(parts=["accuracy"], questions=16, max_new_tokens=48,
                                   candidate={"flags": ["--dtype", "bfloat16"]})  # fmt: skip

    view = await line.ended(comparison)

    assert view["status"] == "succeeded", view
    report = (await line.client.get(f"/comparisons/{comparison}/report.json")).json()
    (pair,) = report["outputs"]["pairs"]
    parted = pair["parted"]
    assert 1 <= len(parted) == 16 - pair["tokens_equal"]
    for one in parted:
        found = one["divergence"]
        assert found["token_index"] is not None
        assert found["first"]["token_at_divergence"] != found["second"]["token_at_divergence"]
        baseline, candidate = (one["choices"][role]["logprobs"] for role in ("A", "B"))
        assert baseline[0] is None or baseline[1] is None or baseline[0] > baseline[1]  # float32 repeats itself
        assert candidate != baseline
    assert {one["asked"] for one in report["outputs"]["passes"]} == {16}
    markdown = (await line.client.get(f"/comparisons/{comparison}/report.md")).text
    assert "### Where A1 and B1 part" in markdown
    assert " nats: " in markdown


async def test_an_engine_killed_in_the_gsm8k_pass_fails_the_comparison_and_leaves_nothing(line: Line) -> None:
    comparison = await line.submit(questions=48, parts=["accuracy"])
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    await killed_in_gsm8k(line, comparison)

    view = await line.ended(comparison)

    assert view["status"] == "failed"
    assert view["error"]["stage"] == "gsm8k"
    assert view["error"]["arm"] in {"A", "B"}
    assert view["error"]["log_tail"]
    assert view.get("verdict") is None
    left = [process for process in psutil.Process().children(recursive=True) if process.pid not in before]
    assert [process.cmdline() for process in left if "sglang" in " ".join(process.cmdline())] == []
    launches = (await line.client.get(f"/comparisons/{comparison}/records")).json()["records"]
    ports = [int(r["argv"][r["argv"].index("--port") + 1]) for r in launches if r["kind"] == "launch"]
    assert ports
    bound = {c.laddr.port for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.laddr}
    assert bound.isdisjoint(ports)


async def killed_in_gsm8k(line: Line, comparison: str) -> None:
    """Kill one engine's scheduler once the GSM8K pass is reported."""
    async with line.client.stream("GET", f"/comparisons/{comparison}/events") as stream:
        async for text in stream.aiter_lines():
            if text.startswith("data:") and "gsm8k" in text:
                break
    await asyncio.sleep(1)
    schedulers = await schedulers_of(line, comparison)
    assert len(schedulers) == 2
    for scheduler in schedulers:
        scheduler.kill()


async def schedulers_of(line: Line, comparison: str) -> list[psutil.Process]:
    """The scheduler processes of this comparison's engines, found by their ports; other engines are not ours to end."""
    records = (await line.client.get(f"/comparisons/{comparison}/records")).json()["records"]
    ports = {int(r["argv"][r["argv"].index("--port") + 1]) for r in records if r["kind"] == "launch"}
    mains = {
        c.pid
        for c in psutil.net_connections("tcp")
        if c.status == psutil.CONN_LISTEN and c.pid and c.laddr and c.laddr.port in ports
    }
    children = [child for pid in mains for child in psutil.Process(pid).children(recursive=True)]
    return [child for child in children if "scheduler" in child.name() or "scheduler" in " ".join(child.cmdline())]


async def test_without_the_plugin_the_run_fails_by_attestation(
    real_environment: EngineEnvironment, tmp_path: Path
) -> None:
    settings = Settings(
        data=tmp_path / "data",
        cache=Settings.from_env().cache,
        engine_python=real_environment.python,
        plugin_path=tmp_path,  # an empty folder
        device="cpu",
        gsm8k="shipped",
    )
    model = next((settings.cache.expanduser() / "models").glob("smollm2-*-float32"))
    async with serving(settings) as line:
        view = await line.ended(await line.submit(model=str(model)))

    assert view["status"] == "failed"
    assert view["error"]["stage"] == "attest"
    assert "plugin" in view["error"]["reason"]


async def test_a5_15_a_model_repositorys_code_does_not_run(line: Line, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    folder = tmp_path / "model"
    folder.mkdir()
    config = {"model_type": "foreign", "auto_map": {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}}
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["Foreign"]}))
    (folder / "code.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    view = await line.ended(await line.submit(model=str(folder)))
    assert (view["status"], view["error"]["stage"]) == ("failed", "start")
    assert "trust_remote_code" in view["error"]["log_tail"] + view["error"]["reason"]
    assert not marker.exists()
