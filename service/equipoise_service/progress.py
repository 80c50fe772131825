"""Progress of a running comparison, as events: seldom enough for a database, often enough for people."""

import logging
from collections.abc import Callable

from equipoise_service.errors import StorageUnavailable
from equipoise_service.store import Events

log = logging.getLogger(__name__)
INTERVAL_S = 0.5
PAUSE_S = 10.0
"""After a failure: each try may hold the engines' event loop up for as long as a statement waits for a lock."""


class EventProgress:
    """The experiment's ``Progress``: stores the first and last unit of every stage, and others at most twice a second.

    A pass over 1,319 questions would otherwise write 1,319 times, beside the engine that is being timed.

    Args:
        events: Where to store.
        comparison_id: Of which comparison.
        clock: Seconds of a clock that never steps back.
        heard: Called for every unit, stored or not: the comparison has got on.

    Attributes:
        stage: The latest stage.
    """

    def __init__(
        self, events: Events, comparison_id: str, clock: Callable[[], float], heard: Callable[[], None] = lambda: None
    ) -> None:
        self._events = events
        self._comparison_id = comparison_id
        self._clock = clock
        self._heard = heard
        self.stage = ""
        self._not_before_s = 0.0
        self._stored_s = clock()

    def __call__(self, stage: str, done: int, total: int, detail: str = "") -> None:
        """Report that ``done`` of ``total`` units of ``stage`` are finished."""
        self._heard()
        now_s = self._clock()
        if stage == self.stage and 0 < done < total and now_s - self._stored_s < INTERVAL_S:
            return
        if now_s < self._not_before_s:
            return
        self.stage, self._stored_s = stage, now_s
        try:
            self._events.append(
                self._comparison_id, "progress", {"stage": stage, "done": done, "total": total, "detail": detail}
            )
        except StorageUnavailable as unavailable:  # people miss a line; the measurement goes on
            log.warning("comparison %s: progress not stored: %s", self._comparison_id, unavailable.detail)
            self._not_before_s = now_s + PAUSE_S
