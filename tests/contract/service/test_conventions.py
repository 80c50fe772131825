"""Dry runs, entity tags, the queue's limit and tokens over HTTP."""

import asyncio
import json

import pytest

from equipoise_evals.model import ModelRef, Plan
from equipoise_service.access.scopes import Scope
from equipoise_service.api import app
from equipoise_service.machine import Machine
from equipoise_service.requests import CompareRequest
from equipoise_service.resolve import resolve
from equipoise_service.settings import Settings
from equipoise_service.store import ListFilter, Store
from tests.contract.service.test_access import entered, guarded
from tests.contract.service.test_http import problem
from tests.integration.service.conftest import LATENCY_ONLY, Running, Start, running_over
from tests.integration.service.fake import Call
from tests.support import records as make
from tests.support import stored as keep
from tests.support.worlds import observed


async def test_a_dry_run_plans_and_queues_nothing(start: Start) -> None:
    async with start() as running:
        answer = await running.client.post("/compare?dry_run=true", json=LATENCY_ONLY)
        assert answer.status_code == 200
        dry = answer.json()
        estimate = dry["estimate"]
        assert dry["plan"]["latency"]["primary_batch"] == 16
        assert (estimate["pairs_least"], estimate["pairs_most"], estimate["basis"]) == (3, 3, "profile")
        # By hand: two starts of 2 s, and 4 blocks of 16 steps of 2 ms at each of two batch sizes.
        pair_s = 2 * 2.0 + 2 * 4 * 16 * 0.002
        assert estimate["gpu_minutes_most"] == pytest.approx(3 * pair_s / 60, abs=0.005)
        assert (await running.client.get("/comparisons")).json()["items"] == []
        assert running.launchers == []
        refused = await running.client.post("/compare?dry_run=true", json=LATENCY_ONLY | {"preset": "none"})
        assert problem(refused)["type"] == "/problems/unknown-preset"


async def test_a_dry_run_of_a_plan_without_looks_counts_all_its_pairs(start: Start) -> None:
    async with start() as running:
        answer = await running.client.post("/compare?dry_run=true", json=LATENCY_ONLY | {"pairs_max": 2})
        assert answer.status_code == 200
        estimate = answer.json()["estimate"]
        assert answer.json()["plan"]["looks"] == []
        assert (estimate["pairs_least"], estimate["pairs_most"]) == (2, 2)
        assert estimate["gpu_minutes_least"] == estimate["gpu_minutes_most"] > 0
        form = {"model": "m", "parts": "latency", "pairs_max": "2", "do": "plan"}
        page = await running.client.post("/new", data=form)
        assert page.status_code == 200
        assert "no look ends it before launch pair 2" in page.text
        assert "at most 2, no look before the last" in page.text


async def test_a_dry_run_goes_by_the_last_run_alike(start: Start) -> None:
    async with start() as running:
        await running.ended(await running.submit())
        answer = await running.client.post("/compare?dry_run=true", json=LATENCY_ONLY | {"seed": 5})
        estimate = answer.json()["estimate"]
        # The fake launcher's engines say that each was held for one second.
        assert estimate["basis"] == "history"
        assert estimate["gpu_minutes_most"] == pytest.approx(3 * 1.0 / 60, abs=0.005)
        other = await running.client.post("/compare?dry_run=true", json=LATENCY_ONLY | {"quads": 2})
        assert other.json()["estimate"]["basis"] == "profile"


@pytest.mark.parametrize("path", ["", "/records", "/report.json", "/report.csv", "/report.md"])
async def test_a_finished_result_is_sent_once(start: Start, path: str) -> None:
    async with start() as running:
        comparison_id = await running.submit()
        await running.ended(comparison_id)
        address = f"/comparisons/{comparison_id}{path}"
        first = await running.client.get(address)
        tag = first.headers["etag"]
        assert first.status_code == 200
        assert first.headers["cache-control"] == "private, no-cache"
        for shown in (tag, f'"other", W/{tag}', "*"):
            again = await running.client.get(address, headers={"If-None-Match": shown})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert (await running.client.get(address, headers={"If-None-Match": '"other"'})).content == first.content
    async with start() as running:
        assert (await running.client.get(address)).headers["etag"] == tag


async def test_what_may_change_has_no_tag(start: Start) -> None:
    gate = asyncio.Event()

    async def wait(call: Call) -> None:
        del call
        await gate.wait()

    async with start(wait) as running:
        comparison_id = await running.submit()
        for path in ("", "/records"):
            answer = await running.client.get(f"/comparisons/{comparison_id}{path}", headers={"If-None-Match": "*"})
            assert (answer.status_code, "etag" in answer.headers) == (200, False)
        gate.set()


