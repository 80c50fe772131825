"""What the HTTP interface promises: statuses, problem documents, idempotency, pages, schemas."""

import asyncio
import html
import json
from typing import Any

import httpx
import jsonschema
import pytest
from anyio import to_thread

from equipoise_service.settings import Settings
from tests.integration.service.conftest import LATENCY_ONLY, Running, Start

HOSTILE = '"><img src=x onerror=alert(1)>'


def problem(answer: httpx.Response) -> dict[str, Any]:
    """A problem document, its form checked."""
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert set(document) == {"type", "title", "status", "detail", "instance", "errors"}
    assert document["status"] == answer.status_code
    assert document["instance"] == answer.request.url.path
    return document


async def test_submitting_is_accepted_with_a_location(start: Start) -> None:
    async with start() as running:
        answer = await running.client.post("/compare", json=LATENCY_ONLY)
        assert answer.status_code == 202
        assert answer.headers["location"] == f"/comparisons/{answer.json()['id']}"
        view = (await running.client.get(answer.headers["location"])).json()
        assert view["model"] == "m"
        assert view["request"]["pairs_max"] == 3
        assert view["plan"]["looks"] == [3]
        for name, path in view["links"].items():
            if name not in ("cancel", "report_json", "report_csv", "report_markdown"):
                assert (await running.client.head(path)).status_code in (200, 405), name


@pytest.mark.parametrize(
    ("body", "pointer", "says"),
    [
        ({"model": "m", "modle": 1}, "/modle", "unknown field"),
        ({}, "/model", "required"),
        ({"model": "m", "batch_sizes": [1, "x"]}, "/batch_sizes/1", "integer"),
        ({"model": "m", "baseline": {"flag": 1}}, "/baseline/flag", "unknown field"),
        ({"model": "m", "margin_latency": "NaN"}, "/margin_latency", "finite"),
        ({"model": "m", "batch_sizes": [1, 4]}, "", "primary_batch 16 is none of"),
        ({"model": "m\ud800"}, "/model", "unicode"),
    ],
)
async def test_a_faulty_body_names_field_and_fault(
    shared: Running, body: dict[str, object], pointer: str, says: str
) -> None:
    content = json.dumps(body).encode()
    answer = await shared.client.post("/compare", content=content, headers={"Content-Type": "application/json"})
    document = problem(answer)
    assert (answer.status_code, document["type"]) == (422, "/problems/invalid-request")
    assert [error["pointer"] for error in document["errors"]] == [pointer]
    assert says in document["errors"][0]["detail"]
    assert (await shared.client.get("/comparisons")).json()["items"] == []


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_numbers_that_are_none_are_refused_in_strict_json(shared: Running, number: str) -> None:
    answer = await shared.client.post(
        "/compare",
        content=f'{{"model":"m","margin_latency":{number}}}',
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 422
    json.loads(answer.text, parse_constant=pytest.fail)
    assert problem(answer)["errors"][0]["pointer"] == "/margin_latency"


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "not JSON"), ("[]", "object"), ("", "required"), ("[" * 100_000, "")],
)
async def test_a_body_that_is_no_object(shared: Running, content: str, says: str) -> None:
    answer = await shared.client.post("/compare", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert says in problem(answer)["detail"]


async def test_a_body_of_another_type_says_which_is_meant(shared: Running) -> None:
    answer = await shared.client.post("/compare", data={"model": "m"})
    assert answer.status_code == 422
    assert "Content-Type: application/json" in problem(answer)["detail"]


@pytest.mark.parametrize(
    ("fields", "kind", "says"),
    [
        ({"preset": "none"}, "unknown-preset", "persistent-buffer, prefill"),
        ({"batch_sizes": [1, 16, 4096], "prompt_tokens": 64}, "batch-beyond-engine", "--max-total-tokens 16384"),
        ({"candidate": {"flags": ["--max-running-requests", "8"]}}, "batch-beyond-engine", "runs at once"),
        ({"candidate": {"flags": ["--max-running-requests=x"]}}, "invalid-request", "whole number"),
        ({"candidate": {"engine": "other"}}, "unknown-engine", "there are: default"),
        ({"candidate": {"name": "baseline"}}, "invalid-request", "cannot share the name"),
    ],
)
async def test_what_cannot_be_run_is_refused_before_any_engine_starts(
    shared: Running, fields: dict[str, object], kind: str, says: str
) -> None:
    answer = await shared.client.post("/compare", json=LATENCY_ONLY | fields)
    document = problem(answer)
    assert (answer.status_code, document["type"]) == (422, f"/problems/{kind}")
    assert says in document["detail"]
    assert shared.launchers == []
    assert (await shared.client.get("/comparisons")).json()["items"] == []


async def test_the_same_key_and_body_is_the_same_comparison(start: Start) -> None:
    async with start() as running:
        key = {"Idempotency-Key": "k1"}
        first = await running.submit(key)
        assert await running.submit(key) == first
        answer = await running.client.post("/compare", json=LATENCY_ONLY | {"seed": 2}, headers=key)
        assert answer.status_code == 409
        assert problem(answer)["type"] == "/problems/idempotency-conflict"
        assert len((await running.client.get("/comparisons")).json()["items"]) == 1
        assert await running.submit() != first


async def test_parallel_submissions_with_one_key_run_once(start: Start) -> None:
    async with start() as running:
        ids = await asyncio.gather(*(running.submit({"Idempotency-Key": "k"}) for _ in range(10)))
        assert len(set(ids)) == 1
        await running.ended(ids[0])
        assert len(running.launchers) == 1


@pytest.mark.parametrize("key", ["", "x" * 256])
async def test_a_key_must_be_one(shared: Running, key: str) -> None:
    answer = await shared.client.post("/compare", json=LATENCY_ONLY, headers={"Idempotency-Key": key})
    assert answer.status_code == 422
    assert problem(answer)["type"] == "/problems/idempotency-key"


@pytest.mark.parametrize("path", ["", "/records", "/events", "/report.md", "/page"])
@pytest.mark.parametrize("comparison_id", ["01890000-0000-7000-8000-000000000000", "x", "..%2f..%2fx", "%00"])
async def test_what_is_not_there_is_404(shared: Running, path: str, comparison_id: str) -> None:
    answer = await shared.client.get(f"/comparisons/{comparison_id}{path}")
    assert answer.status_code == 404
    problem(answer)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("POST", "/comparisons/x/cancel", 404),
        ("PUT", "/compare", 405),
        ("GET", "/static/../app.py", 404),
        ("GET", "/schemas/secrets.json", 422),
        ("GET", "/comparisons?limit=0", 422),
        ("GET", "/comparisons?limit=201", 422),
        ("GET", "/comparisons?order=up", 422),
        ("GET", "/comparisons?verdict=maybe", 422),
        ("GET", "/comparisons?cursor=x", 422),
        ("GET", "/?cursor=x", 422),
    ],
)
async def test_every_error_is_a_problem_document(shared: Running, method: str, path: str, status: int) -> None:
    answer = await shared.client.request(method, path)
    assert answer.status_code == status
    problem(answer)


BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"}
"""What Firefox sends for a page."""


@pytest.mark.parametrize(
    ("method", "path", "status", "remedy"),
    [
        ("GET", "/comparisons/01890000-0000-7000-8000-000000000000", 404, "Look for it in the list"),
        ("GET", "/comparisons/x/page", 404, "Look for it in the list"),
        ("GET", "/nowhere", 404, "Check the address"),
        ("GET", "/static/none.css", 404, "Check the address"),
        ("PUT", "/compare", 405, "another method"),
        ("GET", "/?limit=0", 422, "Change what is said above"),
        ("GET", "/?cursor=x", 422, "Change what is said above"),
    ],
)
async def test_a_browser_gets_a_page_that_says_what_to_do(
    shared: Running, method: str, path: str, status: int, remedy: str
) -> None:
    document = problem(await shared.client.request(method, path))
    answer = await shared.client.request(method, path, headers=BROWSER)
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["vary"] == "Accept"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    text = html.unescape(answer.text)
    faults = [error["detail"] for error in document["errors"]] or [document["detail"][1:]]  # its first letter is large
    for said in (document["title"], *faults, document["type"], remedy, 'href="/"'):
        assert said in text


async def test_a_page_of_an_error_names_the_fields_and_what_is_hostile_is_text(shared: Running) -> None:
    answer = await shared.client.get("/", params={"verdict": HOSTILE, HOSTILE: "1"}, headers=BROWSER)
    assert answer.status_code == 422
    assert "query/verdict" in answer.text
    assert "<img" not in answer.text


async def test_a_report_without_a_verdict_leads_a_browser_to_its_page(start: Start) -> None:
    async def fail(_: object) -> None:
        raise RuntimeError("no verdict")

    async with start(fail) as running:
        failed = await running.submit()
        await running.ended(failed)
        answer = await running.client.get(f"/comparisons/{failed}/report.md", headers=BROWSER)
        assert answer.status_code == 409
        assert f'href="/comparisons/{failed}/page"' in answer.text


