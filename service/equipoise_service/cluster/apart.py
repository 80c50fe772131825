"""One comparison on several nodes at once: launch pairs between two looks, each at a place of its own.

What a pair measures does not depend on where the others run, and nothing is decided before all of them are stored, so
records and verdict are those of pairs that were measured one after the other.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from equipoise_evals.experiment import finished_pairs, is_decided, of_first_pairs, pairs_at_once
from equipoise_evals.judge import judge
from equipoise_evals.model import Plan
from equipoise_service.cluster.actor import OnePair
from equipoise_service.engines.environment import Device
from equipoise_service.measuring import Concluded, concluded, read_once_possible, stored_now
from equipoise_service.progress import EventProgress
from equipoise_service.store import Holder, Store, Stored

log = logging.getLogger(__name__)


def may_run_apart(plan: Plan, device: Device) -> bool:
    """Whether pairs of a plan may run on different nodes: where none balances another, on GPUs of one kind."""
    return plan.pairs_to_balance == 1 and plan.pairs_max > 1 and (device != "cuda" or bool(plan.gpu_type))


async def measured_apart(
    store: Store,
    stored: Stored,
    holder: Holder,
    most: int,
    at_place: Callable[[OnePair], Awaitable[None]],
) -> Concluded:
    """Measure a comparison with up to ``most`` launch pairs at once, by ``at_place``, and judge what is stored.

    Pairs that are complete already stay. Raises what a pair raises, once the others have ended.
    """
    plan = Plan.model_validate_json(stored.plan)
    progress = EventProgress(store.events, stored.id, time.monotonic, owner=holder, plan=plan)
    records = await read_once_possible(lambda: store.records.load(stored.id))
    known = finished_pairs(records)
    verdict = await asyncio.to_thread(judge, of_first_pairs(records, known), plan)
    while known < plan.pairs_max and not (known and is_decided(verdict, plan, known)):
        pairs = pairs_at_once(records, plan, known, most)
        await together([at_place(OnePair(pair, known)) for pair in pairs])
        records = await read_once_possible(lambda: store.records.load(stored.id))
        known = max(pairs[-1], finished_pairs(records))
        verdict = await asyncio.to_thread(judge, records, plan)
        progress.judged(known, verdict)
    await asyncio.to_thread(progress.flush)
    await stored_now(lambda: store.comparisons.judge(stored.id, holder))
    return concluded(await asyncio.to_thread(judge, records, plan))


async def together(works: Sequence[Awaitable[None]]) -> None:
    """Wait for all; the first that fails ends the others, and its error is raised once they have ended."""

    async def of(work: Awaitable[None]) -> None:
        await work

    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(of(work))
    except BaseExceptionGroup as failed:
        for other in failed.exceptions[1:]:
            log.warning("beside it: %s", other)
        raise failed.exceptions[0] from None
