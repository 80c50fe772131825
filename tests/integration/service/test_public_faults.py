"""The open cases A5 of the list of faults that others published, each a test named by its id."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from equipoise_evals.model import ModelRef, Plan
from equipoise_evals.model.records import StopRecord
from equipoise_evals.ports import Decoded
from equipoise_service.machine import Machine
from equipoise_service.requests import CompareRequest
from equipoise_service.resolve import resolve
from equipoise_service.settings import Settings
from equipoise_service.store import NewComparison, Store
from tests.integration.service.conftest import LATENCY_ONLY, Running, Start
from tests.integration.service.fake import Call, FakeEngine
from tests.integration.service.served import served

HOSTILE = '"><img src=x onerror=alert(1)>'


def refused(answer: httpx.Response, status: int = 422) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    return problem


def test_a5_01_an_accepted_comparison_survives_a_kill(settings: Settings) -> None:
    with served(settings) as service:
        answer = httpx.post(f"{service.url}/compare", json=LATENCY_ONLY, trust_env=False)
        service.process.kill()
    assert answer.status_code == 202
    with served(settings) as service:
        again = httpx.get(f"{service.url}{answer.headers['location']}", trust_env=False)
    assert again.status_code == 200
    assert again.json()["status"] in {"queued", "running", "failed", "interrupted"}
    assert again.json()["request"] == answer.json()["request"]


async def test_a5_03_a_repeated_key_starts_one_run(start: Start) -> None:
    async with start() as running:
        first = await running.submit({"Idempotency-Key": "k1"})
        assert await running.submit({"Idempotency-Key": "k1"}) == first
        other = LATENCY_ONLY | {"seed": 9}
        refused(await running.client.post("/compare", json=other, headers={"Idempotency-Key": "k1"}), 409)
        refused(await running.client.post("/compare", json=LATENCY_ONLY, headers={"Idempotency-Key": ""}))
        await running.ended(first)
        assert len(running.launchers) == 1
        assert len((await running.client.get("/comparisons")).json()["items"]) == 1


async def test_a5_05_ten_at_once_run_one_after_the_other(start: Start) -> None:
    running: Running
    together: list[int] = []

    async def look(call: Call) -> None:
        del call
        together.append(sum(launcher.alive for launcher in running.launchers))
        statuses = [item["status"] for item in (await running.client.get("/comparisons")).json()["items"]]
        assert sum(status in {"running", "judging"} for status in statuses) <= 1

    async with start(look) as running:
        ids = await asyncio.gather(*(running.submit(pairs_max=1) for _ in range(10)))
        views = [await running.ended(comparison_id) for comparison_id in ids]
    assert {view["status"] for view in views} == {"succeeded"}
    assert set(together) == {2}  # the two engines of one pair


async def test_a5_07_readers_and_a_writer_do_not_lock_each_other_out(start: Start, settings: Settings) -> None:
    gate = asyncio.Event()

    async def wait(call: Call) -> None:
        del call
        await gate.wait()

    async with start(wait) as running:
        comparison_id = await running.submit(pairs_max=1)
        store = Store.open(settings.url_of_database)
        record = StopRecord(pair=1, role="A", held_s=1.0, clean=True)

        def write() -> None:
            for _ in range(1_319):
                store.records.append(comparison_id, record)

        writing = asyncio.create_task(asyncio.to_thread(write))
        statuses: list[int] = []

        async def poll() -> None:
            while not writing.done():
                statuses.append((await running.client.get(f"/comparisons/{comparison_id}")).status_code)
                await asyncio.sleep(0.05)

        await asyncio.gather(*(poll() for _ in range(20)))
        await writing
        kept = sum(part.kind == "stop" for part in store.records.parts(comparison_id))
        store.database.close()
        await running.client.post(f"/comparisons/{comparison_id}/cancel")
        gate.set()
        await running.ended(comparison_id)
    assert set(statuses) == {200}
    assert len(statuses) > 20
    assert kept == 1_319


async def test_a5_09_a_models_name_is_text_wherever_it_comes_from(start: Start, settings: Settings) -> None:
    async def fail(_: object) -> None:
        raise RuntimeError(HOSTILE)

    async with start(fail) as running:
        problem = refused(await running.client.post("/compare", json=LATENCY_ONLY | {"model": HOSTILE}))
        assert problem["type"] == "/problems/unknown-model"
        failed = await running.submit()
        await running.ended(failed)
        # As an engine's answer, or an older version's database, may hold it.
        store = Store.open(settings.url_of_database)
        kept = store.comparisons.get(failed)
        assert kept is not None
        plan = Plan.model_validate_json(kept.plan)
        hostile = plan.model_copy(update={"model": ModelRef(name=HOSTILE, source="hub", path="/x", revision=HOSTILE)})
        request = CompareRequest.model_validate_json(kept.request)
        new = NewComparison(
            id="ffffffff-0000-7000-8000-000000000000", model=HOSTILE, request=request.model_dump_json(),
            request_sha256=request.sha256, plan=hostile.model_dump_json(),
        )  # fmt: skip
        store.comparisons.add(new)
        store.comparisons.cancel(new.id, HOSTILE)
        store.database.close()
        pages = [
            (f"/comparisons/{new.id}/page", None),
            ("/", {"model": HOSTILE}),
            (f"/comparisons/{failed}/page", None),
        ]
        for path, query in pages:
            answer = await running.client.get(path, params=query, headers={"Accept": "text/html"})
            assert answer.status_code == 200
            assert "<img" not in answer.text
            assert "&lt;img src=x" in answer.text
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
        missing = await running.client.get(f"/comparisons/{HOSTILE}/page", headers={"Accept": "text/html"})
        assert (missing.status_code, "<img" in missing.text) == (404, False)


@pytest.mark.parametrize(
    "model",
    ["../evil", "/etc/passwd", "a/b/../../c", "a%2f..%2fb", "a\\..\\b", "a/b/c", "..", "/tmp/../etc", "-x/y"],  # noqa: S108
)
async def test_a5_11_a_model_is_an_id_or_a_folder_that_may_be_used(start: Start, model: str) -> None:
    async with start() as running:
        problem = refused(await running.client.post("/compare", json=LATENCY_ONLY | {"model": model}))
        assert problem["errors"][0]["pointer"] == "/model"
        assert (await running.client.get("/comparisons")).json()["items"] == []


async def test_a5_11_a_folder_outside_of_the_roots_is_refused_links_followed(tmp_path: Path) -> None:
    roots, outside = tmp_path / "models", tmp_path / "outside"
    for folder in (roots / "good", outside):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    (roots / "link").symlink_to(outside)
    settings = Settings(data=tmp_path / "d", cache=tmp_path / "c", device="simulated", model_roots=(roots,))
    machine = Machine(settings)
    assert machine.model(str(roots / "good")).source == "simulated"
    for name in (str(roots / "link"), str(outside), f"{roots}/../outside"):
        with pytest.raises(Exception, match=r"model folder|models may be taken"):
            machine.model(name)
    asks = settings.model_copy(update={"model_roots": None, "require_tokens": True})
    with pytest.raises(Exception, match="models may be taken"):
        Machine(asks).model(str(roots / "good"))


@pytest.mark.parametrize("path", ["..%2f..%2fx", "../../x", "%2e%2e%2f%2e%2e%2fx", "x%00"])
async def test_a5_11_an_id_is_no_path(start: Start, path: str) -> None:
    async with start() as running:
        for below in ("", "/records", "/events", "/report.json", "/page"):
            assert (await running.client.get(f"/comparisons/{path}{below}")).status_code == 404


@pytest.mark.parametrize(
    "flags",
    [
        ["--page-size 64; touch {marker}"],
        ["--page-size", "64; touch {marker}"],
        ["--page-size=64;touch {marker}"],
        ["--kv-cache-dtype", "$(touch {marker})"],
        ["--kv-cache-dtype", "`touch {marker}`"],
        ["--page-size", "64\ntouch {marker}"],
        ["--page-size", "64\x00"],
        ["--sleep-on-idle", "touch {marker}"],
        ["; touch {marker}"],
        ["--page-siz", "64"],
        ["--model-path", "/etc"],
        ["--host", "192.0.2.1"],
        ["--log-file", "{marker}"],
        ["--trust-remote-code"],
        ["--page-size"],
        ["--page-size", "64", "32"],
        ["--page-size="],
    ],
)
async def test_a5_13_flags_are_listed_and_typed_and_no_shell_sees_them(
    start: Start, tmp_path: Path, flags: list[str]
) -> None:
    marker = tmp_path / "marker"
    body = LATENCY_ONLY | {"candidate": {"flags": [flag.format(marker=marker) for flag in flags]}}
    async with start() as running:
        problem = refused(await running.client.post("/compare", json=body))
        assert problem["errors"][0]["pointer"].startswith("/candidate/flags/")
        assert running.launchers == []
    assert not marker.exists()


@pytest.mark.parametrize(
    "variables",
    [{"LD_PRELOAD": "x"}, {"PYTHONPATH": "x"}, {"OMP_NUM_THREADS": "$(id)"}, {"HF_TOKEN": "x"}, {"EQUIPOISE_ARM": "x"}],
)
async def test_a5_13_variables_are_listed_and_typed(start: Start, variables: dict[str, str]) -> None:
    async with start() as running:
        body = LATENCY_ONLY | {"baseline": {"environment": variables}}
        problem = refused(await running.client.post("/compare", json=body))
        assert problem["errors"][0]["pointer"] == f"/baseline/environment/{next(iter(variables))}"


async def test_a5_13_what_is_listed_reaches_both_plan_and_operator(start: Start) -> None:
    arm = {
        "flags": ["--page-size", "64", "--cuda-graph-bs", "1", "16", "--sleep-on-idle", "--chunked-prefill-size=-1"],
        "environment": {"OMP_NUM_THREADS": "2"},
    }
    async with start() as running:
        answer = await running.client.post("/compare", json=LATENCY_ONLY | {"baseline": arm, "candidate": arm})
        assert answer.status_code == 202, answer.text
        planned = answer.json()["plan"]["arms"]["baseline"]
        assert planned["flags"][-len(arm["flags"]) :] == arm["flags"]
        assert planned["environment"]["OMP_NUM_THREADS"] == "2"


def test_a5_13_an_operator_may_add_to_the_lists(tmp_path: Path) -> None:
    settings = Settings(
        data=tmp_path / "d", cache=tmp_path / "c", device="simulated",
        allow_flags={"--new-flag": "whole"}, allow_variables={"NEW": "word"},
    )  # fmt: skip
    arm = {"flags": ["--new-flag", "3"], "environment": {"NEW": "x"}}
    request = CompareRequest.model_validate(LATENCY_ONLY | {"candidate": arm})
    assert resolve(request, Machine(settings)).arms.candidate.flags[-2:] == ("--new-flag", "3")
    with pytest.raises(Exception, match=r"EQUIPOISE_ALLOW_FLAGS.*EQUIPOISE_ALLOW_VARIABLES"):
        resolve(request, Machine(settings.model_copy(update={"allow_flags": {}, "allow_variables": {}})))


def test_a5_15_a_repositorys_code_runs_only_where_the_operator_lists_model_and_revision(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "d", cache=tmp_path / "c", device="simulated")
    request = CompareRequest.model_validate(LATENCY_ONLY | {"model": "owner/name"})

    def flags(*listed: str) -> set[bool]:
        arms = resolve(request, Machine(settings.model_copy(update={"remote_code": listed}))).arms
        return {"--trust-remote-code" in arm.flags for arm in (arms.baseline, arms.candidate)}

    assert flags() == {False}
    assert flags("owner/name") == {False}
    assert flags("owner/name@another") == {False}
    assert flags("owner/name@simulated") == {True}  # the revision of every simulated model


async def test_a5_17_what_was_not_measured_is_null_in_strict_json(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = FakeEngine.decode

    async def no_timings(self: FakeEngine, batch: int, prompt_tokens: int, steps: int, seed: int) -> Decoded:
        decoded = await measured(self, batch, prompt_tokens, steps, seed)
        return decoded.model_copy(update={"client": ()})

    monkeypatch.setattr(FakeEngine, "decode", no_timings)

    def strict(text: str) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        return value

    async with start() as running:
        comparison_id = await running.submit(pairs_max=1)
        await running.ended(comparison_id)
        answer = await running.client.get(f"/comparisons/{comparison_id}")
        view = strict(answer.text)
        assert (answer.status_code, view["status"]) == (200, "succeeded")
        report = await running.client.get(f"/comparisons/{comparison_id}/report.json")
        strict(report.text)
        assert view["verdict"]["overall"]["word"] in {"inconclusive", "invalid"}
        assert view["verdict"]["headline"]
        for margin in ("NaN", "Infinity", float("nan")):
            content = json.dumps(LATENCY_ONLY | {"margin_latency": margin})
            refused(
                await running.client.post("/compare", content=content, headers={"Content-Type": "application/json"})
            )
