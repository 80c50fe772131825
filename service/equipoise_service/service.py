"""The running service: its store, its worker and what requests need of them, wired once and handed to every route."""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from equipoise_evals.model import Plan
from equipoise_service.bell import Bell
from equipoise_service.chosen_blocks import with_chosen_blocks
from equipoise_service.errors import SettingsError, StorageUnavailable
from equipoise_service.launch_history import with_history
from equipoise_service.looks import Looks
from equipoise_service.machine import Machine
from equipoise_service.measuring import Measuring, Tools
from equipoise_service.metrics import Metrics
from equipoise_service.requests import CompareRequest
from equipoise_service.settings import Settings, variable_of
from equipoise_service.slots import Slots
from equipoise_service.store import Lease, Store
from equipoise_service.tasks import cancelled
from equipoise_service.webhooks import Sender
from equipoise_service.worker import Executor, Rules, Worker

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Service:
    """What a route may use.

    Attributes:
        settings: The operator's decisions.
        store: The database.
        bell: Rings after every write.
        looks: What listeners to events are told.
        worker: Its slots, for ``cancel``.
        working: The slots' life, where there are any; done means that nothing is taken from the queue any more.
        resolve: Makes a plan of a request, or raises a ``Refusal``.
        machine: What this machine is and can start.
        sending: The life of what sends webhooks.
        metrics: What ``/metrics`` tells.
        accepting: Held while a comparison is counted and queued, so that no two take the last place.
    """

    settings: Settings
    store: Store
    bell: Bell
    looks: Looks
    worker: Slots
    working: "asyncio.Task[object]"
    resolve: Callable[[CompareRequest], Plan]
    machine: Machine
    sending: "asyncio.Task[None]"
    metrics: Metrics
    accepting: threading.Lock = field(default_factory=threading.Lock)

    async def cancel(self, comparison_id: str) -> None:
        """Cancel a comparison; the wish is stored first, so that a service that recovers one at work knows of it.

        Raises:
            ComparisonNotFound: No comparison has this id.
            AlreadyFinished: It has ended.
        """
        with contextlib.suppress(StorageUnavailable):  # this service cancels it all the same
            await asyncio.to_thread(self.store.comparisons.request_cancel, comparison_id)
        self.worker.cancel(comparison_id)


@contextlib.asynccontextmanager
async def running(
    machine: Machine,
    resolve: Callable[[CompareRequest], Plan],
    tools: Tools,
    *,
    resumes: bool = True,
    lease_s: float = 60.0,
) -> AsyncIterator[Service]:
    """Open the store, settle what an earlier service left behind, and work until the context is left.

    Args:
        machine: What requests are resolved against; with the operator's decisions.
        resolve: Makes a plan of a request.
        tools: For the worker.
        resumes: Whether comparisons that an end of a service cut short are gone on with.
        lease_s: How long a comparison without a heartbeat is still this service's.
    """
    settings = machine.settings
    store = Store.open(settings.url_of_database)
    cluster = contextlib.ExitStack()
    try:
        executor = executor_of(machine, store, tools, cluster)
        bell = Bell()
        store.database.listen(bell.ring)
        rules = [rules_of(settings, slot, resumes=resumes, lease_s=lease_s) for slot in range(slots_of(settings))]
        worker = Slots([Worker(store, executor, bell, of_slot) for of_slot in rules])
        if settings.worker:
            worker.recover()
        working = asyncio.create_task(worker.run() if settings.worker else asyncio.Event().wait(), name="worker")
        metrics = Metrics(store, settings.data)
        rung_at_ends = Bell()
        store.comparisons.on_end(lambda _: rung_at_ends.ring())
        sender = Sender(store, rung_at_ends)

        def planned(request: CompareRequest) -> Plan:
            plan = resolve(request)
            if settings.choose_blocks and request.steps_per_block is None and request.quads is None:
                plan = with_chosen_blocks(plan, store)
            # Past launches of this host say nothing of the node on which a cluster runs the next ones.
            days = settings.history_days if settings.executor == "local" else 0
            return with_history(plan, store, machine.sglang, days, machine.gpu())

        sending = asyncio.create_task(sender.run(), name="webhooks")
        async with contextlib.AsyncExitStack() as ends:  # each of them, also where one before it broke
            ends.push_async_callback(sender.flush)
            ends.push_async_callback(cancelled, sending)
            ends.push_async_callback(cancelled, working)
            yield Service(settings, store, bell, Looks(store), worker, working, planned, machine, sending, metrics)
    finally:
        cluster.close()
        store.database.close()


def executor_of(machine: Machine, store: Store, tools: Tools, cluster: contextlib.ExitStack) -> Executor:
    """Where comparisons are measured: in this process, or on a cluster that is left when ``cluster`` is closed.

    Raises:
        SettingsError: Ray is asked for and is not installed, or its cluster is not there.
    """
    settings = machine.settings
    here = Measuring(store, tools, job_s=settings.job_limit_s, stall_s=settings.stall_limit_s)
    if settings.executor == "local" or not settings.worker:
        return here
    try:
        from equipoise_service.cluster.executor import RayExecutor  # noqa: PLC0415 - an extra, and slow
        from equipoise_service.cluster.places import connected  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        why = f"needs the extra: pip install 'equipoise-service[ray]' ({missing})"
        raise SettingsError(variable_of("executor"), why) from missing
    try:
        cluster.enter_context(connected(settings.ray_address))
    except ConnectionError as nowhere:
        raise SettingsError(variable_of("ray_address"), f"finds no cluster: {nowhere}") from nowhere
    return RayExecutor(settings, machine.device, store, here)


def slots_of(settings: Settings) -> int:
    """Comparisons at work at once: one on this machine, where a second would disturb it."""
    return settings.slots if settings.executor == "ray" else 1


def rules_of(settings: Settings, slot: int, *, resumes: bool, lease_s: float) -> Rules:
    """How a worker of this service holds what it works on."""
    owner = f"{socket.gethostname()}:{settings.data.expanduser().resolve()}" + (f"#{slot}" if slot else "")
    return Rules(Lease(owner, lease_s, settings.job_limit_s), resumes=resumes)
