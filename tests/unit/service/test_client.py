"""The command line's client against servers that break off, refuse, or speak no JSON."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from equipoise_service.cli import client as module
from equipoise_service.cli.client import ApiClient
from equipoise_service.cli.exit_codes import CommandError, ExitCode

Answer = Callable[[dict[str, str], asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    """A server that gives each request's headers to ``answer`` and closes the connection after it."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:]
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        await answer(headers, writer)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def event(seq: int) -> bytes:
    return f"id: {seq}\r\nevent: progress\r\ndata: {{}}\r\n\r\n".encode()


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def test_a_broken_stream_goes_on_where_it_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    asked: list[str] = []

    async def answer(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        asked.append(headers["last-event-id"])
        if len(asked) == 1:  # breaks off in the middle of event 3
            writer.write(STREAM + chunk(event(1) + event(2) + b"id: 3\r\nevent: progr"))
        else:
            writer.write(STREAM + chunk(b": ping\r\n\r\n" + event(3) + event(4)) + b"0\r\n\r\n")
        await writer.drain()

    async with serving(answer) as url, ApiClient(url) as client:
        heard = [one.seq async for one in client.events("x")]
    assert heard == [1, 2, 3, 4]
    assert asked == ["0", "2"]


async def test_a_service_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    monkeypatch.setattr(module, "GIVE_UP_S", 0.02)
    async with ApiClient("http://127.0.0.1:9") as client:
        with pytest.raises(CommandError, match="lost the service") as lost:
            [one async for one in client.events("x")]
    assert lost.value.code is ExitCode.ERROR


async def test_a_service_that_is_just_back_may_not_be_ready_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    left = [503, 502, 504]

    async def answer(_: dict[str, str], writer: asyncio.StreamWriter) -> None:
        if left:
            writer.write(f"HTTP/1.1 {left.pop()} X\r\nContent-Length: 0\r\n\r\n".encode())
        else:
            writer.write(STREAM + chunk(event(1)) + b"0\r\n\r\n")
        await writer.drain()

    async with serving(answer) as url, ApiClient(url) as client:
        assert [one.seq async for one in client.events("x")] == [1]
    assert left == []


@pytest.mark.parametrize(
    ("status", "body", "code", "says"),
    [
        (
            422,
            json.dumps({"title": "Unknown model", "detail": "no such model"}),
            ExitCode.USAGE,
            "Unknown model: no such",
        ),
        (503, json.dumps({"title": "No engine", "detail": "none here"}), ExitCode.ERROR, "No engine: none here"),
        (502, "<html>bad gateway</html>", ExitCode.ERROR, "HTTP 502"),
        (500, "[]", ExitCode.ERROR, "HTTP 500"),
        (404, "{}", ExitCode.USAGE, "HTTP 404"),
    ],
)
async def test_a_refusal_keeps_its_words(
    status: int, body: str, code: ExitCode, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GIVE_UP_S", 0.0)

    async def answer(_: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()

    async with serving(answer) as url, ApiClient(url) as client:
        with pytest.raises(CommandError, match=says) as refused:
            await client.comparison("x")
        assert refused.value.code is code
        with pytest.raises(CommandError, match=says):
            [one async for one in client.events("x")]
