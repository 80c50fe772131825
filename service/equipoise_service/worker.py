"""The worker: takes queued comparisons one after the other and sees each to a final status.

It owns the order of work and what an end means. How engines are started, how prompts are made and where things are
stored it is given. Whatever exception ends a comparison becomes a stored failure here, and nowhere else.
"""

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Sequence
from typing import NamedTuple

from equipoise_evals.experiment import run_comparison
from equipoise_evals.gsm8k.chat import AnyPrompt
from equipoise_evals.judge import canonical_json, judge
from equipoise_evals.model import Plan
from equipoise_evals.ports import EngineFault, Launcher, Recorder, World
from equipoise_service import logs
from equipoise_service.bell import Bell, heard
from equipoise_service.errors import AlreadyFinished, ComparisonNotFound, EquipoiseError
from equipoise_service.progress import EventProgress
from equipoise_service.store import FINAL, Store, Stored, StoredError, StoredRecorder

log = logging.getLogger(__name__)

IDLE_POLL_S = 30.0
"""The bell wakes an idle worker; this only limits what a lost ring could cost."""
INTERRUPTED = "the service ended while this comparison was running; what had been measured until then is kept"
CANCELLED = "cancelled on request; what had been measured until then is kept"
TRACEBACK_LINES = 40


class Tools(NamedTuple):
    """What the worker is given to run a comparison.

    Attributes:
        launcher: Makes the launcher of one comparison, from its id, its plan and its recorder.
        prompts: Makes the prompts of a plan; raises a ``Refusal`` if the question set changed meanwhile.
        clock: Seconds of a clock that never steps back.
    """

    launcher: Callable[[str, Plan, Recorder], Launcher]
    prompts: Callable[[Plan], Sequence[AnyPrompt]]
    clock: Callable[[], float] = time.monotonic


class VerdictMismatch(Exception):
    """The verdict of the run is not the verdict of what was stored: a defect of ours, never a result."""


class Worker:
    """One worker. ``run`` is its whole life; ``cancel`` may be called beside it in the same event loop."""

    def __init__(self, store: Store, tools: Tools, bell: Bell) -> None:
        self._store = store
        self._tools = tools
        self._bell = bell
        self._current: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False

    def recover(self) -> None:
        """Give everything that an earlier service left in the middle its final status. Call before ``run``."""
        for comparison_id in self._store.comparisons.active():
            log.warning("comparison %s was running when the service ended; it is interrupted", comparison_id)
            self._store.comparisons.interrupt(comparison_id, INTERRUPTED)

    async def run(self) -> None:
        """Work until cancelled; a comparison that is running then is interrupted, its engines stopped."""
        while True:
            ticket = self._bell.ticket()
            stored = self._store.comparisons.next_queued()
            if stored is None:
                await heard(ticket, IDLE_POLL_S)
                continue
            await self._take(stored)

    def cancel(self, comparison_id: str) -> None:
        """Cancel a comparison: at once if it is queued; if it is running, as soon as its engines are gone.

        Raises:
            ComparisonNotFound: No comparison has this id.
            AlreadyFinished: It has ended.
        """
        if comparison_id == self._current and self._task is not None and not self._task.done():
            if not self._cancelled:  # a second order would break off the end of its engines
                self._cancelled = True
                self._task.cancel()
            return
        stored = self._store.comparisons.get(comparison_id)
        if stored is None:
            raise ComparisonNotFound(comparison_id)
        if stored.status in FINAL:
            raise AlreadyFinished(comparison_id, stored.status)
        self._store.comparisons.cancel(comparison_id, CANCELLED)

    async def _take(self, stored: Stored) -> None:
        """Run one comparison as a task of its own, so that it can be cancelled without ending the worker."""
        self._store.comparisons.start(stored.id)
        task = asyncio.create_task(self._measure_and_judge(stored), name=f"comparison {stored.id}")
        self._current, self._task, self._cancelled = stored.id, task, False
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            if not self._cancelled:
                task.cancel()
            await asyncio.wait({task})  # until its engines are gone
            raise
        finally:
            self._settle(stored.id, task)
            self._current, self._task = None, None

    def _settle(self, comparison_id: str, task: "asyncio.Task[None]") -> None:
        """Store how a task ended: whatever ended it, its comparison has a final status now."""
        comparisons = self._store.comparisons
        if task.cancelled():
            if self._cancelled:
                comparisons.cancel(comparison_id, CANCELLED)
            else:
                comparisons.interrupt(comparison_id, INTERRUPTED)
        elif (error := task.exception()) is not None:
            expected = isinstance(error, EngineFault | EquipoiseError)
            log.log(
                logging.INFO if expected else logging.ERROR,
                "comparison %s failed: %s",
                comparison_id,
                error,
                exc_info=None if expected else error,
                extra={"comparison": comparison_id},
            )
            comparisons.fail(comparison_id, stored_error(error))

    async def _measure_and_judge(self, stored: Stored) -> None:
        """Measure, then judge what is stored: a verdict rests on nothing that could not be judged again."""
        logs.comparison.set(stored.id)
        log.info("measuring %s", stored.model)
        plan = Plan.model_validate_json(stored.plan)
        recorder = StoredRecorder(self._store.records, stored.id)
        prompts = await asyncio.to_thread(self._tools.prompts, plan)
        progress = EventProgress(self._store.events, stored.id, self._tools.clock)
        world = World(self._tools.launcher(stored.id, plan, recorder), self._tools.clock, recorder, progress)
        try:
            seen = await run_comparison(plan, prompts, world)
        finally:
            progress.flush()
            recorder.flush()
        self._store.comparisons.judge(stored.id)
        verdict = await asyncio.to_thread(lambda: judge(self._store.records.load(stored.id), plan))
        text = canonical_json(verdict)
        if text != canonical_json(seen):
            raise VerdictMismatch("the stored records give another verdict than the run did; nothing was concluded")
        self._store.comparisons.succeed(stored.id, text, verdict.overall.word)


def stored_error(error: BaseException) -> StoredError:
    """What is kept of an error that ended a comparison."""
    match error:
        case EngineFault():
            return StoredError(arm=error.role, stage=error.stage, reason=error.reason, log_tail=error.log_tail)
        case EquipoiseError():
            return StoredError(stage="prepare", reason=error.detail)
        case _:
            lines = traceback.format_exception(error)
            tail = "".join(lines).splitlines()[-TRACEBACK_LINES:]
            return StoredError(stage="internal", reason=f"{type(error).__name__}: {error}", log_tail="\n".join(tail))