async def test_a_defect_is_a_500_that_tells_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start() as running:
        monkeypatch.setattr("equipoise_service.api.comparisons.new_id", lambda: 1 / 0)
        answer = await running.client.post("/compare", json=LATENCY_ONLY)
        assert answer.status_code == 500
        assert problem(answer)["detail"] == "the service has a defect; its log has the details"
        page = await running.client.post("/compare", json=LATENCY_ONLY, headers=BROWSER)
        assert page.status_code == 500
        assert "The service has a defect; its log has the details." in page.text
        assert "ZeroDivisionError" not in page.text


@pytest.mark.parametrize("sent", ["x", "-1", "1.5", str(2**63)])
async def test_a_bad_last_event_id_is_refused(start: Start, sent: str) -> None:
    async with start() as running:
        comparison_id = await running.submit()
        answer = await running.client.get(f"/comparisons/{comparison_id}/events", headers={"Last-Event-ID": sent})
        assert answer.status_code == 422
        assert problem(answer)["errors"][0]["pointer"] == "header/last-event-id"


async def test_a_list_may_leave_every_field_empty(start: Start) -> None:
    async with start() as running:
        await running.ended(await running.submit())
        empty = "/comparisons?limit=&cursor=&model=&verdict=&status=&arms=&machine=&since=&until=&sort="
        assert (await running.client.get(empty)).json() == (await running.client.get("/comparisons")).json()


async def submitted(running: Running, models: str) -> list[str]:
    return [await running.submit(model=model, pairs_max=1) for model in models]


