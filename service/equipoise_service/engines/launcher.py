"""Starts launch pairs of SGLang engines and ends them whole: ``equipoise_evals.ports.Launcher``.

It owns the order of an engine's life: ports, spawn, readiness, attestation, stop. What is measured in between is the
experiment's.
"""

import asyncio
import contextlib
import logging
import os
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from equipoise_evals.decode.schedule import launch_order
from equipoise_evals.model import Plan, Role
from equipoise_evals.model.records import StopRecord
from equipoise_evals.ports import Engine, EngineFault, Recorder
from equipoise_service.engines import logs, readiness
from equipoise_service.engines.ahead import Ahead, following
from equipoise_service.engines.client import EngineClient
from equipoise_service.engines.device import Device, DeviceUnreachable, DeviceUse, not_ours, until_given_back
from equipoise_service.engines.engine import Launch, SGLangEngine
from equipoise_service.engines.environment import (
    EngineEnvironment,
    EngineFiles,
    Start,
    engine_command,
    process_environment,
)
from equipoise_service.engines.leftovers import Leftovers
from equipoise_service.engines.limits import Limits
from equipoise_service.engines.placing import Place, devices_of
from equipoise_service.engines.ports import PortChooser
from equipoise_service.engines.process import KILL_WAIT_S, ProcessTree, Stopped
from equipoise_service.engines.stages import MEMORY_TAKEN
from equipoise_service.tasks import all_of, to_the_end

log = logging.getLogger(__name__)

MEMORY_POLL_S = 0.2
START_ATTEMPTS = 3
"""Starts of one engine when a port is taken between choice and bind."""
Starter = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
"""Begins work beside other work."""


def files_of(pair: int) -> str:
    """How the names of everything begin that a launch pair keeps in its comparison's folder."""
    return f"pair-{pair:03d}-"


