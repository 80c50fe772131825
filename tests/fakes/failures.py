"""The shelf of bad engines: what each failure does, and when."""

import os
import signal
import subprocess
import sys
import time

from tests.fakes.knobs import Failure, FailureKind, Identity, Knobs
from tests.fakes.world import uniform

EXITS: dict[FailureKind, tuple[int, str]] = {
    "crash_at_start": (3, "simulated: crashed at start"),
    "oom_at_capture": (1, "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 2.00 GiB."),
    "unknown_flag": (2, "launch_server.py: error: unrecognized arguments: --no-such-flag"),
    "no_plugin": (1, "RuntimeError: SGLANG_PLATFORM='equipoise-cpu' not found in discovered platform plugins"),
    "address_in_use": (1, "[Errno 98] error while attempting to bind on address: address already in use"),
}
"""Exit status and last line of the failures that end an engine before it listens."""


class Failures:
    """The failures that this launch suffers."""

    def __init__(self, knobs: Knobs, identity: Identity) -> None:
        self._by_kind: dict[FailureKind, Failure] = {
            failure.kind: failure for failure in knobs.failures if identity.suffers(failure)
        }
        self._seed = knobs.seed
        self._answered = 0

    def get(self, kind: FailureKind) -> Failure | None:
        """The failure of this kind, if this launch suffers it."""
        return self._by_kind.get(kind)

    def __contains__(self, kind: FailureKind) -> bool:
        return kind in self._by_kind

    @property
    def slowdown(self) -> float:
        """Factor on every step."""
        slow = self.get("slow")
        return slow.factor if slow else 1.0

    def at_start(self) -> None:
        """Whatever happens before the engine listens."""
        if "ignores_sigterm" in self:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if "orphan" in self:
            _leave_orphan()
        if "chatty" in self:
            for _ in range(16 * 1024):
                print("x" * 63)
        for kind, (status, message) in EXITS.items():
            if kind in self:
                print(message, flush=True)
                os._exit(status)
        if "hang_at_start" in self:
            time.sleep(3600)
        while "logs_for_ever" in self:
            print("still loading", flush=True)
            time.sleep(0.05)

    def after_answer(self) -> None:
        """Count a text answer; die if it was the last one allowed."""
        self._answered += 1
        dies = self.get("dies_in_gsm8k")
        # The launcher's own first generation is a text answer as well.
        if dies and self._answered > dies.after:
            os.kill(os.getpid(), signal.SIGKILL)

    def after_block_step(self, steps: int) -> None:
        """Die once enough decode steps of token-id prompts were made."""
        dies = self.get("dies_in_block")
        if dies and steps >= dies.after:
            os.kill(os.getpid(), signal.SIGKILL)

    def refuses(self, prompt: str) -> bool:
        """Whether this text request gets a 500; the launcher's first generation does not."""
        errors = self.get("errors")
        return errors is not None and self._answered > 0 and uniform(self._seed, "error", prompt) < errors.share


def _leave_orphan() -> None:
    """Start a process that leaves our session and whose parent ends at once."""
    child = "import subprocess, sys; subprocess.Popen(['sleep', '600'], start_new_session=True)"
    subprocess.run([sys.executable, "-c", child], check=True, start_new_session=True)
