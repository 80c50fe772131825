"""When an engine counts as ready: it calls itself healthy, its port is its own, and it has generated for us.

``/health`` alone proves nothing, since it can be green in an engine that answers nothing; it is waited for because it
turns green after the engine's own warm-up requests, which would otherwise run into our first measurement. Waiting is
limited by progress: a first start compiles kernels for minutes, while a hung one writes nothing.
"""

import asyncio
import time
from collections.abc import Sequence

from equipoise_evals.model import SamplingPlan
from equipoise_evals.ports import EngineFault, RequestFailed
from equipoise_service.engines import logs, pinning
from equipoise_service.engines.engine import SGLangEngine
from equipoise_service.engines.limits import Limits
from equipoise_service.engines.ports import describe_owner, listeners
from equipoise_service.engines.stages import BEFORE_THE_GATE, StartStages

POLL_S = 0.1
PROBE_LIMIT_S = 30.0
PROBE = SamplingPlan(max_new_tokens=4, stop=(), ignore_eos=True)
"""Four tokens: one from the prefill and three decode steps, so that attestation can show decode calls."""


class PortTaken(EngineFault):
    """A port was taken between choice and bind; another start with other ports may work."""

    def __init__(self, engine: SGLangEngine, reason: str) -> None:
        super().__init__(engine.role, "start", reason, engine.tree.log_tail())


async def until_ready(engine: SGLangEngine, limits: Limits) -> None:
    """Wait for a real generation of ``engine`` and note how long each stage took.

    Raises:
        EngineFault: It died, hung, or did not generate; ``PortTaken`` if a foreign process has its port.
    """
    stages = StartStages(engine.tree.log)
    await _until_healthy(engine, limits, stages)
    ready_s = engine.since_start_s
    stages.look(ready_s)
    found = stages.durations_s(ready_s) | {"spawn_to_ready": ready_s}
    if engine.launch.ahead_s:  # these stages were over by then: how long each took is not known
        known = {name: seconds for name, seconds in found.items() if name not in BEFORE_THE_GATE}
        found = {"ahead": engine.launch.ahead_s, **known}
    engine.launch.stage_s |= found
    engine.launch.owned_ports = _own_ports(engine)
    began_s = time.monotonic()
    await _first_generation(engine, limits)
    engine.launch.stage_s["first_generation"] = time.monotonic() - began_s
    if engine.launch.device == "cpu":
        engine.launch.pinned_cpu = pinning.pin_scheduler(engine.tree.members())


class Pools:
    """The sizes of KV pools within a launch pair, whose engines may run one after the other."""

    def __init__(self) -> None:
        self._pair = 0
        self._sizes: dict[str, object] = {}

    async def require_equal(self, pair: int, engines: Sequence[SGLangEngine]) -> None:
        """Raise ``EngineFault`` unless all engines of the pair so far have KV pools of one size."""
        if pair != self._pair:
            self._pair, self._sizes = pair, {}
        for engine in engines:
            info = (await engine.attest()).server_info
            self._sizes[engine.role] = info.get("max_total_num_tokens")
        if len(set(map(str, self._sizes.values()))) > 1:
            raise engines[-1].fault(
                "start",
                f"the KV pools differ: {self._sizes} tokens; give both arms a --max-total-tokens that fits twice",
            )


async def _until_healthy(engine: SGLangEngine, limits: Limits, stages: StartStages) -> None:
    written, grew_s = 0, time.monotonic()
    while not await _is_healthy(engine):
        now_s = time.monotonic()
        stages.look(engine.since_start_s)
        size = logs.size(engine.tree.log)
        if size != written:  # a log that was rotated is shorter, and has grown
            written, grew_s = size, now_s
        if now_s - grew_s > limits.start_idle_s:
            raise engine.fault("start", f"not ready, and its log has not grown for {limits.start_idle_s:g} s")
        if engine.since_start_s > limits.start_s:
            raise engine.fault("start", f"not ready after {limits.start_s:g} s, though its log still grows")
        await asyncio.wait({engine.tree.exit}, timeout=POLL_S)


async def _is_healthy(engine: SGLangEngine) -> bool:
    try:
        async with asyncio.timeout(PROBE_LIMIT_S):
            await engine.while_alive("start", engine.client.health())
    except (RequestFailed, TimeoutError):
        return False
    except EngineFault as died:
        known = logs.known_reason(died.log_tail)
        if known is not None and known.name == "address_in_use":
            raise PortTaken(engine, died.reason) from died
        raise
    return True


def _own_ports(engine: SGLangEngine) -> tuple[int, ...]:
    """The engine's ports on which it listens; ``PortTaken`` if anybody else listens on one of them."""
    members = {process.pid for process in engine.tree.members()}
    found = []
    for port in engine.launch.start.ports:
        owners = set(listeners(port))
        if not owners <= members:
            owner = describe_owner(next(iter(owners - members)))
            raise PortTaken(
                engine,
                f"port {port}, chosen for arm {engine.role}, is used by {owner}, which is not part of its engine",
            )
        found += [port] if owners else []
    return tuple(found)


async def _first_generation(engine: SGLangEngine, limits: Limits) -> None:
    try:
        async with asyncio.timeout(limits.first_generation_s):
            await engine.generate("1 + 1 =", PROBE)
    except TimeoutError as late:
        raise engine.fault(
            "start", f"it calls itself healthy, but no generation came within {limits.first_generation_s:g} s"
        ) from late
    except RequestFailed as failed:
        raise engine.fault("start", f"it calls itself healthy, but its first generation failed: {failed}") from failed
    except EngineFault as died:
        # Its stage is that of an answer to a question; this one belongs to the start.
        raise EngineFault(died.role, "start", died.reason, died.log_tail) from died