class SGLangLauncher:
    """Launches pairs; one launcher serves one comparison at a time.

    Args:
        environments: Engine environments by the name that an ``ArmSpec`` uses.
        recorder: Gets a ``StopRecord`` for every engine that was started.
        work_dir: Folder for logs, step logs and traces, one folder below it per start.
        limits: Time limits.
        device: The device whose memory engines take, where it can be asked.
        leftovers: What earlier engines of this service left behind; its own if None.
        place: Where engines run; wherever the service does if None.
        imports_ahead: Engines of later launches, at most, that import beside one of now where environments overlap. The
            one that follows within the same pair always does.

    Attributes:
        ports: Chooses the engines' ports.
    """

    def __init__(
        self,
        environments: Mapping[str, EngineEnvironment],
        recorder: Recorder,
        work_dir: Path,
        limits: Limits | None = None,
        *,
        device: Device | None = None,
        leftovers: Leftovers | None = None,
        place: Place | None = None,
        imports_ahead: int = 0,
    ) -> None:
        self._environments = environments
        self._recorder = recorder
        self._work_dir = work_dir.resolve()
        self._limits = limits or Limits()
        self.ports = PortChooser()
        self._device = device
        self._leftovers = leftovers or Leftovers()
        self._place = place or Place()
        self._pools = readiness.Pools()
        self._ahead = Ahead()
        self._imports_ahead = imports_ahead

    @asynccontextmanager
    async def launch_pair(self, plan: Plan, pair: int, order: tuple[Role, ...]) -> AsyncIterator[dict[Role, Engine]]:
        """Start the engines of ``order``, one after the other; they are gone when the context is left.

        On a GPU the second takes no memory before the first has its own, since SGLang sizes a KV pool by what is free
        at the time: it is started then, or imports beside the first and waits where the environment ``overlaps``. There
        engines of later launches, too, import beside this one where it has to import itself, and wait for their turn.

        Raises:
            EngineFault: An engine did not start, did not attest, or its KV pool differs from the other's.
        """
        try:
            async with self._launched(plan, pair, order) as engines:
                yield engines
        except BaseException:  # cancelled, too: nobody will come for those that imported ahead
            await self.close()
            raise

    async def close(self) -> None:
        """End the engines that imported ahead and whose turn does not come any more; they were never launched."""
        if unused := self._ahead.dismissed():
            await to_the_end(self._end_unused(unused))

    @asynccontextmanager
    async def _launched(self, plan: Plan, pair: int, order: tuple[Role, ...]) -> AsyncIterator[dict[Role, Engine]]:
        running: list[SGLangEngine] = []
        await self._leftovers.of_an_earlier_service(self._limits.stop_grace_s + KILL_WAIT_S)
        try:
            before = await self._device_use()
        except DeviceUnreachable as unreachable:
            raise EngineFault(
                order[0], "start", f"the device cannot be asked what it is used for: {unreachable}"
            ) from unreachable
        foreign = await asyncio.to_thread(not_ours, set(before.by_pid)) if before else []
        if foreign:
            log.warning("launch pair %d starts beside other processes on the device: %s", pair, foreign)
        try:
            async with _together() as start:
                if self._overlaps(plan):
                    self._start_beside_each_other(plan, pair, order, running, start)
                else:
                    first = start(self._start(plan, pair, order[0], order, running))
                    for role in order[1:]:
                        await _memory_taken(first, running)
                        start(self._start(plan, pair, role, order, running))
            running.sort(key=lambda engine: engine.launch.start.position)
            for engine in running:
                engine.launch.foreign_pids = tuple(foreign)
            await self._pools.require_equal(pair, running)
            engines: dict[Role, Engine] = {engine.role: engine for engine in running}
            yield engines
        finally:
            await to_the_end(self._stop_all(running, before))

    def _start_beside_each_other(
        self, plan: Plan, pair: int, order: tuple[Role, ...], running: list[SGLangEngine], start: Starter
    ) -> None:
        """Start them all at once; each but the first waits at its gate until the first has its memory."""
        waiting = {role: self._ahead.called(pair, role) for role in order}
        running += filter(None, waiting.values())
        if not any(waiting.values()):
            start(self._import_ahead(plan, following(plan, pair, order, self._imports_ahead)))
        first = start(self._start(plan, pair, order[0], order, running, waiting=waiting[order[0]]))
        if (engine := waiting[order[0]]) is not None:
            engine.launch.start.files.gate.touch()
        for role in order[1:]:
            engine = waiting[role]
            gate = self._gate(pair) if engine is None else engine.launch.start.files.gate
            start(self._start(plan, pair, role, order, running, gate=gate, waiting=engine))
            start(_open(gate, first, running))

    def _overlaps(self, plan: Plan) -> bool:
        found = (self._environments.get(arm.engine) for arm in (plan.arms.baseline, plan.arms.candidate))
        return all(environment is not None and environment.overlaps for environment in found)

    def _gate(self, pair: int) -> Path:
        return self._work_dir / f"{files_of(pair)}{uuid.uuid4().hex[:8]}.gate"

    async def _import_ahead(self, plan: Plan, coming: Iterable[tuple[int, Role]]) -> None:
        """Let engines of later launches import until each is at its gate: imports beside blocks would disturb them."""
        for pair, role in coming:
            await self._require_nothing_left(role)
            self._ahead.wait(await self._spawn(plan, pair, role, (role,), 1, gate=self._gate(pair)))
        await self._ahead.imported(self._limits.start_s)

    async def _start(
        self,
        plan: Plan,
        pair: int,
        role: Role,
        order: tuple[Role, ...],
        running: list[SGLangEngine],
        *,
        gate: Path | None = None,
        waiting: SGLangEngine | None = None,
    ) -> None:
        """Start one engine of ``order`` until it is ready and attested, with new ports if its own were taken meanwhile.

        The second of a pair has a gate. One that was ``waiting``, and runs already, goes on from there.
        """
        await self._require_nothing_left(role)
        for attempt in range(1, START_ATTEMPTS + 1):
            engine = waiting if attempt == 1 else None
            if engine is None:
                engine = await self._spawn(plan, pair, role, order, attempt, gate=gate)
                running.append(engine)
            try:
                await readiness.until_ready(engine, self._limits)
                await self._on_device([engine])
                await engine.attest()
                return
            except readiness.PortTaken as taken:
                if attempt == START_ATTEMPTS:
                    raise
                log.warning("arm %s, attempt %d: %s; starting again with new ports", role, attempt, taken.reason)
                running.remove(engine)
                await to_the_end(self._stop_all([engine], None))

    async def _spawn(
        self, plan: Plan, pair: int, role: Role, order: tuple[Role, ...], attempt: int, *, gate: Path | None
    ) -> SGLangEngine:
        try:
            return await self._spawned(plan, pair, role, order, attempt, gate=gate)
        except OSError as refused:  # a full disk, above all
            raise EngineFault(role, "start", f"cannot be started: {refused}") from refused

    async def _spawned(
        self, plan: Plan, pair: int, role: Role, order: tuple[Role, ...], attempt: int, *, gate: Path | None
    ) -> SGLangEngine:
        arm = plan.arms.of(role)
        environment = self._environments.get(arm.engine)
        if environment is None:
            known = ", ".join(sorted(self._environments))
            raise EngineFault(role, "start", f"no engine environment is called {arm.engine!r}; there are: {known}")
        folder = self._work_dir / f"{files_of(pair)}{role}-{attempt}-{uuid.uuid4().hex[:8]}"
        folder.mkdir(parents=True)
        files = EngineFiles(folder / "engine.log", folder / "steps.jsonl", folder / "traces", gate or folder)
        start = Start(
            f"eq-{uuid.uuid4().hex}",
            self.ports.choose(),
            files,
            (order if len(order) > 1 else launch_order(plan, pair)).index(role),
            alone=plan.layout != "co_resident",
            devices=devices_of(plan, pair, role, self._place.devices),
        )
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
            node=self._place.node,
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

    async def _stop_all(self, engines: list[SGLangEngine], before: DeviceUse | None) -> None:
        """End these engines, and wait for the memory that the device had given them since ``before``."""
        on_device = await self._on_device(engines)
        stopped = await all_of(self._stop(engine) for engine in engines)
        memory: list[str] = []
        if self._device is not None and before is not None:
            memory = await until_given_back(self._device, before, on_device, self._limits.memory_s)
            if memory:
                self._leftovers.memory(self._device, before, on_device)
        for engine, end in zip(engines, stopped, strict=True):
            self._record(engine, end, memory)

    async def _end_unused(self, engines: Sequence[SGLangEngine]) -> None:
        stopped = await all_of(self._stop(engine) for engine in engines)
        for engine, end in zip(engines, stopped, strict=True):
            for leftover in end.leftovers:
                log.error("arm %s, which imported ahead, left behind: %s", engine.role, leftover)

    async def _stop(self, engine: SGLangEngine) -> Stopped:
        await engine.client.close()
        stopped = await engine.tree.stop(engine.launch.owned_ports)
        self.ports.give_back(engine.launch.start.ports)
        self._leftovers.processes(engine.tree.members())
        return stopped

    def _record(self, engine: SGLangEngine, stopped: Stopped, memory: list[str]) -> None:
        leftovers = (*stopped.leftovers, *memory)
        for leftover in leftovers:
            log.error("arm %s left behind: %s", engine.role, leftover)
        self._recorder.append(
            StopRecord(
                pair=engine.launch.pair,
                role=engine.role,
                held_s=max(0.0, stopped.held_s - engine.launch.ahead_s),
                clean=not leftovers,
                leftovers=leftovers,
            )
        )

    async def _device_use(self) -> DeviceUse | None:
        return None if self._device is None else await asyncio.to_thread(self._device.use)

    async def _on_device(self, engines: list[SGLangEngine]) -> set[int]:
        """Processes that these engines have, or had when they were ready, on the device, as far as it can be asked."""
        with contextlib.suppress(DeviceUnreachable):
            if use := await self._device_use():
                for engine in engines:
                    engine.launch.device_pids |= {process.pid for process in engine.tree.members()} & set(use.by_pid)
        return set().union(*(engine.launch.device_pids for engine in engines))

    async def _require_nothing_left(self, role: Role) -> None:
        left = await asyncio.to_thread(self._leftovers.still_there)
        if left:
            raise EngineFault(role, "start", f"{'; '.join(left)}; end it first, `equipoise doctor` shows what is left")


@asynccontextmanager
async def _together() -> AsyncIterator[Starter]:
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


async def _open(gate: Path, first: "asyncio.Task[None]", running: list[SGLangEngine]) -> None:
    """Open the second engine's gate once the first has its KV pool, by its log, or has started without saying so."""
    while not first.done():
        if any(e.launch.start.position == 0 and logs.mentions(e.tree.log, MEMORY_TAKEN) for e in running):
            break
        await asyncio.wait({first}, timeout=MEMORY_POLL_S)
    gate.parent.mkdir(parents=True, exist_ok=True)
    gate.touch()


async def _never_lost(spawn: Coroutine[Any, Any, ProcessTree]) -> ProcessTree:
    """Wait for a spawn; a process that appears although this task is cancelled meanwhile is ended again."""
    task = asyncio.ensure_future(spawn)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await to_the_end(_ended_again(task))
        raise


async def _ended_again(spawn: "asyncio.Task[ProcessTree]") -> None:
    await asyncio.wait({spawn})
    if spawn.exception() is None:
        await spawn.result().stop()
