"""Webhooks arrive signed, whatever was wrong meanwhile. Another implementation checks signatures."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from aiohttp import web
from sqlalchemy import update
from sqlalchemy.exc import OperationalError
from standardwebhooks import Webhook, WebhookVerificationError

from equipoise_service import webhooks
from equipoise_service.access.scopes import Scope
from equipoise_service.bell import Bell
from equipoise_service.cli import main
from equipoise_service.errors import RequestInvalid
from equipoise_service.settings import Settings
from equipoise_service.store import Delivery, NewComparison, Store, Webhooks, tables
from equipoise_service.store.tables import deliveries
from equipoise_service.webhooks import Sender, new_secret, signed_headers, usable_url
from equipoise_service.worker import CANCELLED
from tests.integration.service.conftest import Running, Start, running_over
from tests.integration.service.fake import Call, Hook, nothing


class Message(NamedTuple):
    """One request that the receiver got."""

    headers: dict[str, str]
    body: bytes


class Receiver:
    """An endpoint that answers with the statuses it is given, then with 204."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.statuses: list[int] = []
        self.url = ""
        self._came = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        """Note the message."""
        self.messages.append(
            Message({name.lower(): value for name, value in request.headers.items()}, await request.read())
        )
        self._came.set()
        status = self.statuses.pop(0) if self.statuses else 204
        return web.Response(status=status, headers={"Location": "/other"} if status in (302, 307) else {})

    async def got(self, count: int) -> list[Message]:
        """The messages, once there are so many."""
        async with asyncio.timeout(300):
            while len(self.messages) < count:
                self._came.clear()
                await self._came.wait()
        return self.messages


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    yield found
    await runner.cleanup()


@pytest.fixture
def start(settings: Settings) -> Start:
    """Starts a service that asks for tokens, and a client that shows one of scope admin."""
    asking = settings.model_copy(update={"require_tokens": True})

    @contextlib.asynccontextmanager
    async def started(hook: Hook = nothing) -> AsyncIterator[Running]:
        store = Store.open(asking.url_of_database)
        text = store.tokens.add("test", Scope.ADMIN)[1]
        store.database.close()
        async with running_over(asking, hook) as running:
            running.client.headers["Authorization"] = f"Bearer {text}"
            yield running

    return started


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "PAUSES_S", (0, 0, 0))


async def added(running: Running, url: str) -> str:
    """Add a webhook and return its secret."""
    answer = await running.client.post("/webhooks", json={"url": url})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["secret"])


async def test_every_end_is_told_and_signed(start: Start, receiver: Receiver) -> None:
    async def die(_: object) -> None:
        raise RuntimeError("dead")

    async with start() as running:
        secret = await added(running, receiver.url)
        succeeded = await running.submit()
        view = await running.ended(succeeded)
        await receiver.got(1)
    async with start(die) as running:
        failed = await running.submit()
        await running.ended(failed)
        messages = await receiver.got(2)
    for message in messages:
        Webhook(secret).verify(message.body, message.headers)
        with pytest.raises(WebhookVerificationError):
            Webhook(new_secret()).verify(message.body, message.headers)
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(message.body + b" ", message.headers)
    first, second = (json.loads(message.body) for message in messages)
    assert first == {
        "type": "comparison.succeeded",
        "timestamp": view["finished_at"],
        "data": {
            "id": succeeded, "status": "succeeded", "verdict": view["verdict"]["overall"]["word"], "model": "m",
            "path": f"/comparisons/{succeeded}",
        },
    }  # fmt: skip
    assert (second["type"], second["data"]["verdict"]) == ("comparison.failed", None)
    assert messages[0].headers["webhook-id"] != messages[1].headers["webhook-id"]


@pytest.mark.usefixtures("at_once")
async def test_a_refused_message_comes_again_the_same(start: Start, receiver: Receiver) -> None:
    receiver.statuses = [500, 307]
    async with start() as running:
        secret = await added(running, receiver.url)
        await running.ended(await running.submit())
        messages = await receiver.got(3)
        await asyncio.sleep(0.2)
        listed = (await running.client.get("/webhooks")).json()["items"]
    assert len(messages) == 3  # the redirect was not followed
    assert len({message.body for message in messages}) == 1
    assert len({message.headers["webhook-id"] for message in messages}) == 1
    Webhook(secret).verify(messages[2].body, messages[2].headers)
    last = listed[0]["last_delivery"]
    assert (last["attempts_failed"], last["last_error"], last["next_at"]) == (2, None, None)
    assert last["delivered_at"] is not None
    assert secret not in json.dumps(listed)


