"""Tells webhooks of comparisons that ended, as Standard Webhooks says: signed, repeated until it was taken, never lost.

Whatever goes wrong is tried again: an endpoint that does not answer, and a database that is locked or full. A message
keeps its id and its bytes over all attempts, so that a receiver can tell a repetition. https://www.standardwebhooks.com
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import httpx
from sqlalchemy.exc import SQLAlchemyError

from equipoise_service.access.addresses import is_loopback
from equipoise_service.access.secrets import WEBHOOK_PREFIX, redacted
from equipoise_service.bell import Bell, heard
from equipoise_service.errors import FieldError, RequestInvalid, StorageUnavailable
from equipoise_service.store import Delivery, Store
from equipoise_service.tasks import all_of, to_the_end

log = logging.getLogger(__name__)

TIMEOUT_S = 15.0
POLL_S = 30.0
"""The bell wakes the sender; this only limits what the end of a comparison in another process could cost."""
DATABASE_RETRY_S = 5.0
FLUSH_S = 5.0
PAUSES_S = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Between attempts: Standard Webhooks' own schedule, over about three days."""
LONGEST_ERROR = 300


def new_secret() -> str:
    """A fresh signing secret of 256 bits, in the form that the verifiers of Standard Webhooks take."""
    return WEBHOOK_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def usable_url(url: str) -> str:
    """An address that may be told: HTTPS, or plain HTTP on this machine itself.

    Raises:
        RequestInvalid: Any other.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    secure = host is not None and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))
    if not secure or port == 0 or parts.username is not None or not url.isascii() or not url.isprintable():
        why = "needs an https address without a password in it, or an http one on the loopback"
        raise RequestInvalid([FieldError("/url", why)])
    return url


def signed_headers(secret: str, message_id: str, at: datetime, body: bytes) -> dict[str, str]:
    """Id, time and signature: HMAC-SHA256 over ``id.timestamp.body`` (Standard Webhooks, "Signature scheme")."""
    seconds = str(int(at.timestamp()))
    key = base64.b64decode(secret.removeprefix(WEBHOOK_PREFIX))
    signature = hmac.new(key, b".".join((message_id.encode(), seconds.encode(), body)), hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": seconds,
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
        "content-type": "application/json",
        "user-agent": "equipoise",
    }


class Sender:
    """Sends what is due until it is cancelled; ``ends`` rings when a comparison has ended."""

    def __init__(self, store: Store, ends: Bell, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._store = store
        self._ends = ends
        self._now = now

    async def flush(self) -> None:
        """One attempt at what is due, for a service that ends with its comparison; the next one has the rest."""
        try:
            async with asyncio.timeout(FLUSH_S), _client() as client:
                await self._send_due(client)
        except (TimeoutError, StorageUnavailable, SQLAlchemyError) as left:
            log.warning("webhooks that were not delivered wait for the next service: %s", type(left).__name__)

    async def run(self) -> None:
        """The sender's whole life."""
        async with _client() as client:
            while True:
                ticket = self._ends.ticket()
                try:
                    await self._send_due(client)
                    wait_s = await asyncio.to_thread(self._until_next_s)
                except (StorageUnavailable, SQLAlchemyError) as error:
                    log.warning("webhooks wait, the database cannot be used now: %s", type(error).__name__)
                    await asyncio.sleep(DATABASE_RETRY_S)
                    continue
                await heard(ticket, wait_s)

    async def _send_due(self, client: httpx.AsyncClient) -> None:
        while True:
            async with self._taken() as due:
                if not due:
                    return
                await all_of(self._send(client, delivery) for delivery in due)

    @contextlib.asynccontextmanager
    async def _taken(self) -> AsyncIterator[list[Delivery]]:
        """What is due now. When this service ends meanwhile, its last attempt or the next service has the rest.

        The end may come while a thread takes them: they are held then, and nobody knows yet which they are.
        """
        taking = asyncio.create_task(asyncio.to_thread(self._store.webhooks.take_due, self._now()))
        try:
            yield await to_the_end(taking)
        except asyncio.CancelledError:
            # What the database cannot be told now is free in a minute.
            with contextlib.suppress(StorageUnavailable, SQLAlchemyError):
                self._store.webhooks.let_go(taking.result())
            raise

    async def _send(self, client: httpx.AsyncClient, delivery: Delivery) -> None:
        body = delivery.body.encode()
        headers = signed_headers(delivery.secret, delivery.id, self._now(), body)
        try:
            # A limit of the whole: that of the client is one for each read, and headers may come a byte at a time.
            async with (
                asyncio.timeout(TIMEOUT_S),
                client.stream("POST", delivery.url, content=body, headers=headers) as response,
            ):
                wrong = None if response.is_success else f"HTTP {response.status_code}"
        except TimeoutError:
            wrong = f"no answer within {TIMEOUT_S:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as broken:
            wrong = f"{type(broken).__name__}: {broken}"
        if wrong is None:
            await to_the_end(asyncio.to_thread(self._store.webhooks.delivered, delivery.id))
            return
        await to_the_end(asyncio.to_thread(self._note, delivery, redacted(wrong)[:LONGEST_ERROR]))

    def _note(self, delivery: Delivery, wrong: str) -> None:
        attempts = delivery.attempts + 1
        given_up = attempts > len(PAUSES_S)
        next_at = None if given_up else self._now() + timedelta(seconds=PAUSES_S[attempts - 1])
        end = "given up" if next_at is None else f"again at {next_at:%Y-%m-%d %H:%M:%S} UTC"
        host = urlsplit(delivery.url).hostname
        log.warning("webhook to %s, message %s, attempt %d: %s; %s", host, delivery.id, attempts, wrong, end)
        self._store.webhooks.failed(delivery.id, attempts, wrong, next_at)

    def _until_next_s(self) -> float:
        next_at = self._store.webhooks.next_at()
        return POLL_S if next_at is None else min(POLL_S, max(0.0, (next_at - self._now()).total_seconds()))


def _client() -> httpx.AsyncClient:
    # No redirects: they would carry a signed message to an address that nobody registered.
    return httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False)
