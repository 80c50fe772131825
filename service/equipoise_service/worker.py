"""The worker: takes queued comparisons one after the other and sees each to a final status.

It owns the order of work and what an end means. Where and how a comparison is measured, and where things are stored, it
is given. Whatever exception ends a comparison becomes a stored failure here, and nowhere else.
"""

import asyncio
import logging
import traceback
from typing import NamedTuple, Protocol

from sqlalchemy.exc import SQLAlchemyError

from equipoise_evals.ports import EngineFault
from equipoise_service.bell import Bell, heard
from equipoise_service.errors import AlreadyFinished, ComparisonNotFound, EquipoiseError, StorageUnavailable
from equipoise_service.measuring import RETRY_S, Concluded, LimitReached, stored_now
from equipoise_service.store import FINAL, Holder, InvalidTransition, Lease, LeaseLost, Store, Stored, StoredError
from equipoise_service.tasks import to_the_end

log = logging.getLogger(__name__)

IDLE_POLL_S = 30.0
"""The bell wakes an idle worker; this only limits what a lost ring could cost."""
SHARED_POLL_S = 2.0
"""The same where other processes queue too, for which no bell rings here."""
INTERRUPTED = "the service ended while this comparison was running; what had been measured until then is kept"
RESUMES = "the service ended while this comparison was running; it goes on from what had been measured until then"
CANCELLED = "cancelled on request; what had been measured until then is kept"
TRACEBACK_LINES = 40


class Executor(Protocol):
    """Where comparisons are measured."""

    async def measure(self, stored: Stored, holder: Holder) -> Concluded:
        """Measure one to its verdict, as ``holder``; cancelled, it ends engines first.

        Raises:
            PlaceLost: Where it ran is gone; what it had stored can be gone on with.
        """
        ...


class PlaceLost(Exception):
    """The machine on which a comparison ran is gone, or its process there."""


class MeasuredElsewhere(Exception):
    """A comparison failed in another process; ``stored`` is why, ``expected`` whether that is no defect of ours."""

    def __init__(self, stored: StoredError, *, expected: bool) -> None:
        super().__init__(stored.reason)
        self.stored = stored
        self.expected = expected


class Rules(NamedTuple):
    """How a worker holds what it works on.

    Attributes:
        lease: Its claim on a comparison; its owner is this worker's slot of this service's data folder.
        resumes: Whether what an end of the service cuts short is queued again; a private service interrupts it.
        attempts: A comparison that has been begun so often when its service dies is interrupted: it may be the cause.
            Orderly ends of the service count as beginnings too, for a supervisor also ends a service that hangs.
    """

    lease: Lease
    resumes: bool = True
    attempts: int = 3