@pytest.mark.usefixtures("at_once")
async def test_an_endpoint_that_never_takes_it_is_given_up_and_says_why(start: Start) -> None:
    async with start() as running:
        await added(running, "http://127.0.0.1:9/nobody")
        await running.ended(await running.submit())
        async with asyncio.timeout(300):
            while True:
                last = (await running.client.get("/webhooks")).json()["items"][0]["last_delivery"]
                if last["next_at"] is None:
                    break
                await asyncio.sleep(0.02)
    assert last["attempts_failed"] == 4  # one, and one after each pause
    assert last["delivered_at"] is None
    assert last["last_error"].startswith("ConnectError")


async def test_what_is_owed_survives_a_restart(start: Start, receiver: Receiver, settings: Settings) -> None:
    receiver.statuses = [500, 500]
    async with start() as running:
        await added(running, receiver.url)
        await running.ended(await running.submit())
        await receiver.got(1)
    store = Store.open(settings.url_of_database)
    with store.database.write() as connection:
        connection.execute(update(deliveries).values(next_at=datetime(2000, 1, 1, tzinfo=UTC)))
    store.database.close()
    receiver.statuses = []
    async with start():
        messages = await receiver.got(2)
    assert messages[0].body == messages[1].body


async def test_a_service_that_ends_at_once_still_tells(
    start: Start, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "FLUSH_S", 600)  # however slow the machine is
    gate = asyncio.Event()

    async def wait(_: object) -> None:
        await gate.wait()

    async with start(wait) as running:
        await added(running, receiver.url)
        comparison_id = await running.submit()
        await running.events(comparison_id, most=2)
        await running.client.post(f"/comparisons/{comparison_id}/cancel")
    message = json.loads((await receiver.got(1))[0].body)
    assert (message["type"], message["data"]["id"]) == ("comparison.cancelled", comparison_id)


