"""One engine's process tree: started from an argument list, ended whole, whatever it does.

The tree's parent is ``supervisor.py``. What belongs to the tree is found in three ways, since each can be escaped:
below the supervisor, in its session (a program that renames itself overwrites its environment, as SGLang's scheduler
does), and by ``EQUIPOISE_LAUNCH_ID`` in the environment (a detached process leaves the session). A process that none
of them finds is never touched. HTTP, readiness and arms are not known here.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from equipoise_service.engines import logs
from equipoise_service.engines.ports import listeners

LAUNCH_ID = "EQUIPOISE_LAUNCH_ID"
KILL_WAIT_S = 10.0
"""After SIGKILL the kernel frees gigabytes of memory before a process is gone; on a busy machine this takes seconds."""
POLL_S = 0.05


class Stopped(NamedTuple):
    """How a process tree ended.

    Attributes:
        held_s: Seconds from spawn until nothing was left.
        leftovers: One line for each process or port that is still there.
    """

    held_s: float
    leftovers: tuple[str, ...]


class ProcessTree:
    """A started engine: its supervisor, its log and everything below."""

    def __init__(
        self,
        supervisor: asyncio.subprocess.Process,
        launch_id: str,
        log: Path,
        grace_s: float,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self.launch_id = launch_id
        self._secrets = secrets
        self.log = log
        self.started_s = time.monotonic()
        self._supervisor = supervisor
        self._root = _process(supervisor.pid)
        self._grace_s = grace_s
        self._exit: asyncio.Task[int] = asyncio.ensure_future(supervisor.wait())

    @classmethod
    async def spawn(
        cls,
        argv: Sequence[str],
        environment: Mapping[str, str],
        launch_id: str,
        log: Path,
        *,
        grace_s: float,
        log_bytes: int = logs.LIMIT_BYTES,
    ) -> "ProcessTree":
        """Start ``argv`` under a supervisor in its own session and in the log's folder; its output goes to ``log``.

        Args:
            argv: The program and its arguments; there is no shell.
            environment: The whole environment; ``EQUIPOISE_LAUNCH_ID`` is added to it.
            launch_id: The mark of this tree, unique on this machine.
            log: File to create.
            grace_s: Seconds between SIGTERM and SIGKILL when it is stopped.
            log_bytes: Longest log; as much again of what came before is kept beside it.
        """
        supervisor = Path(__file__).with_name("supervisor.py")
        own = (str(os.getpid()), str(grace_s), str(log_bytes))
        command = (sys.executable, "-I", "-S", str(supervisor), *own, *argv)
        with logs.create(log) as stream:
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**environment, LAUNCH_ID: launch_id},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                cwd=log.parent,  # `python -m` puts the working directory on the path; nothing there may shadow a module
                start_new_session=True,
            )
        return cls(process, launch_id, log, grace_s, logs.secrets_of(os.environ | dict(environment)))

    @property
    def exit(self) -> "asyncio.Task[int]":
        """Done, with the exit status, once the engine has ended."""
        return self._exit

    @property
    def exit_text(self) -> str | None:
        """How the engine ended, in words; None while it runs."""
        if not self._exit.done():
            return None
        return describe_exit(self._exit.result())

    def members(self) -> list[psutil.Process]:
        """Every living process of this tree, adopted orphans and detached ones included."""
        session = self._session()
        found = {pid for pid in psutil.pids() if _in_session(pid, session) or _is_marked(pid, self.launch_id)}
        if self._root is not None:
            with contextlib.suppress(psutil.NoSuchProcess):  # the supervisor has ended; the other two marks remain
                found |= {child.pid for child in self._root.children(recursive=True)}
        return [process for process in map(_process, sorted(found)) if process is not None and is_alive(process)]

    def _session(self) -> int | None:
        """The session's number; None once the supervisor's pid is another process's, and so no session of ours.

        No process gets a number that is still that of a session.
        """
        pid = self._supervisor.pid
        supervises = self._root is not None and self._root.is_running()
        return pid if supervises or not psutil.pid_exists(pid) else None

    def log_tail(self) -> str:
        """The last lines of the engine's log, without secrets."""
        return logs.without_secrets(logs.tail(self.log), self._secrets)

    def terminate(self) -> None:
        """Tell the supervisor to end the tree."""
        with contextlib.suppress(ProcessLookupError):
            self._supervisor.send_signal(signal.SIGTERM)

    async def stop(self, ports: Iterable[int] = ()) -> Stopped:
        """End the whole tree and wait until its processes are gone and ``ports`` are free.

        SIGTERM, then SIGKILL after the grace, both sent by the supervisor; what it left is killed by its mark. Secrets
        are taken out of the log, which is kept.
        """
        if not self._exit.done():
            self.terminate()
            await asyncio.wait({self._exit}, timeout=self._grace_s + KILL_WAIT_S)
        deadline = time.monotonic() + KILL_WAIT_S
        left = self._left(ports)
        while left and time.monotonic() < deadline:
            for process in self.members():
                _kill(process)
            await asyncio.sleep(POLL_S)
            left = self._left(ports)
        try:
            await asyncio.to_thread(logs.remove_secrets, self.log, self._secrets)
        except OSError as error:
            left.append(f"secrets that may stand in {self.log}: {error.strerror}")
        return Stopped(held_s=time.monotonic() - self.started_s, leftovers=tuple(left))

    def _left(self, ports: Iterable[int]) -> list[str]:
        processes = [f"process {process.pid} ({_name(process)})" for process in self.members()]
        held = [f"port {port} held by process {pid}" for port in ports for pid in listeners(port)]
        return processes + held


def describe_exit(status: int) -> str:
    """An exit status in words; 128 + n is how a supervisor reports signal n."""
    number = -status if status < 0 else status - 128
    if status < 0 or status > 128:
        try:
            return f"was killed by {signal.Signals(number).name}"
        except ValueError:
            return f"exited with status {status}"
    return f"exited with status {status}"


def _in_session(pid: int, session: int | None) -> bool:
    try:
        return os.getsid(pid) == session
    except (ProcessLookupError, PermissionError):
        return False


def _is_marked(pid: int, launch_id: str) -> bool:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return False  # gone, or another user's and so not ours
    return f"{LAUNCH_ID}={launch_id}".encode() in variables


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs, and is not only waited for."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return "ended"


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
