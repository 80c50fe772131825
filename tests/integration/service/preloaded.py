"""``equipoise serve`` as a process of its own that starts in no time: it is forked from one that has imported it all.

A service that is killed every few seconds would otherwise spend more on its imports than on its work. Everything else
is as it is with ``Serving``: a process, its environment, its log, its signals.
"""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

from equipoise_service.cli.main import main
from tests.integration.service.served import Serving

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["equipoise_service.server", "equipoise_service.cli.serve", "alembic.command"])
"""What a service imports sooner or later; whatever is missing here it imports itself."""


class Forked:
    """What ``Serving`` needs of ``subprocess.Popen``."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self._process = FORKS.Process(target=serve, args=(environment, log), daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.exitcode

    def send_signal(self, sig: int) -> None:
        """Any other signal."""
        os.kill(self.pid, sig)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def terminate(self) -> None:
        """SIGTERM."""
        self._process.terminate()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("equipoise serve", timeout or 0.0)
        return self._process.exitcode


class PreloadedServing(Serving):
    """A ``Serving`` whose process is forked."""

    def start(self) -> Forked:
        """Fork it."""
        return Forked(self.environment, self.folder / "serve.log")


def serve(environment: dict[str, str], log: Path) -> None:
    """In the forked process: become a service of this environment, with its output in ``log``.

    With less claim to the processor, as its engines then: tests beside it may have limits in seconds.
    """
    os.nice(5)
    os.environ.clear()
    os.environ.update(environment)
    with log.open("ab") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    sys.exit(main(["serve"]))