async def test_pages_hold_every_comparison_once_newest_first(start: Start) -> None:
    async with start() as running:
        ids = await submitted(running, "abcab")
        seen: list[str] = []
        cursor: str | None = None
        while True:
            query = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
            page = (await running.client.get("/comparisons", params=query)).json()
            seen += [item["id"] for item in page["items"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert seen == ids[::-1]


async def test_filters(start: Start) -> None:
    async with start() as running:
        ids = await submitted(running, "ab")
        for comparison_id in ids:
            await running.ended(comparison_id)

        async def found(**query: str) -> list[str]:
            answer = await running.client.get("/comparisons", params=query)
            return [item["id"] for item in answer.json()["items"]]

        assert await found(model="a") == [ids[0]]
        assert await found(model="%") == []
        assert await found(verdict="inconclusive") == ids[::-1]
        assert await found(verdict="ship") == []
        assert await found(status="queued") == []


async def test_a_model_is_shown_by_its_name_and_found_by_what_was_asked(start: Start) -> None:
    """Simulated engines hold no model, so that no name of one stands over what they did."""
    async with start() as running:
        comparison_id = await running.submit(model="embedded", pairs_max=1)
        view = await running.ended(comparison_id)
        assert (view["model"], view["model_name"]) == ("embedded", "simulated engines")
        for name in ("embedded", "simulated engines"):
            [item] = (await running.client.get("/comparisons", params={"model": name})).json()["items"]
            assert (item["id"], item["model"], item["model_name"]) == (comparison_id, "embedded", "simulated engines")
        assert "<td>simulated engines<br>" in (await running.client.get("/")).text
        page = (await running.client.get(f"/comparisons/{comparison_id}/page")).text
        assert "<title>simulated engines – Equipoise</title>" in page
        assert "<h1>simulated engines</h1>" in page
        report = (await running.client.get(f"/comparisons/{comparison_id}/report.md")).text
        assert report.splitlines()[0].endswith(": simulated engines")


async def test_reports_need_a_verdict_and_have_their_types(start: Start) -> None:
    async def fail(_: object) -> None:
        raise RuntimeError("no verdict")

    async with start(fail) as running:
        failed = await running.submit()
        await running.ended(failed)
        assert "<td>RuntimeError: no verdict</td>" in (await running.client.get("/")).text
        answer = await running.client.get(f"/comparisons/{failed}/report.md")
        assert answer.status_code == 409
        assert problem(answer)["type"] == "/problems/no-verdict"
    async with start() as running:
        comparison_id = await running.submit()
        await running.ended(comparison_id)
        for ending, media_type in (("md", "text/markdown"), ("csv", "text/csv"), ("json", "application/json")):
            first = await running.client.get(f"/comparisons/{comparison_id}/report.{ending}")
            again = await running.client.get(f"/comparisons/{comparison_id}/report.{ending}")
            assert first.headers["content-type"].split(";")[0] == media_type
            assert first.content == again.content
        assert (await running.client.get(f"/comparisons/{comparison_id}/report.pdf")).status_code == 422


async def test_published_documents_satisfy_their_published_schemas(start: Start) -> None:
    async with start() as running:
        comparison_id = await running.submit()
        view = await running.ended(comparison_id)
        documents = {
            "records": (await running.client.get(f"/comparisons/{comparison_id}/records")).json(),
            "report": (await running.client.get(f"/comparisons/{comparison_id}/report.json")).json(),
            "plan": view["plan"],
            "verdict": view["verdict"],
        }
        for name, document in documents.items():
            schema = (await running.client.get(f"/schemas/{name}.json")).json()
            jsonschema.Draft202012Validator.check_schema(schema)
            jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(document | {"unknown": 1}, schema, cls=jsonschema.Draft202012Validator)


async def test_openapi_names_the_problem_document_for_every_error(start: Start) -> None:
    async with start() as running:
        document = (await running.client.get("/openapi.json")).json()
    assert "HTTPValidationError" not in document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status, response in operation["responses"].items():
                if status.startswith("4"):
                    assert list(response["content"]) == ["application/problem+json"], (method, path, status)


async def test_pages_show_list_verdict_and_live_progress(start: Start) -> None:
    gate = asyncio.Event()

    async def wait(_: object) -> None:
        await gate.wait()

    async with start(wait) as running:
        empty = (await running.client.get("/")).text
        assert "No comparison matches" in empty
        comparison_id = await running.submit()
        page = f"/comparisons/{comparison_id}/page"
        await running.events(comparison_id, most=3)
        live = (await running.client.get(page)).text
        assert f'data-events="/comparisons/{comparison_id}/events"' in live
        assert "/static/live.js" in live
        assert (await running.client.get("/static/live.js")).status_code == 200
        assert (await running.client.get("/static/style.css")).status_code == 200
        assert (await running.client.get("/static/icon.svg")).headers["content-type"] == "image/svg+xml"
        gate.set()
        view = await running.ended(comparison_id)
        done = (await running.client.get(page)).text
        assert "/static/live.js" not in done
        assert view["verdict"]["what_to_do"] in done
        listed = (await running.client.get("/", params={"limit": 1})).text
        assert f'href="{page}"' in listed
        assert "inconclusive" in listed


async def test_pages_go_on_with_older_ones(start: Start) -> None:
    async with start() as running:
        older, newer = await submitted(running, "aa")
        first = (await running.client.get("/", params={"limit": 1, "model": "a"})).text
        assert newer in first
        assert f"cursor={newer}" in first
        second = (await running.client.get("/", params={"limit": 1, "model": "a", "cursor": newer})).text
        assert older in second
        assert "cursor=" not in second


async def test_no_page_loads_anything_from_elsewhere(start: Start) -> None:
    async with start() as running:
        comparison_id = await running.submit()
        await running.ended(comparison_id)
        for path in ("/", f"/comparisons/{comparison_id}/page", "/static/live.js", "/static/style.css"):
            text = (await running.client.get(path)).text
            assert "http:" not in text
            assert "https:" not in text
            assert "onclick" not in text
            assert "<style" not in text


async def test_health(start: Start, settings: Settings) -> None:
    async with start() as running:
        assert (await running.client.get("/livez")).json() == {"status": "alive"}
        ready = await running.client.get("/readyz")
        assert (ready.status_code, ready.json()["ready"]) == (200, True)
        assert settings.data.joinpath("service.lock").exists()


@pytest.mark.parametrize(("path", "hops"), [("/comparisons", 1), ("/", 1), ("/comparisons/{id}", 2), ("/livez", 0)])
async def test_a_request_takes_a_thread_only_to_read_the_database(
    start: Start, monkeypatch: pytest.MonkeyPatch, path: str, hops: int
) -> None:
    """One for the route and one for the comparison that the path names; each hop is two switches under load."""
    run_sync, taken = to_thread.run_sync, 0

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal taken
        taken += 1
        return await run_sync(*arguments, **options)

    async with start() as running:
        comparison_id = await running.submit()
        await running.ended(comparison_id)
        monkeypatch.setattr(to_thread, "run_sync", counted)
        answer = await running.client.get(path.replace("{id}", comparison_id))
        assert (answer.status_code, taken) == (200, hops)


async def test_an_idle_connection_outlives_the_clients_own_limit(start: Start) -> None:
    """httpx drops one that was idle for 5 s; a server that did so too could drop it under a request."""
    async with start() as running:
        url = running.client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        for pause_s in (0, 6):
            await asyncio.sleep(pause_s)
            writer.write(f"GET /livez HTTP/1.1\r\nHost: {url.host}:{url.port}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
        writer.close()
