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
from equipoise_evals.model import Plan, Verdict
from equipoise_evals.ports import EngineFault, Launcher, Recorder, World
from equipoise_service import logs
from equipoise_service.bell import Bell, heard
from equipoise_service.errors import AlreadyFinished, ComparisonNotFound, EquipoiseError, StorageUnavailable
from equipoise_service.progress import EventProgress
from equipoise_service.store import FINAL, InvalidTransition, Lease, Store, Stored, StoredError, StoredRecorder

log = logging.getLogger(__name__)

IDLE_POLL_S = 30.0
"""The bell wakes an idle worker; this only limits what a lost ring could cost."""
INTERRUPTED = "the service ended while this comparison was running; what had been measured until then is kept"
RESUMES = "the service ended while this comparison was running; it goes on from what had been measured until then"
CANCELLED = "cancelled on request; what had been measured until then is kept"
TRACEBACK_LINES = 40
RETRY_S = 1.0
LAST_WRITES_S = 5.0


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


class LimitReached(Exception):
    """A comparison took longer than it may; ``stage`` is where it was."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(reason)
        self.stage = stage


class Rules(NamedTuple):
    """How a worker holds what it works on.

    Attributes:
        lease: Its claim on a comparison; its owner is this service's data folder.
        stall_s: A comparison that reports no progress for so long has hung.
        resumes: Whether what an end of the service cuts short is queued again; a private service interrupts it.
        attempts: A comparison that has been begun so often when its service dies is interrupted: it may be the cause.
            Orderly ends of the service count as beginnings too, for a supervisor also ends a service that hangs.
    """

    lease: Lease
    stall_s: float = 7200.0
    resumes: bool = True
    attempts: int = 3


class Worker:
    """One worker. ``run`` is its whole life; ``cancel`` may be called beside it in the same event loop."""

    def __init__(self, store: Store, tools: Tools, bell: Bell, rules: Rules) -> None:
        self._store = store
        self._tools = tools
        self._bell = bell
        self._rules = rules
        self._current: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False
        self._lost = False

    def recover(self) -> None:
        """Queue everything again that a service left in the middle, or give it its final status.

        Call it only while this worker is at work on nothing: what is said to be its own is then left over from an
        earlier service of this data folder.
        """
        comparisons, owner = self._store.comparisons, self._rules.lease.owner
        for orphan in comparisons.orphans(owner):
            if self._rules.resumes and orphan.attempt < self._rules.attempts:
                end, settled = "queued again", comparisons.release_orphan(orphan, owner, RESUMES)
            else:
                end, settled = "interrupted", comparisons.interrupt_orphan(orphan, owner, INTERRUPTED)
            if settled:  # or its owner, or somebody else who saw it, was faster
                log.warning(
                    "comparison %s was running when its service ended; it is %s",
                    orphan.id,
                    end,
                    extra=_about(orphan.id),
                )

    async def run(self) -> None:
        """Work until cancelled; a comparison that is running then is queued again, its engines stopped."""
        while True:
            ticket = self._bell.ticket()
            try:
                stored = self._store.comparisons.claim(self._rules.lease)
                if stored is None:
                    self.recover()  # of owners that share this database and have had no heartbeat
            except StorageUnavailable as unavailable:
                log.warning("nothing can be taken from the queue: %s", unavailable.detail)
                await asyncio.sleep(RETRY_S)
                continue
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
        task = asyncio.create_task(self._measure_and_judge(stored), name=f"comparison {stored.id}")
        self._current, self._task, self._cancelled, self._lost = stored.id, task, False, False
        beating = asyncio.create_task(self._beat(stored.id, task), name=f"heartbeat {stored.id}")
        ending = False
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            ending = True
            if not self._cancelled:
                task.cancel()
            await asyncio.wait({task})  # until its engines are gone
            raise
        finally:
            beating.cancel()
            await self._settled(stored.id, task, once=ending)
            self._current, self._task = None, None

    async def _beat(self, comparison_id: str, task: "asyncio.Task[None]") -> None:
        """Renew the lease while the comparison runs; end its engines if somebody else has taken it over."""
        lease = self._rules.lease
        while True:
            await asyncio.sleep(lease.lease_s / 4)
            try:
                if await asyncio.to_thread(self._store.comparisons.beat, comparison_id, lease):
                    continue
            except StorageUnavailable as unavailable:
                log.warning(
                    "comparison %s: no heartbeat: %s", comparison_id, unavailable.detail, extra=_about(comparison_id)
                )
                continue
            if task.done():
                return
            log.error(
                "comparison %s is no longer ours to work on; its engines are ended",
                comparison_id,
                extra=_about(comparison_id),
            )
            self._lost = True
            task.cancel()
            return

    async def _settled(self, comparison_id: str, task: "asyncio.Task[None]", *, once: bool) -> None:
        """Store how a task ended, as soon as it can be stored; ``once`` where the service ends and cannot wait.

        What cannot be stored then is left as it is, and the next start recovers it.
        """
        while True:
            try:
                self._settle(comparison_id, task)
            except StorageUnavailable as unavailable:
                log.warning(
                    "comparison %s: its end cannot be stored: %s",
                    comparison_id,
                    unavailable.detail,
                    extra=_about(comparison_id),
                )
                if once:
                    return
                await asyncio.sleep(RETRY_S)
            except InvalidTransition as settled:  # somebody cancelled it while its end could not be stored
                log.info("%s", settled, extra=_about(comparison_id))
                return
            else:
                return

    def _settle(self, comparison_id: str, task: "asyncio.Task[None]") -> None:
        """Store how a task ended: whatever ended it, its comparison is no longer at work now."""
        comparisons = self._store.comparisons
        if self._lost:
            return
        if task.cancelled():
            if self._cancelled:
                comparisons.cancel(comparison_id, CANCELLED)
            elif self._rules.resumes:
                comparisons.release(comparison_id, RESUMES)
            else:
                comparisons.interrupt(comparison_id, INTERRUPTED)
        elif (error := task.exception()) is not None:
            expected = isinstance(error, EngineFault | EquipoiseError | LimitReached)
            log.log(
                logging.INFO if expected else logging.ERROR,
                "comparison %s failed: %s",
                comparison_id,
                error,
                exc_info=None if expected else error,
                extra=_about(comparison_id),
            )
            comparisons.fail(comparison_id, stored_error(error))

    async def _measure_and_judge(self, stored: Stored) -> None:
        """Measure within the limits, then judge what is stored: a verdict rests on nothing that is not."""
        logs.comparison.set(stored.id)
        log.info("measuring %s", stored.model)
        progress: EventProgress | None = None
        job = asyncio.timeout(self._rules.lease.job_s)
        stall = asyncio.timeout(self._rules.stall_s)

        def got_on() -> None:
            if not (stall.expired() or job.expired()):
                stall.reschedule(asyncio.get_running_loop().time() + self._rules.stall_s)

        try:
            async with job, stall:
                plan = Plan.model_validate_json(stored.plan)
                progress = EventProgress(self._store.events, stored.id, self._tools.clock, got_on, plan)
                verdict = await self._measured(stored, progress)
        except TimeoutError as late:
            stage = progress.stage if progress else ""
            if stall.expired():
                raise LimitReached(stage, f"no progress for {self._rules.stall_s:g} s") from late
            if job.expired():
                raise LimitReached(stage, f"not done within {self._rules.lease.job_s:g} s") from late
            raise
        await self._stored_now(
            lambda: self._store.comparisons.succeed(stored.id, canonical_json(verdict), verdict.overall.word)
        )

    async def _measured(self, stored: Stored, progress: EventProgress) -> Verdict:
        """The verdict of a run, which is that of its stored records."""
        plan = Plan.model_validate_json(stored.plan)
        recorder = StoredRecorder(self._store.records, stored.id)
        prompts = await asyncio.to_thread(self._tools.prompts, plan)
        launcher = self._tools.launcher(stored.id, plan, recorder)
        world = World(launcher, self._tools.clock, recorder, progress, progress.judged)
        try:
            seen = await run_comparison(plan, prompts, world)
        except BaseException as error:
            # Whatever ended it, what was measured is kept; but an order to end waits for no disk that stays full.
            await asyncio.to_thread(progress.flush)
            await self._last_writes(recorder, LAST_WRITES_S if isinstance(error, asyncio.CancelledError) else None)
            raise
        await asyncio.to_thread(progress.flush)
        await asyncio.to_thread(recorder.flush)
        await self._stored_now(lambda: self._store.comparisons.judge(stored.id))
        verdict = await asyncio.to_thread(lambda: judge(self._store.records.load(stored.id), plan))
        if canonical_json(verdict) != canonical_json(seen):
            raise VerdictMismatch("the stored records give another verdict than the run did; nothing was concluded")
        return verdict

    async def _last_writes(self, recorder: StoredRecorder, patience_s: float | None) -> None:
        try:
            await asyncio.to_thread(recorder.flush, patience_s)
        except StorageUnavailable as unavailable:
            log.error("records are lost: %s", unavailable.detail)

    async def _stored_now(self, write: Callable[[], None]) -> None:
        """Write, and try again for as long as the database is unavailable."""
        while True:
            try:
                write()
            except StorageUnavailable as unavailable:
                log.warning("%s", unavailable.detail)
                await asyncio.sleep(RETRY_S)
            else:
                return


def _about(comparison_id: str) -> dict[str, str]:
    """What names the comparison of a log line that is written outside its task."""
    return {"comparison": comparison_id}


def stored_error(error: BaseException) -> StoredError:
    """What is kept of an error that ended a comparison."""
    match error:
        case EngineFault():
            return StoredError(arm=error.role, stage=error.stage, reason=error.reason, log_tail=error.log_tail)
        case EquipoiseError():
            return StoredError(stage="prepare", reason=error.detail)
        case LimitReached():
            return StoredError(stage=error.stage, reason=str(error))
        case _:
            lines = traceback.format_exception(error)
            tail = "".join(lines).splitlines()[-TRACEBACK_LINES:]
            return StoredError(stage="internal", reason=f"{type(error).__name__}: {error}", log_tail="\n".join(tail))
