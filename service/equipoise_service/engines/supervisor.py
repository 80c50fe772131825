"""The parent of one engine's process tree: a small program of its own, started by ``process.py``, never imported.

It owns the tree's end. As a sub-reaper it adopts every orphan, so a process that detaches itself is still found; as
the holder of a parent-death signal it ends the tree when the service dies, even by SIGKILL. It knows nothing about
engines or ports, and of logs only how long they may get. Standard library only, to start in a few milliseconds.

Usage: ``supervisor.py PARENT_PID GRACE_S LOG_BYTES PROGRAM [ARGUMENT ...]``. Standard output is the log, opened for
appending: once it is longer than LOG_BYTES its end goes to a second file beside it, ``.1``, and it begins anew.
Exit status: the program's own, 128 + signal, or 127 if it cannot be run.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05
CANNOT_RUN = 127


def prctl(option: int, value: int) -> None:
    """Set one attribute of this process, or raise OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def children_by_parent() -> dict[int, list[int]]:
    """Every process of the machine by its parent, out of /proc/PID/stat."""
    table: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while the table was read
        # The command name is in parentheses and may hold spaces and parentheses itself.
        table.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    return table


def descendants(root: int) -> list[int]:
    """All processes below ``root``."""
    table = children_by_parent()
    found: list[int] = []
    frontier = [root]
    while frontier:
        below = table.get(frontier.pop(), [])
        found += below
        frontier += below
    return found


def signal_all(pids: list[int], number: int) -> None:
    """Send a signal to each process that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def rotate(log: int, limit_bytes: int) -> None:
    """Move the end of a log that has grown beyond its limit to ``.1``; the log begins anew.

    The program goes on writing meanwhile, into no pipe that could fill; a line written between the two steps is lost.
    """
    size = os.fstat(log).st_size
    if size <= limit_bytes:
        return
    try:
        older = Path(f"/proc/self/fd/{log}").readlink()
        older.with_name(f"{older.name}.1").write_bytes(os.pread(log, limit_bytes, size - limit_bytes))
    except OSError as refused:  # a full disk must not end the engine
        sys.stderr.write(f"supervisor: cannot rotate the log: {refused.strerror}\n")
    os.ftruncate(log, 0)


class Supervisor:
    """Runs one program and does not return before everything below this process is gone."""

    def __init__(self, argv: list[str], grace_s: float, log_bytes: int) -> None:
        self.argv = argv
        self.grace_s = grace_s
        self.log_bytes = log_bytes
        self.stopping = False
        self.status: int | None = None

    def run(self) -> int:
        """Start the program, wait for its end or for SIGTERM, clear the tree, return the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_stop)
        try:
            # preexec_fn is unsafe with threads only; this program has none.
            main = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent)  # noqa: PLW1509
        except OSError as refused:
            sys.stderr.write(f"supervisor: cannot run {self.argv[0]}: {refused.strerror}\n")
            return CANNOT_RUN
        while not self.stopping and self.status is None:
            self._reap(main.pid, block=True)
            rotate(sys.stdout.fileno(), self.log_bytes)
        self._clear(main.pid)
        main.returncode = self.status or 0  # reaped here, not by subprocess
        return self.status or 0

    def _on_stop(self, number: int, frame: object) -> None:
        self.stopping = True

    def _reap(self, main: int, *, block: bool = False) -> bool:
        """Collect children that ended; False once there is no child at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                break
            if pid == main:
                code = os.waitstatus_to_exitcode(status)
                self.status = code if code >= 0 else 128 - code
        if block:
            # A signal handler or a child's end cuts the sleep short; SIGCHLD needs a handler for that.
            signal.sigtimedwait({signal.SIGCHLD}, 10 * POLL_S)
        return True

    def _clear(self, main: int) -> None:
        """SIGTERM to all, SIGKILL after the grace, until no child is left."""
        signal_all(descendants(os.getpid()), signal.SIGTERM)
        deadline = time.monotonic() + self.grace_s
        while self._reap(main):
            if time.monotonic() >= deadline:
                signal_all(descendants(os.getpid()), signal.SIGKILL)
            time.sleep(POLL_S)


def _die_with_parent() -> None:
    """In the child, before exec: end with the supervisor should it be killed, in a process group of its own.

    The session stays the supervisor's, whose pid the service knows.
    """
    os.setpgid(0, 0)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def main(arguments: list[str]) -> int:
    """Parse the three fixed arguments and supervise the rest."""
    parent, grace_s, log_bytes, argv = int(arguments[0]), float(arguments[1]), int(arguments[2]), arguments[3:]
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # taken by sigtimedwait
    if os.getppid() != parent:
        return 128 + signal.SIGTERM  # the parent died before the death signal was set
    return Supervisor(argv, grace_s, log_bytes).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
