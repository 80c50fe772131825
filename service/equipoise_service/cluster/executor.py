"""Has a comparison measured at a place on a cluster, waits for its end, and says what became of it.

Both engines of a launch pair run on one node, for a place is on one. A node that dies takes the place along; the worker
then queues the comparison again, and whoever claims it goes on from the stored pairs.
"""

import asyncio
import logging

import ray
from ray.exceptions import RayActorError, RayError

from equipoise_evals.model import Plan
from equipoise_service.cluster.actor import Answer, Job, OnePair
from equipoise_service.cluster.apart import may_run_apart, measured_apart
from equipoise_service.cluster.places import (
    Bundle,
    Place,
    Places,
    amounts,
    nodes_now,
    resources,
    some_node_has,
    told,
)
from equipoise_service.engines.environment import Device
from equipoise_service.errors import StorageUnavailable
from equipoise_service.measuring import Concluded, LimitReached
from equipoise_service.settings import Settings
from equipoise_service.store import Holder, Store, Stored, StoredError
from equipoise_service.tasks import to_the_end
from equipoise_service.worker import Executor, MeasuredElsewhere, PlaceLost

log = logging.getLogger(__name__)

PLACE_ATTEMPTS, PAUSE_S = 20, 2.0
"""A cluster notices the death of a node within half a minute, and places on it until then."""
LOOK_S = 5.0
"""How often is looked whether any node has what a place waits for."""
ENDS_WITHIN_S = 60.0
"""A cancelled task ends its engines first; after so long its process is killed."""


