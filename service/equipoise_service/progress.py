"""Progress of a running comparison, as events: seldom enough for a database, often enough for people."""

from collections.abc import Callable

from pydantic import JsonValue

from equipoise_service.store import Events
from equipoise_service.store.background import Background

INTERVAL_S = 0.5


class EventProgress:
    """The experiment's ``Progress``: stores the first and last unit of every stage, and others at most twice a second.

    A pass over 1,319 questions would otherwise write 1,319 times, beside the engine that is being timed. Nobody waits
    for what lies between a stage's ends; ``flush`` does, before anything else is said of the comparison.
    """

    def __init__(self, events: Events, comparison_id: str, clock: Callable[[], float]) -> None:
        self._events = events
        self._comparison_id = comparison_id
        self._clock = clock
        self._stage = ""
        self._stored_s = clock()
        self._background = Background("progress")

    def __call__(self, stage: str, done: int, total: int, detail: str = "") -> None:
        """Report that ``done`` of ``total`` units of ``stage`` are finished."""
        now_s = self._clock()
        if stage == self._stage and 0 < done < total and now_s - self._stored_s < INTERVAL_S:
            return
        between = stage == self._stage and 0 < done < total
        self._stage, self._stored_s = stage, now_s
        payload: dict[str, JsonValue] = {"stage": stage, "done": done, "total": total, "detail": detail}
        self._background.submit(lambda: self._events.append(self._comparison_id, "progress", payload))
        if not between:
            self.flush()

    def flush(self) -> None:
        """Wait until all of it is stored."""
        self._background.flush()
