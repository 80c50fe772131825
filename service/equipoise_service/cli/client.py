"""The command line's client of our own API."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple, Self

import httpx

from equipoise_service.cli.exit_codes import CommandError, ExitCode, code_of_status

RETRY_S = 1.0
GIVE_UP_S = 120.0
"""A service that restarts is back sooner; one that is gone should not be waited for all night."""


UNREADY = {502, 503, 504}


class Happened(NamedTuple):
    """One event of a comparison."""

    seq: int
    kind: str
    data: str


class Unready(Exception):
    """A service that is just back, or whose database cannot be used now; it soon can."""


class ApiClient:
    """Speaks to one service; every refusal is a ``CommandError`` with the problem's own words."""

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        # Submitting may download a model, so an answer has no limit; connecting has.
        limit = httpx.Timeout(None, connect=10.0)
        self._http = httpx.AsyncClient(base_url=_address(url), headers=headers, timeout=limit, trust_env=False)

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def submit(self, body: dict[str, Any]) -> str:
        """Submit a comparison and return its id."""
        return str((await self._json("POST", "/compare", json=body))["id"])

    async def dry_run(self, body: dict[str, Any]) -> dict[str, Any]:
        """The plan and its estimated cost; nothing is queued."""
        return await self._json("POST", "/compare?dry_run=true", json=body)

    async def comparison(self, comparison_id: str) -> dict[str, Any]:
        """One comparison as ``GET /comparisons/{id}`` shows it."""
        return await self._json("GET", f"/comparisons/{comparison_id}")

    async def cancel(self, comparison_id: str) -> None:
        """Cancel a comparison."""
        await self._json("POST", f"/comparisons/{comparison_id}/cancel")

    async def resume(self, comparison_id: str) -> int:
        """Resume a comparison that ended without a verdict, and return the number of the newest event before that."""
        newest = [event.seq async for event in self.events(comparison_id)]
        await self._json("POST", f"/comparisons/{comparison_id}/resume")
        return max(newest, default=0)

    async def text(self, path: str) -> str:
        """A document as text."""
        return (await self._request("GET", path)).text

    async def events(self, comparison_id: str, after: int = 0) -> AsyncIterator[Happened]:
        """Events of a comparison from number ``after`` on, each once and in order, until it has ended.

        It comes back when the line drops.
        """
        seen, lost_s = after, 0.0
        while True:
            try:
                async for event in self._events_once(comparison_id, seen):
                    seen, lost_s = event.seq, 0.0
                    yield event
                return
            except (httpx.TransportError, Unready) as broken:
                if lost_s >= GIVE_UP_S:
                    raise CommandError(f"lost the service: {broken}") from broken
                await asyncio.sleep(RETRY_S)
                lost_s += RETRY_S

    async def _events_once(self, comparison_id: str, after: int) -> AsyncIterator[Happened]:
        headers = {"Last-Event-ID": str(after), "Accept": "text/event-stream"}
        path = f"/comparisons/{comparison_id}/events"
        async with self._http.stream("GET", path, headers=headers) as response:
            if response.is_error:
                await response.aread()
                refused = refusal(response)
                raise Unready(str(refused)) if response.status_code in UNREADY else refused
            fields: dict[str, str] = {}
            async for line in response.aiter_lines():
                name, _, value = line.partition(":")
                if name:
                    fields[name] = value.removeprefix(" ")
                elif not line and "data" in fields:
                    yield Happened(int(fields["id"]), fields["event"], fields["data"])
                    fields = {}

    async def _json(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - httpx's own
        answer: dict[str, Any] = (await self._request(method, path, **arguments)).json()
        return answer

    async def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:  # noqa: ANN401 - httpx's own
        try:
            response = await self._http.request(method, path, **arguments)
        except httpx.TransportError as broken:
            raise CommandError(f"cannot reach the service at {self._http.base_url}: {broken}") from broken
        if response.is_error:
            raise refusal(response)
        return response


def _address(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url.rstrip("/"))
    except httpx.InvalidURL as wrong:
        raise CommandError(f"--url {url!r} is no address: {wrong}", ExitCode.USAGE) from wrong
    if address.scheme not in {"http", "https"} or not address.host:
        raise CommandError(f"--url needs an address such as http://127.0.0.1:8642, not {url!r}", ExitCode.USAGE)
    return address


def refusal(response: httpx.Response) -> CommandError:
    """The problem document as an error."""
    code = code_of_status(response.status_code)
    try:
        problem = response.json()
        return CommandError(f"{problem['title']}: {problem['detail']}", code)
    except (ValueError, KeyError, TypeError):
        return CommandError(f"HTTP {response.status_code} from {response.url}: {response.text[:300]}", code)