class RayExecutor:
    """Satisfies ``equipoise_service.worker.Executor``.

    Args:
        settings: The operator's decisions; they go to the nodes as they are, without the token.
        device: What engines run on there.
        store: Where it is said that a comparison waits for a place, and of what was measured apart read.
        here: Measures what no node may: engines that run already are reached from this machine.
    """

    def __init__(self, settings: Settings, device: Device, store: Store, here: Executor) -> None:
        # On a GPU node the pool is what Ray gives a place, in its CUDA_VISIBLE_DEVICES.
        pool = () if device == "cuda" else settings.devices
        self._settings = settings.model_copy(update={"token": None, "device": device, "devices": pool})
        self._device = device
        self._store = store
        self._here = here
        self._places = Places()

    async def measure(self, stored: Stored, holder: Holder) -> Concluded:
        """Measure a comparison on some node that has room for it, waiting for one.

        Raises:
            PlaceLost: The node or the process there died.
            MeasuredElsewhere: It failed there.
            LimitReached: There was no room, or no answer, for longer than a comparison may take; or no node has what it
                needs.
        """
        # The process there keeps the limit itself; this is for one that no longer does anything.
        limit_s = self._settings.job_limit_s + ENDS_WITHIN_S
        try:
            async with asyncio.timeout(limit_s):
                return await self._measured(stored, holder)
        except TimeoutError as late:
            raise LimitReached("place", f"not done within {limit_s:g} s, the wait for a place included") from late

    async def _measured(self, stored: Stored, holder: Holder) -> Concluded:
        plan = Plan.model_validate_json(stored.plan)
        if plan.arms.attached:
            return await self._here.measure(stored, holder)
        most = self._settings.ray_pairs_at_once
        if most > 1 and may_run_apart(plan, self._device):

            async def one(only: OnePair) -> None:
                await self._at_place(Job(stored.id, holder, self._settings, only), plan)

            return await measured_apart(self._store, stored, holder, most, one)
        answer = await self._at_place(Job(stored.id, holder, self._settings), plan)
        assert answer.concluded is not None  # noqa: S101 - what ends without a verdict and without an error is one pair
        return answer.concluded

    async def _at_place(self, job: Job, plan: Plan) -> Answer:
        """Have it done at a place that has room, and keep the place if its process is well after that."""
        bundle = resources(plan, self._device, self._settings.ray_cpus)
        self._tell(job.comparison_id, f"asking the cluster for {amounts(bundle)}{_of_pair(job)}")
        place, whole = await self._place(bundle, job), False
        reply: ray.ObjectRef[Answer] = place.actor.measure.remote(job)
        waiting = asyncio.ensure_future(_answer_of(reply))
        try:
            # Shielded: Ray's own future is never cancelled, so that the end of the task can still be waited for.
            answer = await asyncio.shield(waiting)
            whole = True
        except asyncio.CancelledError:
            await to_the_end(ended(reply, waiting))
            raise
        except RayActorError as lost:
            raise PlaceLost(f"the node or the process that measured it was lost ({_short(lost)})") from lost
        except RayError as refused:
            error = StoredError(stage="place", reason=_short(refused), log_tail=str(refused)[-4000:])
            raise MeasuredElsewhere(error, expected=False) from refused
        finally:
            (self._places.keep if whole else self._places.give_back)(place)
        if answer.error is not None:
            raise MeasuredElsewhere(StoredError.model_validate_json(answer.error), expected=answer.expected)
        return answer

    async def _place(self, bundle: Bundle, job: Job) -> Place:
        """A place whose process answers; where it dies before that, as on a node that just did, another one."""
        comparison_id = job.comparison_id
        for attempt in range(1, PLACE_ATTEMPTS + 1):
            place, there = self._places.take(bundle, comparison_id), False
            try:
                node = await self._node_of(place)
                there = True
            except RayActorError as lost:
                if attempt == PLACE_ATTEMPTS:
                    raise PlaceLost(f"no node could be had ({_short(lost)})") from lost
                log.warning("comparison %s: a place was lost before its use: %s", comparison_id, _short(lost))
            finally:
                if not there:
                    self._places.give_back(place)
            if there:
                self._tell(comparison_id, f"on node {node}{_of_pair(job)}")
                return place
            await asyncio.sleep(PAUSE_S)
        raise AssertionError("the last attempt raises")

    async def _node_of(self, place: Place) -> str:
        """Where a place is, once there is room for it: busy nodes are waited for, and what no node has not for long."""
        limit_s, hopeless_s = self._settings.ray_place_limit_s, 0.0
        answer = asyncio.ensure_future(_node_of(place))
        try:
            while not (await asyncio.wait({answer}, timeout=min(LOOK_S, limit_s)))[0]:
                nodes = await asyncio.to_thread(nodes_now)
                hopeless_s = 0.0 if some_node_has(place.bundle, nodes) else hopeless_s + min(LOOK_S, limit_s)
                if hopeless_s >= limit_s:
                    raise LimitReached(
                        "place",
                        f"no node has {amounts(place.bundle)}, for {limit_s:g} s now; the cluster has {told(nodes)}",
                    )
            return answer.result()
        finally:
            answer.cancel()

    def _tell(self, comparison_id: str, detail: str) -> None:
        try:
            self._store.events.append(
                comparison_id, "progress", {"stage": "place", "done": 0, "total": 1, "detail": detail}
            )
        except StorageUnavailable as unavailable:
            log.warning("comparison %s: %s", comparison_id, unavailable.detail)


async def _node_of(place: Place) -> str:
    node: str = await place.actor.node.remote()
    return node


def _of_pair(job: Job) -> str:
    return f", launch pair {job.only.pair}" if job.only else ""


async def _answer_of(reply: "ray.ObjectRef[Answer]") -> Answer:
    answer: Answer = await reply
    return answer


async def ended(reply: "ray.ObjectRef[Answer]", waiting: "asyncio.Task[Answer]") -> None:
    """Order a task to end and wait until its engines are gone, but not for ever."""
    ray.cancel(reply)
    await asyncio.wait({waiting}, timeout=ENDS_WITHIN_S)
    if waiting.done() and not waiting.cancelled() and (end := waiting.exception()) is not None:
        log.info("a cancelled comparison has ended on its node: %s", _short(end))


def _short(error: BaseException) -> str:
    """The first line of a text that may hold a remote traceback."""
    return str(error).strip().partition("\n")[0]
