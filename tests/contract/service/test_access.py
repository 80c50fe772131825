"""Who gets in: tokens and scopes, names and origins, how much and how often. Every refusal is a problem document."""

import asyncio
import base64
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from sqlalchemy import select
from starlette.types import Message

from equipoise_service.access.door import Door
from equipoise_service.access.scopes import Scope
from equipoise_service.api.guard import whole_body
from equipoise_service.cli import main
from equipoise_service.errors import BodyTooLarge, NoTokens
from equipoise_service.settings import Settings
from equipoise_service.store import Store
from equipoise_service.store.tables import comparisons
from tests.contract.service.test_http import problem
from tests.integration.service.conftest import LATENCY_ONLY, Running, Start, running_over

READ, SUBMIT, ADMIN = Scope


def guarded(settings: Settings, **fields: object) -> Settings:
    return settings.model_copy(update={"require_tokens": True} | fields)


@contextlib.asynccontextmanager
async def entered(settings: Settings) -> AsyncIterator[tuple[Running, dict[Scope, dict[str, str]]]]:
    """A service that asks for tokens, and the headers that show one of each scope."""
    store = Store.open(settings.url_of_database)
    headers = {scope: {"Authorization": f"Bearer {store.tokens.add(scope.value, scope)[1]}"} for scope in Scope}
    store.database.close()
    async with running_over(settings) as running:
        yield running, headers


def challenge(answer: httpx.Response) -> str:
    assert answer.status_code == 401
    assert problem(answer)["type"] == "/problems/unauthenticated"
    return answer.headers["www-authenticate"]


async def test_each_scope_does_what_it_says_and_no_more(settings: Settings) -> None:
    async with entered(guarded(settings)) as (running, shown):
        client = running.client
        assert (await client.post("/compare", json=LATENCY_ONLY, headers=shown[READ])).status_code == 403
        answer = await client.post("/compare", json=LATENCY_ONLY, headers=shown[SUBMIT])
        assert answer.status_code == 202
        path = answer.headers["location"]
        for scope in Scope:
            assert (await client.get(path, headers=shown[scope])).status_code == 200
        refused = await client.post(f"{path}/cancel", headers=shown[READ])
        assert (refused.status_code, problem(refused)["type"]) == (403, "/problems/forbidden")
        assert "'submit'" in problem(refused)["detail"]
        assert (await client.post(f"{path}/cancel", headers=shown[ADMIN])).status_code in (202, 409)


@pytest.mark.parametrize(
    "path", ["/", "/comparisons", "/comparisons/x", "/openapi.json", "/schemas/plan.json", "/nowhere"]
)
async def test_nothing_is_told_without_a_token(settings: Settings, path: str) -> None:
    async with entered(guarded(settings)) as (running, _):
        assert challenge(await running.client.get(path)) == "Bearer"
        for public in ("/livez", "/readyz", "/static/style.css"):
            assert (await running.client.get(public)).status_code == 200
        assert challenge(await running.client.post("/livez")) == "Bearer"


@pytest.mark.parametrize(
    "shown", ["", "Bearer", "Bearer x", "Bearer eqp_" + "0" * 12 + "_" + "x" * 43, "Basic !", "Basic eA==", "Digest a"]
)
async def test_what_is_no_token_is_not_valid(settings: Settings, shown: str) -> None:
    async with entered(guarded(settings)) as (running, _):
        challenge(await running.client.get("/comparisons", headers={"Authorization": shown}))


async def test_a_browser_is_asked_for_a_password_and_may_send_the_token_as_one(settings: Settings) -> None:
    async with entered(guarded(settings)) as (running, shown):
        page = await running.client.get("/", headers={"Accept": "text/html"})
        assert (page.status_code, page.headers["www-authenticate"].startswith("Basic ")) == (401, True)
        assert page.headers["content-type"].startswith("text/html")
        token = shown[READ]["Authorization"].removeprefix("Bearer ")
        basic = base64.b64encode(f"anybody:{token}".encode()).decode()
        assert (await running.client.get("/", headers={"Authorization": f"Basic {basic}"})).status_code == 200


async def test_reads_may_be_everybodys(settings: Settings) -> None:
    async with entered(guarded(settings, public_reads=True)) as (running, _):
        assert (await running.client.get("/comparisons")).status_code == 200
        challenge(await running.client.post("/compare", json=LATENCY_ONLY))
        challenge(await running.client.get("/tokens"))


async def test_revoked_and_expired_tokens_are_not_valid(settings: Settings) -> None:
    store = Store.open(settings.url_of_database)
    _, past = store.tokens.add("past", ADMIN, datetime.now(UTC) - timedelta(seconds=1))
    later, text = store.tokens.add("later", ADMIN, datetime.now(UTC) + timedelta(hours=1))
    async with running_over(guarded(settings)) as running:
        challenge(await running.client.get("/comparisons", headers={"Authorization": f"Bearer {past}"}))
        headers = {"Authorization": f"Bearer {text}"}
        assert (await running.client.get("/comparisons", headers=headers)).status_code == 200
        assert store.tokens.revoke(later.id)
        challenge(await running.client.get("/comparisons", headers=headers))
    store.database.close()


