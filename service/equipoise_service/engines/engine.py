"""A running engine of one arm: its process tree and its client together, as the experiment's ``Engine``.

Every call ends at once when the process ends. Whether a failed request is the request's or the engine's is decided
here: an engine whose process is gone raises ``EngineFault``, anything else fails the request.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
from pydantic import JsonValue

from equipoise_evals.decode.stress import StressPhase, stress_profile
from equipoise_evals.model import ArmSpec, ModelRef, Role, SamplingPlan
from equipoise_evals.model.records import (
    LaunchRecord,
    PromptProbe,
    StressedPhase,
    StressRecord,
    TokenChoice,
    TreatmentRecord,
)
from equipoise_evals.ports import Asked, Decoded, EngineFault, Generation, RequestFailed
from equipoise_service.engines import logs, stress, trace
from equipoise_service.engines.attestation import (
    PACKAGES,
    AttestationError,
    Expected,
    attested,
    clock_cost,
    reported,
)
from equipoise_service.engines.backends import value_of
from equipoise_service.engines.client import EngineClient, EngineUnreachable
from equipoise_service.engines.cpu_load import CpuLoad
from equipoise_service.engines.environment import Device, EngineCommand, Start
from equipoise_service.engines.host import this_host
from equipoise_service.engines.limits import Limits
from equipoise_service.engines.process import ProcessTree
from equipoise_service.engines.steplog import StepLog, StepLogError, full_batch, prefills, rows_of
from equipoise_service.engines.streaming import token_by_token
from equipoise_service.engines.telemetry import Telemetry
from equipoise_service.engines.wire import JsonObject

T = TypeVar("T")
Prompts = Sequence[Sequence[int]]
"""Token ids, one sequence a request."""

DEATH_WAIT_S = 10.0
"""A broken connection is often the first sign of a death that the process table shows later: SGLang's main process
outlives a crashed scheduler by about 5 s."""
OBSERVERS: dict[Device, Callable[[str | None], Telemetry | CpuLoad]] = {
    "cuda": Telemetry,
    "cpu": lambda _: CpuLoad(),
}
"""Who watches a device, named as in ``CUDA_VISIBLE_DEVICES``, while a block decodes; nobody a simulated one."""
SPARE_STEPS = 4
"""Steps beyond those asked for, should a sequence join the batch a step late."""
PREFILL_SEEDS = 100_000
"""Seeds of one block's prefills; blocks of other seeds share none of their prompts."""
TRACE_PROMPT_TOKENS = 16
TRACE_SEED = 1
PROFILE_LEAD_TOKENS = 3
"""Tokens of every sequence before a trace begins, so that it covers decoding only."""
PROFILE_SPARE_STEPS: dict[Device, int] = {"cpu": 14, "cuda": 400, "simulated": 400}
"""Steps that may pass between the order to trace and its start; on a GPU one lasts a millisecond."""
TRACE_PATIENCE_S = 5.0
"""A trace that has not begun to be written by then may lack decode steps."""
LOWEST_TOKEN, TOKENS = 1000, 16_000
"""Random prompts use ordinary tokens, present in every vocabulary of at least 17,000 and away from the special ones."""


@dataclass
class Launch:
    """Everything known about one engine's start.

    ``owned_ports`` are those on which it was seen to listen itself, ``device_pids`` its processes that were seen on the
    device; only these can be left behind by it. ``foreign_pids`` were on the device before it, and are not ours.
    ``ahead_s`` is how long it had imported and waited before its turn came, which no other duration contains.
    """

    pair: int
    role: Role
    arm: ArmSpec
    model: ModelRef
    device: Device
    start: Start
    command: EngineCommand
    started_at: str
    stage_s: dict[str, float] = field(default_factory=dict)
    owned_ports: tuple[int, ...] = ()
    device_pids: set[int] = field(default_factory=set)
    foreign_pids: tuple[int, ...] = ()
    pinned_cpu: int | None = None
    node: str = ""
    ahead_s: float = 0.0


