"""What runs on a node: one comparison, from its id to its verdict, in a process of its own."""

import asyncio
import logging
from typing import NamedTuple

import ray

from equipoise_evals.ports import EngineFault
from equipoise_service import logs
from equipoise_service.engines.launcher import files_of
from equipoise_service.engines.leftovers import Leftovers
from equipoise_service.errors import EquipoiseError
from equipoise_service.machine import Machine
from equipoise_service.measuring import Concluded, LimitReached, Measuring, Tools, read_once_possible
from equipoise_service.questions import prompts_of
from equipoise_service.settings import Settings
from equipoise_service.store import Holder, LeaseLost, Store
from equipoise_service.worker import stored_error

log = logging.getLogger(__name__)


class OnePair(NamedTuple):
    """A launch pair that is measured alone, and how many first pairs were known when that was decided."""

    pair: int
    known: int


class Job(NamedTuple):
    """What an actor is told: which comparison, as whom it writes about it, and under which settings.

    All of it, to its verdict, unless ``only`` one launch pair is named.
    """

    comparison_id: str
    holder: Holder
    settings: Settings
    only: OnePair | None = None


class Answer(NamedTuple):
    """How it ended: with a verdict, or with an error as JSON of ``StoredError``; texts alone, so that they travel.

    With neither where one pair was asked for. ``expected`` errors are no defect of ours.
    """

    concluded: Concluded | None
    error: str | None = None
    expected: bool = True


class ComparisonActor:
    """Measures one comparison at a time. Its node is recorded with every launch."""

    async def node(self) -> str:
        """Where it runs; once it answers, everything is imported."""
        return node_name()

    async def measure(self, job: Job) -> Answer:
        """Measure it; cancelled, it ends its engines first."""
        logs.configure(job.settings.log_level, job.settings.log_format)
        try:
            return Answer(await measured(job, node_name()))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            expected = isinstance(error, EngineFault | EquipoiseError | LimitReached | LeaseLost)
            log.log(logging.INFO if expected else logging.ERROR, "failed: %s", error, exc_info=not expected)
            return Answer(None, stored_error(error).model_dump_json(), expected)


async def measured(job: Job, node: str) -> Concluded | None:
    """The verdict of a comparison that this process measures, into the database of its service; None of one pair."""
    settings = job.settings
    store = Store.open(settings.url_of_database, migrated=False)
    try:
        stored = await read_once_possible(lambda: store.comparisons.get(job.comparison_id))
        if stored is None:
            raise LeaseLost(job.comparison_id)
        # Engines of other comparisons and pairs may run on this very machine, and are no leftovers.
        of = files_of(job.only.pair) if job.only else ""
        leftovers = Leftovers((settings.engine_logs / job.comparison_id).resolve(), of)
        machine = Machine(settings, node, leftovers)
        tools = Tools(machine.launcher, lambda plan: prompts_of(plan, machine))
        measuring = Measuring(store, tools, job_s=settings.job_limit_s, stall_s=settings.stall_limit_s)
        if job.only is None:
            return await measuring.measure(stored, job.holder)
        await measuring.measure_pair(stored, job.holder, *job.only)
        return None
    finally:
        store.database.close()


def node_name() -> str:
    """This node: its address, and the beginning of its id in the cluster, which tells nodes of one machine apart."""
    node_id = ray.get_runtime_context().get_node_id()
    return f"{ray.util.get_node_ip_address()} {node_id[:12]}"
