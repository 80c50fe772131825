"""The HTTP server around the application: a bound socket, signals, and a way to run it inside another program."""

import asyncio
import contextlib
import errno
import gc
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple

import uvicorn

from equipoise_service.access.door import Door
from equipoise_service.api import create_app
from equipoise_service.errors import DataInUse, ServerError
from equipoise_service.folder import holder_of, prepare
from equipoise_service.machine import LauncherFactory
from equipoise_service.settings import Settings

GRACE_S = 3
"""Open event streams are ended this long after the order to stop."""
KEEP_ALIVE_S = 75
"""How long an idle connection stays open: longer than clients and proxies keep one, mostly 60 s at most. The side that
is asked must not be the one that closes: a request that crosses with the end of its connection is lost."""


class Listening(NamedTuple):
    """A bound socket and its address."""

    socket: socket.socket
    host: str
    port: int

    @property
    def url(self) -> str:
        """The address for clients."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


class Server(uvicorn.Server):
    """uvicorn that leaves signals, and the decision to end the process, to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until ``should_exit``; raises ``ServerError`` where uvicorn would end the process."""
        try:
            await super().serve(sockets)
        except SystemExit as ended:
            raise ServerError("the service did not start; the log above says why") from ended


def bind(host: str, port: int) -> Listening:
    """Bind a port, 0 for a free one.

    Raises:
        ServerError: It cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only for sockets that say TCP; with it every answer waits 40 ms for an ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        taken = error.errno == errno.EADDRINUSE
        hint = "; another program has it, choose one with --port or EQUIPOISE_PORT" if taken else ""
        raise ServerError(f"cannot bind {host}:{port}: {error.strerror}{hint}") from error
    return Listening(listener, host, listener.getsockname()[1])


async def serving(settings: Settings, listening: Listening, ready: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM; ``ready`` is called once requests are answered."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with running_server(settings, listening, listening.url) as server:
        # What is loaded by now is never garbage; otherwise each full collection walks through it while requests wait.
        gc.collect()
        gc.freeze()
        ready()
        ended = asyncio.ensure_future(stop.wait())
        await asyncio.wait({ended, server}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if server.done():
            server.result()  # a defect of the server is no orderly end


@contextlib.asynccontextmanager
async def running_server(
    settings: Settings,
    listening: Listening,
    url: str | None,
    launcher_factory: LauncherFactory | None = None,
    pass_sha256: str | None = None,
) -> AsyncIterator["asyncio.Task[None]"]:
    """Serve while the context lasts; ready to answer inside it. The socket is closed afterwards in any case.

    Args:
        settings: The operator's decisions.
        listening: Where to serve.
        url: The address to note in the data folder for other commands, None to stay private.
        launcher_factory: As for ``create_app``.
        pass_sha256: Digest of a token that every request must show, besides those of the database; None for none.

    Raises:
        SettingsError: The data folder cannot be made.
        DataInUse: Another service holds the data folder.
        ServerError: The service did not start; its log says why.
    """
    with contextlib.closing(listening.socket):
        prepare(settings.data)
        if (holder := holder_of(settings.data)) is not None:
            raise DataInUse(settings.data, f"process {holder.pid}")
        config = uvicorn.Config(
            create_app(settings, launcher_factory, url, Door.of(settings, listening.host, pass_sha256)),
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        server = Server(config)
        task = asyncio.create_task(server.serve(sockets=[listening.socket]), name="http")
        try:
            while not server.started and not task.done():
                await asyncio.sleep(0.01)
            if task.done():
                task.result()
            yield task
        finally:
            server.should_exit = True
            await asyncio.wait({task})