class SGLangEngine:
    """Satisfies ``equipoise_evals.ports.Engine``."""

    def __init__(self, launch: Launch, tree: ProcessTree, client: EngineClient, limits: Limits) -> None:
        self.launch = launch
        self.tree = tree
        self.client = client
        self._limits = limits
        self._steps = StepLog(launch.start.files.steps)
        self._traces = 0

    @property
    def role(self) -> Role:
        """The arm it plays."""
        return self.launch.role

    @property
    def since_start_s(self) -> float:
        """Seconds since it was started, or since its turn came where it had imported ahead."""
        return time.monotonic() - self.tree.started_s - self.launch.ahead_s

    @property
    def arm(self) -> ArmSpec:
        """The arm's specification."""
        return self.launch.arm

    async def attest(self) -> LaunchRecord:
        """What the engine proves to be; raises ``EngineFault`` in stage ``attest`` if that is not what was started."""
        record, server_info = await self._attested("attest")
        if self.launch.pair > 1:
            record.pop(PACKAGES, None)  # Once is enough: their digest stays and tells whether they are the same.
        seen = reported(server_info)
        seen["machine"] = dict(this_host())
        if self.launch.pinned_cpu is not None:
            seen["pinned_cpu"] = self.launch.pinned_cpu
        if self.launch.foreign_pids:
            seen["foreign_processes"] = list(self.launch.foreign_pids)
        return LaunchRecord(
            pair=self.launch.pair,
            role=self.role,
            started_first=self.launch.start.position == 0,
            started_at=self.launch.started_at,
            argv=self.launch.command.argv,
            environment=_without_secrets(self.launch.command.variables),
            attestation=record,
            server_info=seen,
            stage_s=dict(self.launch.stage_s),
            node=self.launch.node,
        )

    async def probe(self, prompt: Asked) -> PromptProbe:
        """A prompt's tokens as the model gets them; anything but exactly one BOS at their head is a fault."""
        probe = await self._whole("gsm8k", self.client.probe(prompt))
        if not begins_with_one_bos(probe):
            raise self.fault(
                "gsm8k",
                f"a prompt must begin with exactly one BOS, token {probe.bos}, and begins with {list(probe.head[:3])}: "
                "the model's chat template and its tokenizer disagree",
            )
        return probe

    async def generate(self, prompt: Asked, sampling: SamplingPlan) -> Generation:
        """Answer one prompt."""
        return await self._alive("gsm8k", self.client.generate(prompt, sampling))

    async def choose(self, prompt: Asked, prefix: Sequence[int], tokens: tuple[int | None, int | None]) -> TokenChoice:
        """Log-probabilities of the token after a prompt and output tokens."""
        return await self._alive("gsm8k", self.client.choose(prompt, prefix, tokens))

    async def decode(self, batch: int, prompt_tokens: int, steps: int, seed: int) -> Decoded:
        """Decode a block; its steps are those of the engine's own log that ran the whole batch."""
        prompts = random_prompts(batch, prompt_tokens, seed)
        before = await self._whole("decode", self.client.server_info())  # flushes what came before this block
        begin = self._log_position("decode")
        # The first token of each sequence comes out of its prefill, which is no decode step.
        stream = self._whole("decode", self.client.stream_batch(prompts, 1 + steps + SPARE_STEPS))
        client, telemetry, disturbed = await self._observed(stream)
        telemetry |= clock_cost(await self._whole("decode", self.client.server_info()))
        rows = rows_of(steps, self.launch.command.variables)
        try:
            columns = full_batch(self._steps.since(begin), batch, rows)
            return Decoded(
                steps=columns,
                client=client if token_by_token(before) else (),
                telemetry=telemetry,
                disturbed=disturbed,
            )
        except StepLogError as short:
            raise self.fault("decode", str(short)) from short

    async def prefill(self, batch: int, prompt_tokens: int, steps: int, seed: int) -> Decoded:
        """Prefill a batch so many times; the step clock has the engine's time, the stream the first tokens."""
        await self._whole("prefill", self.client.server_info())  # flushes what came before this block
        begin = self._log_position("prefill")
        ttft_us, telemetry, disturbed = await self._observed(
            self._prefilled("prefill", batch, prompt_tokens, steps, seed)
        )
        telemetry |= clock_cost(await self._whole("prefill", self.client.server_info()))
        try:
            columns = prefills(self._steps.since(begin), batch, prompt_tokens, ttft_us)
        except StepLogError as short:
            raise self.fault("prefill", str(short)) from short
        return Decoded(steps=columns, client=(), telemetry=telemetry, disturbed=disturbed)

    async def _prefilled(self, stage: str, batch: int, prompt_tokens: int, steps: int, seed: int) -> list[float]:
        """Mean time to first token of each prefill, every one of other prompts so that no cache knows them."""
        means = []
        for step in range(steps):
            prompts = random_prompts(batch, prompt_tokens, PREFILL_SEEDS * seed + step)
            means.append(fmean(await self._whole(stage, self.client.first_tokens_us(prompts))))
        return means

    async def count_kernels(self, batch: int, steps: int, prefill_tokens: int | None = None) -> TreatmentRecord:
        """Trace decode steps, or whole prefills, of a batch and count what ran in each."""
        activity: trace.Activity = "GPU" if self.launch.device == "cuda" else "CPU"
        self._traces += 1
        folder = self.launch.start.files.traces / f"{self._traces:03d}"
        folder.mkdir(parents=True)
        try:
            if prefill_tokens is None:
                counts = await self._traced(batch, steps, activity, folder)
            else:
                counts = await self._traced_prefills(batch, prefill_tokens, steps, activity, folder)
        except trace.TraceError as broken:
            raise self.fault("treatment", str(broken)) from broken
        return TreatmentRecord(
            pair=self.launch.pair,
            role=self.role,
            activity=activity,
            steps=counts.steps,
            per_step=counts.per_step,
            pdl=counts.pdl,
            phase="decode" if prefill_tokens is None else "prefill",
        )

    async def stress(self, batch: int, seed: int) -> StressRecord:
        """Run the stress profile of this engine's pool and context."""
        try:
            capacity = stress.capacity(await self._whole("stress", self.client.server_info()))
        except stress.UnknownCapacity as unknown:
            raise self.fault("stress", str(unknown)) from unknown
        rng = np.random.default_rng(seed)
        profile = stress_profile(capacity.pool_tokens, capacity.longest_tokens, batch, rng)
        return StressRecord(
            pair=self.launch.pair,
            role=self.role,
            pool_tokens=capacity.pool_tokens,
            longest_tokens=capacity.longest_tokens,
            batch=batch,
            phases=tuple([await self.stress_phase(phase, rng) for phase in profile]),
        )

    async def stress_phase(self, phase: StressPhase, rng: np.random.Generator) -> StressedPhase:
        """Run one phase to the end of its last request, when the engine is idle, and have it attest again."""
        seeds = rng.integers(1 << 31, size=len(phase.requests)).tolist()
        prompts = [
            random_prompts(1, request.prompt_tokens, seed)[0]
            for request, seed in zip(phase.requests, seeds, strict=True)
        ]
        ends = await self.while_alive("stress", stress.run(self.client, phase.requests, prompts))
        record, _ = await self._attested("stress", f"after the phase {phase.name}: ")
        return stress.stressed(phase.name, ends, record)

    async def _attested(self, stage: str, when: str = "") -> tuple[JsonObject, JsonObject]:
        """The plugin's record, whose making has the guard look, and the whole of ``/server_info``."""
        server_info = await self._whole(stage, self.client.server_info())
        model_info = await self._whole(stage, self.client.model_info())
        expected = Expected(self.arm, self.launch.model, self.launch.start.launch_id)
        try:
            return attested(expected, server_info, model_info), server_info
        except AttestationError as refusal:
            raise self.fault(stage, f"{when}{refusal}") from refusal

    async def _observed(self, work: Coroutine[Any, Any, T]) -> tuple[T, dict[str, JsonValue], str | None]:
        """Do work; say what the device was like meanwhile, and why the work counts as disturbed, if it does."""
        observer = OBSERVERS.get(self.launch.device)
        if observer is None:
            return await work, {}, None
        async with observer(",".join(self.launch.start.devices) or None) as seen:
            done = await work
        return done, seen.summary(), seen.disturbance()

    def fault(self, stage: str, reason: str) -> EngineFault:
        """An ``EngineFault`` of this engine, with what its log says last."""
        return EngineFault(self.role, stage, reason, self.tree.log_tail())

    async def _traced(self, batch: int, steps: int, activity: trace.Activity, folder: Path) -> trace.Counts:
        prompts = random_prompts(batch, TRACE_PROMPT_TOKENS, TRACE_SEED)
        await self._whole("treatment", self._decoded_under_trace(prompts, steps, activity, folder))
        return await self._whole("treatment", self._counted(prompts, steps, activity, folder))

    async def _decoded_under_trace(self, prompts: Prompts, steps: int, activity: trace.Activity, folder: Path) -> None:
        """Order a trace while the sequences decode, so that it begins with decode steps."""
        decoding = asyncio.Event()
        new_tokens = PROFILE_LEAD_TOKENS + steps + PROFILE_SPARE_STEPS[self.launch.device]

        def hear(tokens: int) -> None:
            if tokens >= PROFILE_LEAD_TOKENS:
                decoding.set()

        stream = asyncio.ensure_future(self.client.stream_batch(prompts, new_tokens, hear))
        begun = asyncio.ensure_future(decoding.wait())
        try:
            await asyncio.wait({stream, begun}, return_when=asyncio.FIRST_COMPLETED)
            await self.client.start_profile(str(folder), activity, steps)
            await stream
        finally:
            begun.cancel()
            stream.cancel()
            await asyncio.gather(begun, stream, return_exceptions=True)

    async def _traced_prefills(
        self, batch: int, prompt_tokens: int, prefills: int, activity: trace.Activity, folder: Path
    ) -> trace.Counts:
        """Trace an idle engine that prefills so many times and does nothing else, in however many forward passes."""
        await self._whole("treatment", self.client.start_profile(str(folder), activity))
        await self._prefilled("treatment", batch, prompt_tokens, prefills, TRACE_SEED)
        await self._whole("treatment", self.client.stop_profile())
        return await self._whole(
            "treatment",
            trace.count_when_written(folder, activity, prefills, limit_s=self._limits.trace_s, phase="prefill"),
        )

    async def _counted(self, prompts: Prompts, steps: int, activity: trace.Activity, folder: Path) -> trace.Counts:
        """Count the trace once it is written; where an engine ran out of steps before it had its own, run some more."""
        counting = asyncio.ensure_future(
            trace.count_when_written(folder, activity, steps, limit_s=self._limits.trace_s)
        )
        try:
            while not counting.done():
                await asyncio.wait({counting}, timeout=TRACE_PATIENCE_S)
                if not counting.done() and not any(folder.iterdir()):
                    await self.client.stream_batch(prompts, 1 + steps + SPARE_STEPS)
            return counting.result()
        finally:
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)

    def _log_position(self, stage: str) -> int:
        try:
            return self._steps.end()
        except StepLogError as missing:
            raise self.fault(stage, str(missing)) from missing

    async def _whole(self, stage: str, work: Coroutine[Any, Any, T]) -> T:
        """Run work that may not fail: a failed request is then the engine's fault."""
        try:
            return await self._alive(stage, work)
        except RequestFailed as failed:
            raise self.fault(stage, str(failed)) from failed

    async def while_alive(self, stage: str, work: Coroutine[Any, Any, T]) -> T:
        """Run work as long as the engine's process lives; raises ``EngineFault`` as soon as it does not."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self.tree.exit}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise self.death(stage)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _alive(self, stage: str, work: Coroutine[Any, Any, T]) -> T:
        """Run work; a broken connection is the engine's death if its process ends soon after."""
        try:
            return await self.while_alive(stage, work)
        except EngineUnreachable:
            await asyncio.wait({self.tree.exit}, timeout=DEATH_WAIT_S)
            if not self.tree.exit.done():
                raise
            raise self.death(stage) from None

    def death(self, stage: str) -> EngineFault:
        """The fault of an engine whose process has ended."""
        text = self.tree.log_tail()
        known = logs.known_reason(text)
        because = f": {known.name}: {known.remedy}" if known else ""
        if known and known.of_memory:
            fraction = value_of("--mem-fraction-static", self.launch.command.argv)
            because += f" (--mem-fraction-static {fraction} was asked for)"
        failed = known.stage if known and known.stage else stage
        return EngineFault(self.role, failed, f"the engine {self.tree.exit_text}{because}", text)


def random_prompts(batch: int, prompt_tokens: int, seed: int) -> Prompts:
    """Prompts of ordinary tokens, the same for the same seed."""
    rng = np.random.default_rng(seed)
    ids: list[list[int]] = rng.integers(LOWEST_TOKEN, LOWEST_TOKEN + TOKENS, size=(batch, prompt_tokens)).tolist()
    return ids


def begins_with_one_bos(probe: PromptProbe) -> bool:
    """Whether a prompt begins with exactly one BOS; a tokenizer that has none asks for none."""
    return probe.bos is None or (probe.head[:1] == (probe.bos,) and probe.head[1:2] != (probe.bos,))


def _without_secrets(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not logs.is_secret(name)}