async def test_a_full_queue_takes_no_more(settings: Settings) -> None:
    gate = asyncio.Event()
    reached = asyncio.Event()

    async def wait(call: Call) -> None:
        del call
        reached.set()
        await gate.wait()

    async with running_over(settings.model_copy(update={"queue_max": 2}), wait) as running:
        await running.submit(pairs_max=1)
        await reached.wait()
        answers = await asyncio.gather(*(running.client.post("/compare", json=LATENCY_ONLY) for _ in range(6)))
        assert sorted(answer.status_code for answer in answers) == [202, 202, 429, 429, 429, 429]
        full = next(answer for answer in answers if answer.status_code == 429)
        assert (problem(full)["type"], full.headers["retry-after"]) == ("/problems/queue-full", "60")
        form = {"model": "m", "parts": "latency", "do": "submit"}
        page = await running.client.post("/new", data=form)
        assert (page.status_code, page.headers["retry-after"]) == (429, "60")
        gate.set()


async def test_requests_that_come_at_once_reuse_one_comparison(settings: Settings) -> None:
    gate = asyncio.Event()

    async def wait(call: Call) -> None:
        del call
        await gate.wait()

    async with running_over(settings, wait) as running:
        posted = (running.client.post("/compare?reuse=true", json=LATENCY_ONLY) for _ in range(8))
        assert len({answer.json()["id"] for answer in await asyncio.gather(*posted)}) == 1
        gate.set()


async def test_what_is_reused_is_not_resolved_again(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model might be fetched for it; and a full queue holds what is in it."""
    gate, resolved = asyncio.Event(), 0

    def counted(request: CompareRequest, machine: Machine) -> Plan:
        nonlocal resolved
        resolved += 1
        return resolve(request, machine)

    async def wait(call: Call) -> None:
        del call
        await gate.wait()

    monkeypatch.setattr(app, "resolve", counted)
    async with running_over(settings.model_copy(update={"queue_max": 1}), wait) as running:
        first = await running.submit()
        again = await running.client.post("/compare?reuse=true", json=LATENCY_ONLY)
        assert (again.status_code, again.json()["id"], resolved) == (202, first, 1)
        gate.set()


async def test_a_key_cannot_be_sent_with_reuse(shared: Running) -> None:
    # The comparison that is reused has a key of its own, so this one could not be honoured.
    key = {"Idempotency-Key": "k"}
    answer = await shared.client.post("/compare?reuse=true", json=LATENCY_ONLY, headers=key)
    assert answer.status_code == 422
    assert [error["pointer"] for error in problem(answer)["errors"]] == ["query/reuse"]


async def test_a_trend_is_of_the_newest_comparison_with_a_verdict(settings: Settings, start: Start) -> None:
    store = Store.open(settings.url_of_database)
    for name in ("newer", "a first name in the alphabet", "newest"):
        model = ModelRef(name=name, source="simulated", path=name, revision="0")
        keep.finish(store, *observed(make.plan(model=model)))
    keep.add(store, make.plan(model=ModelRef(name="0 never finished", source="simulated", path="0", revision="0")))
    store.comparisons.cancel(store.comparisons.page(ListFilter(), 1).items[0].id, "by a test")
    store.database.close()
    async with start() as running:
        assert "<h1>Trend of newest</h1>" in (await running.client.get("/trend")).text


async def test_tokens_over_http(settings: Settings) -> None:
    async with entered(guarded(settings)) as (running, shown):
        running.client.headers.update(shown[Scope.ADMIN])
        made = await running.client.post("/tokens", json={"name": "ci", "scope": "submit"})
        assert made.status_code == 201
        token = made.json()["token"]
        assert made.json()["text"].startswith(f"eqp_{token['id']}_")
        listed = (await running.client.get("/tokens")).json()["items"]
        assert listed[3:] == [token]
        assert made.json()["text"] not in json.dumps(listed)
        assert (await running.client.delete(f"/tokens/{token['id']}")).status_code == 204
        assert (await running.client.get("/tokens")).json()["items"][3]["revoked_at"] is not None
        missing = await running.client.delete("/tokens/x")
        assert (missing.status_code, problem(missing)["type"]) == (404, "/problems/token-not-found")


@pytest.mark.parametrize(
    "body",
    [
        {"name": "", "scope": "read"}, {"name": " ", "scope": "read"}, {"name": "x", "scope": "all"}, {"scope": "read"},
        {"name": "x", "scope": "read", "expires_at": "2020-01-01T00:00:00Z"},
        {"name": "x", "scope": "read", "expires_at": "2999-01-01T00:00:00"},
    ],
)  # fmt: skip
async def test_a_token_needs_a_name_a_scope_and_a_time_ahead(settings: Settings, body: dict[str, str]) -> None:
    async with entered(guarded(settings)) as (running, shown):
        running.client.headers.update(shown[Scope.ADMIN])
        answer = await running.client.post("/tokens", json=body)
        assert answer.status_code == 422
        problem(answer)


async def test_the_openapi_document_names_the_scope_of_every_route(start: Start) -> None:
    async with start() as running:
        document = (await running.client.get("/openapi.json")).json()
    security = {(method, path): operation["security"] for path, operations in document["paths"].items()
                for method, operation in operations.items()}  # fmt: skip
    assert security["get", "/livez"] == []
    assert security["post", "/compare"] == [{}, {"bearer": ["submit"]}, {"basic": ["submit"]}]
    assert security["get", "/tokens"] == [{}, {"bearer": ["admin"]}, {"basic": ["admin"]}]
    assert set(document["components"]["securitySchemes"]) == {"bearer", "basic"}