async def test_on_the_loopback_nobody_is_asked_even_where_there_are_tokens(settings: Settings) -> None:
    async with entered(settings) as (running, _):
        assert (await running.client.get("/comparisons")).status_code == 200
        await running.submit()


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/tokens"), ("POST", "/webhooks"), ("DELETE", "/tokens/x"), ("DELETE", "/webhooks/x")]
)
async def test_where_nobody_is_asked_nobody_leaves_a_token_behind(shared: Running, method: str, path: str) -> None:
    body = {"name": "x", "scope": "admin", "url": "https://example.com"}
    answer = await shared.client.request(method, path, json=body)
    assert (answer.status_code, problem(answer)["type"]) == (403, "/problems/admin-by-command")
    assert (await shared.client.get("/tokens")).json()["items"] == []


@pytest.mark.sqlite
async def test_tokens_are_digests_in_the_database(settings: Settings) -> None:
    async with entered(guarded(settings)) as (running, shown):
        await running.client.get("/comparisons", headers=shown[READ])
    kept = b"".join(file.read_bytes() for file in settings.data.iterdir() if file.is_file())
    for headers in shown.values():
        text = headers["Authorization"].removeprefix("Bearer ")
        assert text.encode() not in kept
        assert text.split("_", 2)[2].encode() not in kept
        assert hashlib.sha256(text.encode()).hexdigest().encode() in kept


async def test_a_comparison_is_its_tokens(settings: Settings) -> None:
    async with entered(guarded(settings)) as (running, shown):
        for scope in (SUBMIT, ADMIN):
            answer = await running.client.post("/compare", json=LATENCY_ONLY, headers=shown[scope])
            assert answer.status_code == 202
    store = Store.open(settings.url_of_database)
    with store.database.read() as reading:
        submitters = list(reading.scalars(select(comparisons.c.submitter).order_by(comparisons.c.id)))
    store.database.close()
    assert submitters == [shown[scope]["Authorization"].split("_")[1] for scope in (SUBMIT, ADMIN)]


async def test_changes_are_logged_with_the_tokens_id_alone(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with entered(guarded(settings)) as (running, shown):
            await running.client.post("/compare", json=LATENCY_ONLY, headers=shown[SUBMIT])
    text = shown[SUBMIT]["Authorization"].removeprefix("Bearer ")
    assert f"POST /compare by token {text.split('_')[1]}" in caplog.text
    assert text not in caplog.text


@pytest.mark.parametrize("host", ["attacker.example", "attacker.example:8642", "127.0.0.1.attacker.example"])
async def test_a_name_that_dns_could_point_here_is_refused(shared: Running, host: str) -> None:
    answer = await shared.client.get("/comparisons", headers={"Host": host})
    assert (answer.status_code, problem(answer)["type"]) == (421, "/problems/wrong-host")


@pytest.mark.parametrize("host", ["a/livez?", "a/livez#", "localhost/static/", "a@b", "a b", "x:y", "livez?@localhost"])
async def test_a_host_that_is_none_opens_no_door(settings: Settings, host: str) -> None:
    """A URL that is put together with this header has a path of the client's choice."""
    async with entered(guarded(settings)) as (running, _):
        answer = await running.client.get("/tokens", headers={"Host": host})
        assert answer.status_code in (400, 421)
        assert "items" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:80", "10.0.0.1", "equipoise", "LOCALHOST:8642"])
async def test_addresses_and_local_names_are_not(shared: Running, host: str) -> None:
    assert (await shared.client.get("/comparisons", headers={"Host": host})).status_code == 200


async def test_a_listed_name_may_address_the_service(settings: Settings) -> None:
    listed = settings.model_copy(update={"allowed_hosts": ("Equipoise.example",)})
    async with running_over(listed) as running:
        assert (await running.client.get("/", headers={"Host": "equipoise.example"})).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://attacker.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ],
)
async def test_another_sites_page_changes_nothing(shared: Running, headers: dict[str, str]) -> None:
    answer = await shared.client.post("/compare", json=LATENCY_ONLY, headers=headers)
    assert (answer.status_code, problem(answer)["type"]) == (403, "/problems/cross-site")
    assert (await shared.client.get("/comparisons", headers=headers)).status_code == 200


async def test_our_own_pages_may_ask(shared: Running) -> None:
    own = f"http://{shared.client.base_url.host}:{shared.client.base_url.port}"
    for headers in ({"Origin": own}, {"Sec-Fetch-Site": "same-origin", "Origin": "null"}, {"Sec-Fetch-Site": "none"}):
        assert (await shared.client.post("/compare", json={}, headers=headers)).status_code == 422


