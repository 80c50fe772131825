"""Starts launch pairs of SGLang engines and ends them whole: ``equipoise_evals.ports.Launcher``.

It owns the order of an engine's life: ports, spawn, readiness, attestation, stop. What is measured in between is the
experiment's.
"""

import asyncio
import logging
import os
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from equipoise_evals.model import Plan, Role
from equipoise_evals.model.records import StopRecord
from equipoise_evals.ports import Engine, EngineFault, Recorder
from equipoise_service.engines import logs, readiness
from equipoise_service.engines.client import EngineClient
from equipoise_service.engines.engine import Launch, SGLangEngine
from equipoise_service.engines.environment import (
    EngineEnvironment,
    EngineFiles,
    Start,
    engine_command,
    process_environment,
)
from equipoise_service.engines.limits import Limits
from equipoise_service.engines.ports import PortChooser
from equipoise_service.engines.process import ProcessTree

log = logging.getLogger(__name__)

MEMORY_TAKEN = "Memory pool end."
"""SGLang's line once the KV pool is allocated."""
MEMORY_POLL_S = 0.2
START_ATTEMPTS = 3
"""Starts of one engine when a port is taken between choice and bind."""


class SGLangLauncher:
    """Launches pairs; one launcher serves one comparison at a time.

    Args:
        environments: Engine environments by the name that an ``ArmSpec`` uses.
        recorder: Gets a ``StopRecord`` for every engine that was started.
        work_dir: Folder for logs, step logs and traces, one folder below it per start.
        limits: Time limits.

    Attributes:
        ports: Chooses the engines' ports.
    """

    def __init__(
        self,
        environments: Mapping[str, EngineEnvironment],
        recorder: Recorder,
        work_dir: Path,
        limits: Limits | None = None,
    ) -> None:
        self._environments = environments
        self._recorder = recorder
        self._work_dir = work_dir.resolve()
        self._limits = limits or Limits()
        self.ports = PortChooser()
        self._leftovers: list[psutil.Process] = []

    @asynccontextmanager
    async def launch_pair(self, plan: Plan, pair: int, order: tuple[Role, Role]) -> AsyncIterator[dict[Role, Engine]]:
        """Start both engines in ``order``, one after the other; both are gone when the context is left.

        On a GPU the second is started once the first has taken its memory: SGLang sizes a KV pool by what is free at
        the time, and most of a start comes after that.

        Raises:
            EngineFault: An engine did not start, did not attest, or its KV pool differs from the other's.
        """
        running: list[SGLangEngine] = []
        try:
            async with _together() as start:
                for position, role in enumerate(order):
                    started = start(self._start(plan, pair, role, position, running))
                    await _memory_taken(started, running)
            await readiness.require_equal_pools(running)
            engines: dict[Role, Engine] = {engine.role: engine for engine in running}
            yield engines
        finally:
            await _to_the_end(self._stop_all(running))

    async def _start(self, plan: Plan, pair: int, role: Role, position: int, running: list[SGLangEngine]) -> None:
        """Start one engine until it is ready and attested, with new ports if its own were taken meanwhile."""
        self._require_nothing_left(role)
        for attempt in range(1, START_ATTEMPTS + 1):
            engine = await self._spawn(plan, pair, role, position, attempt)
            running.append(engine)
            try:
                await readiness.until_ready(engine, self._limits)
                await engine.attest()
                return
            except readiness.PortTaken as taken:
                if attempt == START_ATTEMPTS:
                    raise
                log.warning("arm %s, attempt %d: %s; starting again with new ports", role, attempt, taken.reason)
                running.remove(engine)
                await _to_the_end(self._stop_all([engine]))

    async def _spawn(self, plan: Plan, pair: int, role: Role, position: int, attempt: int) -> SGLangEngine:
        arm = plan.arms.of(role)
        environment = self._environments.get(arm.engine)
        if environment is None:
            known = ", ".join(sorted(self._environments))
            raise EngineFault(role, "start", f"no engine environment is called {arm.engine!r}; there are: {known}")
        folder = self._work_dir / f"pair-{pair:03d}-{role}-{attempt}-{uuid.uuid4().hex[:8]}"
        folder.mkdir(parents=True)
        files = EngineFiles(log=folder / "engine.log", steps=folder / "steps.jsonl", traces=folder / "traces")
        start = Start(f"eq-{uuid.uuid4().hex}", self.ports.choose(), files, position)
        command = engine_command(environment, arm, plan.model, start)
        launch = Launch(
            pair,
            role,
            arm,
            plan.model,
            environment.device,
            start,
            command,
            datetime.now(UTC).isoformat("T", "milliseconds"),
        )
        tree = await _never_lost(
            ProcessTree.spawn(
                command.argv,
                process_environment(command, os.environ),
                start.launch_id,
                files.log,
                grace_s=self._limits.stop_grace_s,
            )
        )
        client = EngineClient(start.ports.http, request_s=self._limits.request_s)
        return SGLangEngine(launch, tree, client, self._limits)

    async def _stop_all(self, engines: list[SGLangEngine]) -> None:
        await asyncio.gather(*(self._stop(engine) for engine in engines))

    async def _stop(self, engine: SGLangEngine) -> None:
        await engine.client.close()
        stopped = await engine.tree.stop(engine.launch.owned_ports)
        self.ports.give_back(engine.launch.start.ports)
        self._leftovers += engine.tree.members()
        for leftover in stopped.leftovers:
            log.error("arm %s left %s behind", engine.role, leftover)
        self._recorder.append(
            StopRecord(
                pair=engine.launch.pair,
                role=engine.role,
                held_s=stopped.held_s,
                clean=not stopped.leftovers,
                leftovers=stopped.leftovers,
            )
        )

    def _require_nothing_left(self, role: Role) -> None:
        self._leftovers = [process for process in self._leftovers if process.is_running()]
        if self._leftovers:
            pids = ", ".join(str(process.pid) for process in self._leftovers)
            raise EngineFault(role, "start", f"processes of an earlier engine still run: {pids}; end them first")


@asynccontextmanager
async def _together() -> AsyncIterator[Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]]:
    """Run work beside each other and wait for all of it; the first failure cancels the rest and is raised alone."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group.create_task
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures.exceptions[0].__cause__


async def _memory_taken(started: "asyncio.Task[None]", running: list[SGLangEngine]) -> None:
    """Wait until the newest engine on a GPU has its KV pool, by its log; any other until it has started or failed.

    On a CPU two starts at once would only share its few cores.
    """
    while not started.done():
        newest = running[-1] if running else None
        if newest and newest.launch.device == "cuda" and logs.mentions(newest.tree.log, MEMORY_TAKEN):
            return
        await asyncio.wait({started}, timeout=MEMORY_POLL_S)


async def _never_lost(spawn: Coroutine[Any, Any, ProcessTree]) -> ProcessTree:
    """Wait for a spawn; a process that appears although this task is cancelled meanwhile is ended again."""
    task = asyncio.ensure_future(spawn)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if task.exception() is None:
            await task.result().stop()
        raise


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish ``work`` even if this task is cancelled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