class Worker:
    """One worker. ``run`` is its whole life; ``cancel`` may be called beside it in the same event loop."""

    def __init__(self, store: Store, executor: Executor, bell: Bell, rules: Rules) -> None:
        self._store = store
        self._executor = executor
        self._bell = bell
        self._rules = rules
        self._current: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False
        self._lost = False
        self._ending = False

    def recover(self) -> None:
        """Queue everything again that a service left in the middle, or give it its final status.

        Call it only while this worker is at work on nothing: what is said to be its own is then left over from an
        earlier service of this data folder.
        """
        comparisons, owner = self._store.comparisons, self._rules.lease.owner
        for orphan in comparisons.orphans(owner):
            if orphan.cancel_requested_at is not None:
                end, settled = "cancelled", comparisons.cancel_orphan(orphan, owner, CANCELLED)
            elif self._rules.resumes and orphan.attempt < self._rules.attempts:
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
        in_doubt = False
        while True:
            ticket = self._bell.ticket()
            try:
                if in_doubt:
                    self.recover()
                    in_doubt = False
                stored = self._store.comparisons.claim(self._rules.lease)
                if stored is None:
                    self.recover()  # of owners that share this database and have had no heartbeat
            except StorageUnavailable as unavailable:
                in_doubt = True  # something may have been taken by a commit whose answer was lost
                log.warning("nothing can be taken from the queue: %s", unavailable.detail)
                await asyncio.sleep(RETRY_S)
                continue
            if stored is None:
                await heard(ticket, SHARED_POLL_S if self._store.database.shared else IDLE_POLL_S)
                continue
            await self._take(stored)

    def works_on(self, comparison_id: str) -> bool:
        """Whether this worker is at work on a comparison."""
        return comparison_id == self._current

    def cancel(self, comparison_id: str) -> None:
        """Cancel a comparison: at once if it is queued; if it is running, as soon as its engines are gone.

        Raises:
            ComparisonNotFound: No comparison has this id.
            AlreadyFinished: It has ended.
        """
        if comparison_id == self._current and self._task is not None and not self._task.done():
            self._cancelled = True
            self._end(self._task)
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
        self._current, self._task = stored.id, task
        self._cancelled = self._lost = self._ending = False
        beating = asyncio.create_task(self._beat(stored.id, task), name=f"heartbeat {stored.id}")
        ending = False
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            ending = True
            self._end(task)
            await to_the_end(asyncio.wait({task}))  # until its engines are gone
            raise
        finally:
            beating.cancel()
            await self._settled(stored, task, once=ending)
            self._current, self._task = None, None

    def _end(self, task: "asyncio.Task[None]") -> None:
        """Order the end of what is at work, once: a second order would break off the end of its engines."""
        if not self._ending:
            self._ending = True
            task.cancel()

    async def _beat(self, comparison_id: str, task: "asyncio.Task[None]") -> None:
        """Renew the lease while the comparison runs; end its engines if somebody else has taken it over."""
        lease = self._rules.lease
        while True:
            await asyncio.sleep(lease.lease_s / 4)
            try:
                if await asyncio.to_thread(self._store.comparisons.beat, comparison_id, lease):
                    continue
            except (StorageUnavailable, SQLAlchemyError) as error:  # the next one may come through
                log.warning("comparison %s: no heartbeat: %s", comparison_id, error, extra=_about(comparison_id))
                continue
            if task.done():
                return
            log.error(
                "comparison %s is no longer ours to work on; its engines are ended",
                comparison_id,
                extra=_about(comparison_id),
            )
            self._lost = True
            self._end(task)
            return

    async def _settled(self, stored: Stored, task: "asyncio.Task[None]", *, once: bool) -> None:
        """Store how a task ended, as soon as it can be stored; ``once`` where the service ends and cannot wait.

        What cannot be stored then is left as it is, and the next start recovers it.
        """
        while True:
            try:
                self._settle(stored, task)
            except StorageUnavailable as unavailable:
                log.warning(
                    "comparison %s: its end cannot be stored: %s",
                    stored.id,
                    unavailable.detail,
                    extra=_about(stored.id),
                )
                if once:
                    return
                try:
                    await asyncio.sleep(RETRY_S)
                except asyncio.CancelledError:
                    await self._settled(stored, task, once=True)
                    raise
            except (InvalidTransition, LeaseLost) as settled:  # somebody cancelled it, or took it over
                log.info("%s", settled, extra=_about(stored.id))
                return
            else:
                return

    def _settle(self, stored: Stored, task: "asyncio.Task[None]") -> None:
        """Store how a task ended: whatever ended it, its comparison is no longer at work now."""
        comparisons, holder = self._store.comparisons, self._holder(stored)
        if self._lost:
            return
        if task.cancelled():
            if self._cancelled:
                comparisons.cancel(stored.id, CANCELLED, holder)
            elif self._rules.resumes:
                comparisons.release(stored.id, RESUMES, holder)
            else:
                comparisons.interrupt(stored.id, INTERRUPTED, holder)
        elif isinstance(lost := task.exception(), PlaceLost) and self._goes_on(stored):
            log.warning("comparison %s: %s; it is queued again", stored.id, lost, extra=_about(stored.id))
            comparisons.release(stored.id, f"{lost}; it goes on from what had been measured until then", holder)
        elif isinstance(error := task.exception(), LeaseLost):
            raise error
        elif error is not None:
            expected = isinstance(error, EngineFault | EquipoiseError | LimitReached | PlaceLost) or (
                isinstance(error, MeasuredElsewhere) and error.expected
            )
            log.log(
                logging.INFO if expected else logging.ERROR,
                "comparison %s failed: %s",
                stored.id,
                error,
                exc_info=None if expected else error,
                extra=_about(stored.id),
            )
            comparisons.fail(stored.id, stored_error(error), holder)

    def _goes_on(self, stored: Stored) -> bool:
        """Whether a comparison may be begun once more."""
        return self._rules.resumes and stored.attempt < self._rules.attempts

    def _holder(self, stored: Stored) -> Holder:
        """This worker, with the claim that it made."""
        return Holder(self._rules.lease.owner, stored.claim)

    async def _measure_and_judge(self, stored: Stored) -> None:
        """Have it measured, and store its verdict."""
        verdict, word = await self._executor.measure(stored, self._holder(stored))
        await stored_now(lambda: self._store.comparisons.succeed(stored.id, verdict, word, self._holder(stored)))


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
        case MeasuredElsewhere():
            return error.stored
        case PlaceLost():
            return StoredError(stage="place", reason=str(error))
        case LimitReached():
            return StoredError(stage=error.stage, reason=str(error))
        case _:
            lines = traceback.format_exception(error)
            tail = "".join(lines).splitlines()[-TRACEBACK_LINES:]
            return StoredError(stage="internal", reason=f"{type(error).__name__}: {error}", log_tail="\n".join(tail))
