"""Measures one comparison to its verdict, in whichever process it runs: the service's own, or one on a cluster's node.

It owns the time limits of a run and what a verdict rests on. Who works on what, and what an end means, is the worker's.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from equipoise_evals.experiment import of_first_pairs, run_comparison, run_pair
from equipoise_evals.gsm8k.chat import AnyPrompt
from equipoise_evals.judge import canonical_json, judge
from equipoise_evals.model import Plan, Verdict
from equipoise_evals.ports import Launcher, Recorder, World
from equipoise_service import logs
from equipoise_service.errors import StorageUnavailable
from equipoise_service.progress import EventProgress
from equipoise_service.store import Holder, Store, Stored, StoredRecorder
from equipoise_service.tasks import to_the_end

T = TypeVar("T")
log = logging.getLogger(__name__)

RETRY_S = 1.0
LAST_WRITES_S = 5.0


@runtime_checkable
class Closing(Protocol):
    """A launcher that may have prepared engines which nobody wants any more."""

    async def close(self) -> None:
        """End them."""
        ...


class Tools(NamedTuple):
    """What is needed to run a comparison.

    Attributes:
        launcher: Makes the launcher of one comparison, from its id, its plan and its recorder.
        prompts: Makes the prompts of a plan; raises a ``Refusal`` if the question set changed meanwhile.
        clock: Seconds of a clock that never steps back.
    """

    launcher: Callable[[str, Plan, Recorder], Launcher]
    prompts: Callable[[Plan], Sequence[AnyPrompt]]
    clock: Callable[[], float] = time.monotonic


class Concluded(NamedTuple):
    """A verdict: its canonical JSON, and its overall word."""

    verdict: str
    word: str


class VerdictMismatch(Exception):
    """The verdict of the run is not the verdict of what was stored: a defect of ours, never a result."""


class LimitReached(Exception):
    """A comparison took longer than it may; ``stage`` is where it was."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(reason)
        self.stage = stage


class Run(NamedTuple):
    """A comparison at work: which, as whom what is said of it is written, and who hears how it gets on."""

    comparison_id: str
    plan: Plan
    holder: Holder
    progress: EventProgress


class Measuring:
    """Runs comparisons in this process.

    Args:
        store: Where records go.
        tools: How engines are started and prompts made.
        job_s: Longest time of a comparison.
        stall_s: A comparison that reports no progress for so long has hung.
    """

    def __init__(self, store: Store, tools: Tools, *, job_s: float, stall_s: float) -> None:
        self._store = store
        self._tools = tools
        self._job_s = job_s
        self._stall_s = stall_s

    async def measure(self, stored: Stored, holder: Holder) -> Concluded:
        """Measure within the limits, then judge what is stored: a verdict rests on nothing that is not.

        Raises:
            EngineFault: An engine did not do what was asked.
            LimitReached: It took too long.
            LeaseLost: Somebody else works on it by now.
        """

        async def all_of_it(run: Run) -> Verdict:
            seen = await self._in_world(run, lambda prompts, world: run_comparison(run.plan, prompts, world))
            await stored_now(lambda: self._store.comparisons.judge(stored.id, holder))
            verdict = await read_once_possible(lambda: judge(self._store.records.load(stored.id), run.plan))
            if canonical_json(verdict) != canonical_json(seen):
                raise VerdictMismatch("the stored records give another verdict than the run did; nothing was concluded")
            return verdict

        return concluded(await self._within_limits(stored, holder, all_of_it))

    async def measure_pair(self, stored: Stored, holder: Holder, pair: int, known: int) -> None:
        """Measure one launch pair, whose halves are those that the first ``known`` pairs leave open. Raises the same.

        Others may be measured elsewhere at the same time; nothing is judged.
        """

        async def one(run: Run) -> None:
            found = await read_once_possible(lambda: self._store.records.load(stored.id))
            before = of_first_pairs(found, known)
            verdict = await asyncio.to_thread(judge, before, run.plan)

            async def in_world(prompts: Sequence[AnyPrompt], world: World) -> None:
                await run_pair(run.plan, prompts, pair, world, verdict=verdict, known=known)

            await self._in_world(run, in_world)

        await self._within_limits(stored, holder, one)

    async def _within_limits(self, stored: Stored, holder: Holder, work: Callable[[Run], Awaitable[T]]) -> T:
        logs.comparison.set(stored.id)
        log.info("measuring %s", stored.model)
        progress: EventProgress | None = None
        job = asyncio.timeout(self._job_s)
        stall = asyncio.timeout(self._stall_s)

        def got_on() -> None:
            if not (stall.expired() or job.expired()):
                stall.reschedule(asyncio.get_running_loop().time() + self._stall_s)

        try:
            async with job, stall:
                plan = Plan.model_validate_json(stored.plan)
                progress = EventProgress(
                    self._store.events, stored.id, self._tools.clock, got_on, owner=holder, plan=plan
                )
                return await work(Run(stored.id, plan, holder, progress))
        except TimeoutError as late:
            stage = progress.stage if progress else ""
            if stall.expired():
                raise LimitReached(stage, f"no progress for {self._stall_s:g} s") from late
            if job.expired():
                raise LimitReached(stage, f"not done within {self._job_s:g} s") from late
            raise

    async def _in_world(self, run: Run, work: Callable[[Sequence[AnyPrompt], World], Awaitable[T]]) -> T:
        """Do it with engines, clock and records; whatever ends it, what was measured is stored."""
        recorder = await read_once_possible(
            lambda: StoredRecorder(self._store.records, run.comparison_id, owner=run.holder)
        )
        prompts = await asyncio.to_thread(self._tools.prompts, run.plan)
        launcher = self._tools.launcher(run.comparison_id, run.plan, recorder)
        world = World(launcher, self._tools.clock, recorder, run.progress, run.progress.judged)
        try:
            try:
                done = await work(prompts, world)
            finally:
                if isinstance(launcher, Closing):
                    await launcher.close()
            await asyncio.to_thread(run.progress.flush)
            await asyncio.to_thread(recorder.flush)
        except BaseException as error:
            # But an order to end waits for no disk that stays full.
            patience_s = LAST_WRITES_S if isinstance(error, asyncio.CancelledError) else None
            await to_the_end(self._last_writes(run.progress, recorder, patience_s))
            raise
        return done

    async def _last_writes(self, progress: EventProgress, recorder: StoredRecorder, patience_s: float | None) -> None:
        await asyncio.to_thread(progress.flush)
        try:
            await asyncio.to_thread(recorder.flush, patience_s)
        except StorageUnavailable as unavailable:
            log.error("records are lost: %s", unavailable.detail)


def concluded(verdict: Verdict) -> Concluded:
    """A verdict as it is stored."""
    return Concluded(canonical_json(verdict), verdict.overall.word)


async def stored_now(write: Callable[[], None]) -> None:
    """Write, and try again for as long as the database is unavailable."""
    while True:
        try:
            # In the event loop: what a thread has begun goes on behind the back of whoever cancels this.
            write()
        except StorageUnavailable as unavailable:
            log.warning("%s", unavailable.detail)
            await asyncio.sleep(RETRY_S)
        else:
            return


async def read_once_possible(read: Callable[[], T]) -> T:
    """Read in a thread, and try again for as long as the database is unavailable; the caller's limits end that."""
    while True:
        try:
            return await asyncio.to_thread(read)
        except StorageUnavailable as unavailable:
            log.warning("%s", unavailable.detail)
            await asyncio.sleep(RETRY_S)
