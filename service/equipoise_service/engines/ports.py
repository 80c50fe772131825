"""Ports: chosen free, never twice, and owned by the engine that was told to use them.

Nothing is started or ended here.
"""

import errno
import socket
from typing import NamedTuple

import numpy as np
import psutil

LOWEST, HIGHEST = 20_000, 29_999
"""Below Linux' ephemeral range (32768 upwards), so that no outgoing connection takes a port between choice and bind."""


class EnginePorts(NamedTuple):
    """The TCP ports of one engine: HTTP and the rendezvous of torch.distributed."""

    http: int
    nccl: int


def is_free(port: int) -> bool:
    """Whether ``port`` can be bound on the loopback and on every address."""
    for host in ("127.0.0.1", "0.0.0.0"):  # noqa: S104 - bound and closed at once, never listened on
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # Servers set this too; without it a connection in TIME_WAIT would count as a user of the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno in (errno.EADDRINUSE, errno.EACCES):
                    return False
                raise
    return True


class PortChooser:
    """Hands out free ports, each once until it is given back."""

    def __init__(self, rng: np.random.Generator | None = None) -> None:
        self._rng = rng if rng is not None else np.random.default_rng()
        self._taken: set[int] = set()

    def choose(self) -> EnginePorts:
        """Two free, distinct ports."""
        return EnginePorts(http=self._one(), nccl=self._one())

    def give_back(self, ports: EnginePorts) -> None:
        """Allow these ports to be chosen again."""
        self._taken -= set(ports)

    def _one(self) -> int:
        for candidate in self._rng.permutation(np.arange(LOWEST, HIGHEST + 1)):
            port = int(candidate)
            if port not in self._taken and is_free(port):
                self._taken.add(port)
                return port
        raise OSError(errno.EADDRINUSE, f"no free port between {LOWEST} and {HIGHEST}")


def listeners(port: int) -> tuple[int | None, ...]:
    """Process ids that listen on ``port``; None stands for one that this user may not see."""
    return tuple(
        connection.pid
        for connection in psutil.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
    )


def describe_owner(pid: int | None) -> str:
    """A process that holds a port, for an error text."""
    if pid is None:
        return "a process of another user"
    try:
        return f"process {pid} ({psutil.Process(pid).name()})"
    except psutil.NoSuchProcess:
        return f"process {pid}"
