"""``equipoise serve`` as a process of its own."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import IO, NamedTuple

import httpx

from equipoise_service.folder import holder_of
from equipoise_service.settings import Settings

START_LIMIT_S = 60.0


class Served(NamedTuple):
    """A service that answers."""

    process: "subprocess.Popen[bytes]"
    url: str


@contextlib.contextmanager
def served(settings: Settings, log: IO[bytes] | None = None, **variables: str) -> Iterator[Served]:
    """Serve over a data folder, with engines that do not start; ends with the context, if it has not before."""
    environment = {
        "PATH": os.environ["PATH"], "EQUIPOISE_DATA": str(settings.data), "EQUIPOISE_CACHE": str(settings.cache),
        "EQUIPOISE_DEVICE": "simulated", "EQUIPOISE_PORT": "0", "EQUIPOISE_ENGINE_MODULE": "tests.fakes.none",
    }  # fmt: skip
    command = [sys.executable, "-m", "equipoise_service", "serve"]
    with subprocess.Popen(command, env=environment | variables, stderr=log) as process:
        try:
            yield Served(process, _address(settings, process))
        finally:
            process.terminate()


def _address(settings: Settings, process: "subprocess.Popen[bytes]") -> str:
    until = time.monotonic() + START_LIMIT_S
    while time.monotonic() < until and process.poll() is None:
        holder = holder_of(settings.data)
        if holder is not None and holder.pid == process.pid and holder.url is not None:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{holder.url}/livez", trust_env=False)
                return holder.url
        time.sleep(0.05)
    raise AssertionError("the service did not answer within a minute")