async def test_a_long_body_is_refused_whether_announced_or_not(shared: Running) -> None:
    async def streamed() -> AsyncIterator[bytes]:
        for _ in range(101):
            yield b" " * 10_000

    for content in (b" " * 1_000_001, streamed()):
        answer = await shared.client.post("/compare", content=content, headers={"Content-Type": "application/json"})
        assert (answer.status_code, problem(answer)["type"]) == (413, "/problems/body-too-large")
    almost = b'{"modle":"' + b" " * 999_000 + b'"}'
    answer = await shared.client.post("/compare", content=almost, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422


async def test_an_endless_body_is_not_read_for_ever() -> None:
    read: list[int] = []

    async def endless() -> Message:
        read.append(1_000)
        return {"type": "http.request", "body": b" " * 1_000, "more_body": True}

    with pytest.raises(BodyTooLarge):
        await whole_body(endless, 10_000)
    assert sum(read) <= 21_000


async def test_a_body_that_does_not_end_is_given_up(shared: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("equipoise_service.api.guard.BODY_LIMIT_S", 0.1)
    reader, writer = await asyncio.open_connection(shared.client.base_url.host, shared.client.base_url.port)
    writer.write(b"POST /compare HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_one_caller_may_ask_so_often(settings: Settings) -> None:
    async with entered(guarded(settings, requests_per_s=2.0)) as (running, shown):
        statuses = [(await running.client.get("/comparisons", headers=shown[READ])).status_code for _ in range(5)]
        assert statuses[:4] == [200] * 4  # twice the rate at once
        answer = await running.client.get("/comparisons", headers=shown[READ])
        assert (answer.status_code, problem(answer)["type"]) == (429, "/problems/too-many-requests")
        assert int(answer.headers["retry-after"]) >= 1
        assert (await running.client.get("/comparisons", headers=shown[ADMIN])).status_code == 200
        strangers = [(await running.client.get("/comparisons")).status_code for _ in range(6)]
        assert strangers[-1] == 429
        assert (await running.client.get("/livez")).status_code == 200


SAFE = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


async def test_every_answer_carries_safe_headers(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start() as running:
        for method, path in (
            ("GET", "/"), ("GET", "/comparisons"), ("GET", "/livez"), ("GET", "/nowhere"), ("PUT", "/compare"),
            ("GET", "/static/live.js"), ("POST", "/compare"),
        ):  # fmt: skip
            answer = await running.client.request(method, path)
            assert {name: answer.headers.get(name) for name in SAFE} == SAFE
            assert "'none'" in answer.headers["content-security-policy"]
            assert "unsafe" not in answer.headers["content-security-policy"]
            assert "server" not in answer.headers
        assert (await running.client.get("/static/live.js")).headers["cache-control"] == "no-cache"
        assert (await running.client.get("/comparisons")).headers["cache-control"] == "no-store"
        monkeypatch.setattr("equipoise_service.api.comparisons.new_id", lambda: 1 / 0)
        defect = await running.client.post("/compare", json=LATENCY_ONLY)
        assert (defect.status_code, defect.headers["x-frame-options"]) == (500, "DENY")


@pytest.fixture
def own_data(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EQUIPOISE_DATA", str(settings.data))
    return settings.data


def test_tokens_are_made_listed_and_revoked(own_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "create", "ci", "--scope", "submit", "--expires-days", "30"]) == 0
    made = capsys.readouterr()
    text = made.out.strip()
    token_id = text.split("_")[1]
    assert text not in made.err
    assert main(["token", "list"]) == 0
    listed = capsys.readouterr().out
    assert token_id in listed
    assert "submit  valid until" in listed
    assert text not in listed
    assert main(["token", "revoke", token_id]) == 0
    assert main(["token", "list"]) == 0
    assert "revoked" in capsys.readouterr().out
    assert main(["token", "revoke", "nothing"]) == 64
    assert main(["token", "create", " ", "--scope", "read"]) == 64
    assert own_data.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("host", ["2001:db8::1", "gpu-7", "192.0.2.1"])
def test_no_service_beyond_the_loopback_without_a_token(
    own_data: Path, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--host", host, "--port", "0"]) == 64
    assert "equipoise token create" in capsys.readouterr().err
    assert NoTokens(host).variable == "EQUIPOISE_HOST"
    assert not (own_data / "service.lock").exists()


@pytest.mark.parametrize(
    ("host", "asks"),
    [
        ("127.0.0.1", False),
        ("::1", False),
        ("localhost", False),
        ("192.0.2.1", True),
        ("2001:db8::1", True),
        ("gpu-7", True),
    ],
)
def test_beyond_the_loopback_everybody_is_asked(settings: Settings, host: str, asks: bool) -> None:
    door = Door.of(settings, host)
    assert (door.asks, door.checks_host) == (asks, not asks)
    assert (door.requests_per_s is None) is not asks
    assert Door.of(guarded(settings), host).asks


def test_a_private_service_is_its_owners_alone(settings: Settings) -> None:
    door = Door.of(settings.model_copy(update={"public_reads": True}), "127.0.0.1", "0" * 64)
    assert (door.asks, door.public_reads) == (True, False)
