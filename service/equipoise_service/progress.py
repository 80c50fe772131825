"""Progress of a running comparison, as events: seldom enough for a database, often enough for people."""

import json
import logging
from collections.abc import Callable

from pydantic import JsonValue

from equipoise_evals.experiment import pairs_expected
from equipoise_evals.model import Plan, Verdict
from equipoise_service.errors import StorageUnavailable
from equipoise_service.store import Events, Holder
from equipoise_service.store.background import Background
from equipoise_service.store.database import BUSY_TIMEOUT_S
from equipoise_service.store.lists import spark_of

log = logging.getLogger(__name__)
INTERVAL_S = 0.5
PAUSE_S = 10.0
"""After a failure, so that engines do not wait again and again for a database that is locked or full."""


class EventProgress:
    """The experiment's ``Progress``: stores the first and last unit of every stage, and others at most twice a second.

    A pass over 1,319 questions would otherwise write 1,319 times, beside the engine that is being timed. Nobody waits
    for what lies between a stage's ends; ``flush`` does, before anything else is said of the comparison. While the
    database is unavailable people miss lines, and the measurement goes on.

    Args:
        events: Where to store.
        comparison_id: Of which comparison.
        clock: Seconds of a clock that never steps back.
        heard: Called for every unit, stored or not: the comparison has got on.
        owner: The worker that the comparison has to be leased to, if any; ``LeaseLost`` is raised once it is not.
        plan: What is measured, for the launch pairs that are still expected; None says nothing of them.

    Attributes:
        stage: The latest stage.
    """

    def __init__(
        self,
        events: Events,
        comparison_id: str,
        clock: Callable[[], float],
        heard: Callable[[], None] = lambda: None,
        *,
        owner: Holder | None = None,
        plan: Plan | None = None,
    ) -> None:
        self._events = events
        self._comparison_id = comparison_id
        self._clock = clock
        self._heard = heard
        self._owner = owner
        self._plan = plan
        self.stage = ""
        self._not_before_s = clock()
        self._stored_s = clock()
        self._background = Background("progress")

    def __call__(self, stage: str, done: int, total: int, detail: str = "") -> None:
        """Report that ``done`` of ``total`` units of ``stage`` are finished."""
        self._heard()
        now_s = self._clock()
        between = stage == self.stage and 0 < done < total
        if between and now_s - self._stored_s < INTERVAL_S:
            return
        self.stage = stage
        if now_s < self._not_before_s:
            return
        self._stored_s = now_s
        payload: dict[str, JsonValue] = {"stage": stage, "done": done, "total": total, "detail": detail}
        self._background.submit(lambda: self._store("progress", payload))
        if not between:
            self._background.is_done(BUSY_TIMEOUT_S)

    def judged(self, pair: int, verdict: Verdict) -> None:
        """Store what is known after so many launch pairs: both halves' intervals so far, and what they cost."""
        # Through JSON, so that the event holds just what a verdict would.
        spark = spark_of(json.loads(verdict.model_dump_json()))
        intervals: dict[str, JsonValue] = {half: list(limits) for half, limits in spark.items()}
        payload: dict[str, JsonValue] = {
            "pair": pair, "device_s": verdict.cost.device_seconds, "headline": verdict.headline, "intervals": intervals,
            "expected": pairs_expected(verdict, self._plan) if self._plan else None,
        }  # fmt: skip
        self._background.submit(lambda: self._store("look", payload))

    def flush(self) -> None:
        """Wait until all of it is stored."""
        self._background.flush()

    def _store(self, kind: str, payload: dict[str, JsonValue]) -> None:
        try:
            self._events.append(self._comparison_id, kind, payload, self._owner)
        except StorageUnavailable as unavailable:
            log.warning("comparison %s: progress not stored: %s", self._comparison_id, unavailable.detail)
            self._not_before_s = self._clock() + PAUSE_S