@pytest.fixture
def owing(settings: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store that owes the receiver one message."""
    monkeypatch.setattr(webhooks, "FLUSH_S", 600)  # however slow the machine is
    store = Store.open(settings.url_of_database)
    store.webhooks.add(receiver.url, new_secret())
    store.comparisons.add(NewComparison("c", "m", "{}", "0" * 64, "{}"))
    store.comparisons.cancel("c", CANCELLED)
    yield store
    store.database.close()


async def test_what_a_thread_takes_while_the_service_ends_is_told(
    owing: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, loop, due = Sender(owing, Bell()), asyncio.get_running_loop(), Webhooks.take_due
    sending = asyncio.create_task(sender.run())

    async def cancel() -> None:
        sending.cancel()
        for _ in range(10):
            await asyncio.sleep(0)  # the order arrives

    def taking_while_cancelled(self: Webhooks, now: datetime) -> list[Delivery]:
        monkeypatch.setattr(Webhooks, "take_due", due)
        taken = due(self, now)
        asyncio.run_coroutine_threadsafe(cancel(), loop).result()
        return taken

    monkeypatch.setattr(Webhooks, "take_due", taking_while_cancelled)
    await asyncio.wait({sending})
    await sender.flush()
    assert len(receiver.messages) == 1


@pytest.mark.parametrize("turns", range(40))
async def test_whenever_a_service_ends_its_message_is_told(
    owing: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    async def in_one_turn(function: Callable[..., object], *args: object) -> object:
        await asyncio.sleep(0)
        return function(*args)

    monkeypatch.setattr(asyncio, "to_thread", in_one_turn)
    sender = Sender(owing, Bell())
    sending = asyncio.create_task(sender.run())
    for _ in range(turns):
        await asyncio.sleep(0)
    sending.cancel()
    await asyncio.wait({sending})
    await sender.flush()
    assert {message.body for message in receiver.messages} == {receiver.messages[0].body}
    last = owing.webhooks.last_delivery(owing.webhooks.every()[0].id)
    assert last is not None
    assert last.delivered_at is not None


async def test_an_endpoint_that_dawdles_is_given_up_in_time(owing: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that never ends, a byte at a time: each read by itself is quick enough."""
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 0.2)

    async def dawdle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\nX: ")
            while True:
                writer.write(b"a")
                await writer.drain()
                await asyncio.sleep(0.02)

    webhook = owing.webhooks.every()[0]
    async with await asyncio.start_server(dawdle, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        with owing.database.write() as connection:
            connection.execute(update(tables.webhooks).values(url=url))
        await Sender(owing, Bell()).flush()
    last = owing.webhooks.last_delivery(webhook.id)
    assert last is not None
    assert (last.attempts, last.last_error) == (1, "no answer within 0.2 s")


async def test_a_message_whose_end_was_noted_is_not_let_go(owing: Store) -> None:
    taken = owing.webhooks.take_due(datetime.now(UTC))
    owing.webhooks.delivered(taken[0].id)
    owing.webhooks.let_go(taken)
    assert owing.webhooks.next_at() is None


async def test_a_locked_or_full_database_delays_and_loses_nothing(
    start: Start, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "DATABASE_RETRY_S", 0.05)
    left = ["database is locked", "database or disk is full", "database is locked"]
    due = Webhooks.take_due

    def failing(self: Webhooks, now: datetime) -> list[Delivery]:
        if left:
            raise OperationalError("SELECT", {}, sqlite3.OperationalError(left.pop()))
        return due(self, now)

    async with start() as running:
        await added(running, receiver.url)
        monkeypatch.setattr(Webhooks, "take_due", failing)
        await running.ended(await running.submit())
        await receiver.got(1)
        assert left == []
        ready = (await running.client.get("/readyz")).json()
        assert ready["ready"]


async def test_a_removed_webhook_is_told_no_more(start: Start, receiver: Receiver) -> None:
    async with start() as running:
        await added(running, receiver.url)
        webhook = (await running.client.get("/webhooks")).json()["items"][0]
        assert (await running.client.delete(f"/webhooks/{webhook['id']}")).status_code == 204
        assert (await running.client.delete(f"/webhooks/{webhook['id']}")).status_code == 404
        await running.ended(await running.submit())
    assert receiver.messages == []


@pytest.mark.parametrize(
    "url",
    ["http://example.com/x", "ftp://example.com", "https://", "https://a:b@example.com", "//example.com", "x",
     "https://example.com:99999/", "http://10.0.0.1/", "https://exa\nmple.com", "file:///etc/passwd"],
)  # fmt: skip
def test_only_secure_addresses_are_told(url: str) -> None:
    with pytest.raises(RequestInvalid, match="https"):
        usable_url(url)


@pytest.mark.parametrize("url", ["https://example.com/a?b=c", "http://127.0.0.1:8080/x", "http://[::1]/"])
def test_https_and_the_loopback_may_be_told(url: str) -> None:
    assert usable_url(url) == url


def test_the_signature_is_the_published_one() -> None:
    """The example of the specification's own test data (standard-webhooks, libraries/python/tests)."""
    at = datetime.fromtimestamp(1_614_265_330, UTC)
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105
    headers = signed_headers(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_webhooks_from_the_command_line(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EQUIPOISE_DATA", str(settings.data))
    assert main(["webhook", "add", "https://example.com/hook"]) == 0
    made = capsys.readouterr()
    assert made.out.startswith("whsec_")
    assert main(["webhook", "list"]) == 0
    listed = capsys.readouterr().out
    assert "nothing sent yet" in listed
    assert made.out.strip() not in listed
    assert main(["webhook", "remove", listed.split()[0]]) == 0
    assert main(["webhook", "remove", "x"]) == 64
    assert main(["webhook", "add", "http://example.com"]) == 64


async def test_a_comparison_that_is_resumed_is_told_of_twice(start: Start, receiver: Receiver) -> None:
    receiver.statuses = [500]  # the first message still waits when the comparison has gone on and ended again
    failing = [True]

    async def die_once(call: Call) -> None:
        if call.method == "decode" and failing and failing.pop():
            raise RuntimeError("dead")

    async with start(die_once) as running:
        await added(running, receiver.url)
        comparison_id = await running.submit()
        assert (await running.ended(comparison_id))["status"] == "failed"
        await receiver.got(1)
        records = f"/comparisons/{comparison_id}/records"
        tag = (await running.client.get(records)).headers["etag"]
        assert (await running.client.post(f"/comparisons/{comparison_id}/resume")).status_code == 202
        assert (await running.ended(comparison_id))["status"] == "succeeded"
        async with asyncio.timeout(300):
            while len({message.headers["webhook-id"] for message in receiver.messages}) < 2:
                await asyncio.sleep(0.02)
        messages = receiver.messages
        assert (await running.client.get(records, headers={"If-None-Match": tag})).status_code == 200
    told = {message.headers["webhook-id"]: json.loads(message.body)["type"] for message in messages}
    assert sorted(told.values()) == ["comparison.failed", "comparison.succeeded"]
