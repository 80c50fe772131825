"""``equipoise serve`` as a process of its own, and the environment that tests give it."""

import contextlib
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import httpx

from equipoise_service.folder import holder_of
from equipoise_service.settings import Settings
from tests.fakes.launching import ROOT
from tests.support import postgres

PATIENCE_S = 600
"""Against hanging only: what is asserted are states, and a busy machine may take its time to reach them."""
PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients of plain HTTP: without it httpx reads a list of certificates for each client, which takes 20 ms."""


class Process(Protocol):
    """What is needed of ``subprocess.Popen``."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...
    def terminate(self) -> None: ...
    def send_signal(self, sig: int) -> None: ...


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
        **postgres.variables_for(settings.data),
    }  # fmt: skip
    command = [sys.executable, "-m", "equipoise_service", "serve"]
    with subprocess.Popen(command, env=environment | variables, stderr=log) as process:
        try:
            yield Served(process, address_of(settings.data, process))
        finally:
            process.terminate()


def address_of(data: Path, process: Process) -> str:
    """The address of a service that was started over this data folder, once it answers; fails where it has ended."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        holder = holder_of(data)
        if holder is not None and holder.pid == process.pid and holder.url is not None:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{holder.url}/livez", trust_env=False, verify=PLAIN, timeout=PATIENCE_S)
                return holder.url
        time.sleep(0.05)
    raise AssertionError(f"the service did not answer; its process ended with {process.poll()}")


def variables_of(folder: Path, **knobs: object) -> dict[str, str]:
    """Variables of a service over simulated engines; knobs become ``EQUIPOISE_SIM``."""
    return {
        "EQUIPOISE_DATA": str(folder / "data"),
        "EQUIPOISE_CACHE": str(folder / "cache"),
        "EQUIPOISE_DEVICE": "simulated",
        "EQUIPOISE_ENGINE_MODULE": "tests.fakes.simulated_engine",
        "EQUIPOISE_PLUGIN_PATH": str(ROOT),
        "EQUIPOISE_ENGINE_VARIABLES": json.dumps({"EQUIPOISE_SIM": json.dumps(knobs)}),
        "EQUIPOISE_PORT": "0",
        **postgres.variables_for(folder / "data"),
    }


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("EQUIPOISE_")}


class Serving:
    """``equipoise serve`` as a process of its own, over simulated engines unless the variables say all."""

    def __init__(
        self, tmp_path: Path, variables: dict[str, str], program: str = "equipoise_service", *, simulated: bool = True
    ) -> None:
        self.folder = tmp_path
        self._program = program
        self.environment = clean_environment() | (variables_of(tmp_path) if simulated else {}) | variables
        self.process: Process | None = None
        self.url = ""

    def __enter__(self) -> "Serving":
        self.process = self.start()
        try:
            self.url = address_of(self.folder / "data", self.process)
        except AssertionError as silent:
            self.process.kill()  # nobody else will
            self.process.wait()
            raise AssertionError((self.folder / "serve.log").read_text()) from silent
        return self

    def start(self) -> Process:
        """The process, whose output goes into a log."""
        command = [sys.executable, "-m", self._program, "serve"]
        with (self.folder / "serve.log").open("ab") as log:
            return subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def __exit__(self, *exc: object) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(PATIENCE_S)

    def get(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = (
            httpx.get(f"{self.url}{path}", trust_env=False, verify=PLAIN, timeout=PATIENCE_S).raise_for_status().json()
        )
        return answer

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_S)
