"""Writes that nobody waits for: one after the other, in a thread of their own, none of them forgotten."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from threading import Lock


class Background:
    """A commit that waits for the disk takes milliseconds, in which an event loop could ask an engine something."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._begun: list[Future[object]] = []
        self._settling = Lock()

    def submit(self, work: Callable[[], object]) -> None:
        """Do work after what came before it; raises what kept earlier work from being done."""
        self.is_done()
        # With the caller's context, by which log lines name their comparison.
        self._begun.append(self._thread.submit(copy_context().run, work))

    def is_done(self, within_s: float | None = 0.0) -> bool:
        """Whether all of it is done after so many seconds at most; raises what kept it from being done."""
        wait(tuple(self._begun), timeout=within_s)
        with self._settling:
            while self._begun and self._begun[0].done():
                self._begun.pop(0).result()
            return not self._begun

    def flush(self) -> None:
        """Wait until all of it is done, whoever waits beside; raises, to one of them, what kept it from being done."""
        while not self.is_done(None):
            pass
