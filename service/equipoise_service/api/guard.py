"""In front of every route: who asks, from where, how often and how much; and the headers that every answer carries.

Everything is settled from the head of the request, before any of its body is read and any route is chosen.
"""

import asyncio
import base64
import binascii
import logging
import math
from urllib.parse import urlsplit

from fastapi import Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from equipoise_service.access.door import Caller, Door, Pace
from equipoise_service.access.scopes import SAFE_METHODS, required_scope
from equipoise_service.access.scopes import Scope as Allowed
from equipoise_service.access.secrets import is_right
from equipoise_service.api.dependencies import service_of
from equipoise_service.api.html import prefers_html
from equipoise_service.api.problems import answer
from equipoise_service.errors import (
    AdminByCommand,
    BodyTooLarge,
    BodyTooSlow,
    CrossSite,
    Forbidden,
    Refusal,
    TooManyRequests,
    Unauthenticated,
    WrongHost,
)

log = logging.getLogger(__name__)

BODY_LIMIT_S = 30.0
DRAINED = 2
"""A body of up to so many times the limit is read to its end before it is refused."""
SAFE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""On every answer that says nothing else itself; pages have a policy of their own."""


class SafeHeaders:
    """Adds ``SAFE_HEADERS`` to every answer, errors of the server included."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if "etag" in headers:  # kept by the client, asked about each time
                    headers.setdefault("Cache-Control", "no-cache")
                for name, value in SAFE_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers)


class Guard:
    """Lets a request pass, or answers it with the refusal."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door
        self._pace = Pace(door.requests_per_s) if door.requests_per_s else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            await self._admit(request)
            if request.method not in SAFE_METHODS:
                receive = await whole_body(receive, self._door.body_bytes_max)
        except (Refusal, SQLAlchemyError) as refused:
            response = await answer(request, refused)
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _admit(self, request: Request) -> None:
        """Raise a ``Refusal`` unless the request may go on."""
        host = request.headers.get("host", "")
        if not self._door.knows(host):
            raise WrongHost(host)
        if request.method not in SAFE_METHODS and from_another_site(request):
            raise CrossSite
        # Never request.url: it is put together with the Host header, so its path is the client's to choose.
        path: str = request.scope["path"]
        needed = required_scope(request.method, path)
        if needed is None:
            return
        address = f"address {request.client.host if request.client else ''}"
        if not self._door.asks or (self._door.public_reads and needed is Allowed.READ):
            self._keep_pace(address)
            if needed is Allowed.ADMIN and request.method not in SAFE_METHODS:
                raise AdminByCommand
            return
        caller = await self._caller(request, address)
        request.state.submitter = caller.token_id or ""
        if caller.scope is None or not caller.scope.allows(needed):
            raise Forbidden(str(caller.scope), needed)
        if request.method not in SAFE_METHODS:
            log.info("%s %s by token %s", request.method, path, caller.token_id)

    async def _caller(self, request: Request, address: str) -> Caller:
        """Whose token is shown; attempts without a valid one are counted by address."""
        shown = shown_token(request)
        if shown is None:
            self._keep_pace(address)
            raise Unauthenticated(shown=False, browser=_is_browser(request))
        if self._door.pass_sha256 is not None and is_right(shown, self._door.pass_sha256):
            return Caller("of this process", Allowed.ADMIN)
        token = await run_in_threadpool(service_of(request).store.tokens.holder, shown)
        if token is None:
            self._keep_pace(address)
            raise Unauthenticated(shown=True, browser=_is_browser(request))
        self._keep_pace(f"token {token.id}")
        return Caller(token.id, token.scope)

    def _keep_pace(self, caller: str) -> None:
        if self._pace is not None and (wait_s := self._pace.wait_s(caller)) > 0:
            raise TooManyRequests(self._door.requests_per_s or math.inf, math.ceil(wait_s))


def shown_token(request: Request) -> str | None:
    """The token of the ``Authorization`` header: ``Bearer``, or the password of ``Basic``, which browsers can send."""
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    match kind.lower():
        case "bearer":
            return value.strip()
        case "basic":
            try:
                return base64.b64decode(value, validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                return ""
        case _:
            return None


def from_another_site(request: Request) -> bool:
    """Whether a browser says that another site's page asks. Programs send neither header."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower()


async def whole_body(receive: Receive, most_bytes: int) -> Receive:
    """Read the body here, as far as it may go, and give it on in one piece.

    What is a little too long is read to its end, or the client might never see the answer.

    Raises:
        BodyTooLarge: It has more bytes.
        BodyTooSlow: It does not end.
    """
    body, length = bytearray(), 0
    try:
        async with asyncio.timeout(BODY_LIMIT_S):
            more = True
            while more and length <= DRAINED * most_bytes:
                message = await receive()
                part = message.get("body", b"")
                length += len(part)
                if length <= most_bytes:
                    body += part
                more = message["type"] == "http.request" and message.get("more_body", False)
    except TimeoutError as slow:
        raise BodyTooSlow(BODY_LIMIT_S) from slow
    if length > most_bytes:
        raise BodyTooLarge(most_bytes)
    first: list[Message] = [message if message["type"] != "http.request" else {**message, "body": bytes(body)}]

    async def again() -> Message:
        return first.pop() if first else await receive()

    return again


def _is_browser(request: Request) -> bool:
    return prefers_html(",".join(request.headers.getlist("accept")))
