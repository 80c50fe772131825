"""Engines that ran already: measured as they are, neither launched nor stopped, and timed by their client alone.

Nobody here knows how they were started. An attestation is taken where the plugin is in them and is missing where it is
not; the record says so.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import JsonValue

from equipoise_evals.model import ArmSpec, ModelRef, Plan, Role, SamplingPlan
from equipoise_evals.model.records import (
    LaunchRecord,
    PromptProbe,
    StopRecord,
    StressRecord,
    TokenChoice,
    TreatmentRecord,
)
from equipoise_evals.ports import Asked, Decoded, Engine, EngineFault, Generation, Recorder, RequestFailed
from equipoise_service.engines.attestation import AttestationError, attached_record, reported
from equipoise_service.engines.client import EngineClient, EngineUnreachable
from equipoise_service.engines.engine import begins_with_one_bos, random_prompts
from equipoise_service.engines.limits import Limits
from equipoise_service.engines.readiness import PROBE
from equipoise_service.engines.streaming import NoTiming, client_steps, token_by_token
from equipoise_service.tasks import all_of, to_the_end

T = TypeVar("T")
IDENTITY = ("launch_id", "pid")
"""What of an attestation tells an engine from one that took its place with the same configuration."""


class AttachedEngine:
    """Satisfies ``equipoise_evals.ports.Engine`` over the address of an engine that somebody else runs."""

    def __init__(
        self, arm: ArmSpec, model: ModelRef, client: EngineClient, *, role: Role, pair: int, first: bool
    ) -> None:
        self._arm, self._model, self._client = arm, model, client
        self._role, self._pair, self._first = role, pair, first
        self._attached_at = datetime.now(UTC).isoformat("T", "milliseconds")
        self._seen: dict[str, JsonValue] | None = None

    @property
    def role(self) -> Role:
        """The arm it plays."""
        return self._role

    @property
    def arm(self) -> ArmSpec:
        """The arm's specification."""
        return self._arm

    async def ready(self, limits: Limits) -> None:
        """Raise ``EngineFault`` unless it is healthy and generates within the time that a new engine gets."""
        try:
            async with asyncio.timeout(limits.first_generation_s):
                await self._whole("start", self._client.health())
                await self._whole("start", self._client.generate("1 + 1 =", PROBE))
        except TimeoutError as late:
            raise self._fault("start", f"it did not generate within {limits.first_generation_s:g} s") from late

    async def attest(self) -> LaunchRecord:
        """What it says it is; raises ``EngineFault`` for another model, another arm, or another engine than before."""
        info = await self._whole("attest", self._client.server_info())
        served = (await self._whole("attest", self._client.model_info())).get("model_path")
        if self._model.path not in {served, info.get("served_model_name")}:
            raise self._fault("attest", f"it serves the model {served!r}, and {self._model.path!r} was asked for")
        try:
            record = attached_record(self._arm, info)
        except AttestationError as refusal:
            raise self._fault("attest", str(refusal)) from refusal
        seen = reported(info)
        self._require_same(seen | {name: record[name] for name in IDENTITY if name in record})
        return LaunchRecord(
            pair=self._pair,
            role=self._role,
            started_first=self._first,
            started_at=self._attached_at,
            argv=(),
            environment={},
            attestation=record,
            server_info=seen,
            stage_s={},
            attached=True,
        )

    async def probe(self, prompt: Asked) -> PromptProbe:
        """A prompt's tokens as the model gets them; anything but exactly one BOS at their head is a fault."""
        probe = await self._whole("gsm8k", self._client.probe(prompt))
        if not begins_with_one_bos(probe):
            raise self._fault("gsm8k", f"a prompt must begin with exactly one BOS, and begins with {probe.head[:3]}")
        return probe

    async def generate(self, prompt: Asked, sampling: SamplingPlan) -> Generation:
        """Answer one prompt."""
        return await self._while_there("gsm8k", self._client.generate(prompt, sampling))

    async def choose(self, prompt: Asked, prefix: Sequence[int], tokens: tuple[int | None, int | None]) -> TokenChoice:
        """Log-probabilities of the token after a prompt and output tokens."""
        return await self._while_there("gsm8k", self._client.choose(prompt, prefix, tokens))

    async def decode(self, batch: int, prompt_tokens: int, steps: int, seed: int) -> Decoded:
        """Decode a block, timed by the arrival of its tokens here."""
        if not token_by_token(await self._whole("decode", self._client.server_info())):
            raise self._fault("decode", "it holds tokens back (--stream-interval), so its client can time no step")
        prompts = random_prompts(batch, prompt_tokens, seed)
        streamed = await self._whole("decode", self._client.stream_tokens(prompts, 1 + steps))
        try:
            columns = client_steps(streamed.chunks, prompt_tokens, steps)
        except NoTiming as short:
            raise self._fault("decode", f"a stream gave no timing: {short}") from short
        return Decoded(steps=columns, client=streamed.timings, clock="client")

    async def prefill(self, batch: int, prompt_tokens: int, steps: int, seed: int) -> Decoded:
        """Refused: without the engine's clock there is no prefill time to hold the first token against."""
        raise self._fault("prefill", "prefill is not timed in an engine that ran already")

    async def count_kernels(self, batch: int, steps: int, prefill_tokens: int | None = None) -> TreatmentRecord:
        """Refused: the engine would write its trace where nobody here can read it."""
        raise self._fault("treatment", "an engine that ran already is not traced")

    async def stress(self, batch: int, seed: int) -> StressRecord:
        """Refused: others may be using the engine."""
        raise self._fault("stress", "an engine that ran already is not put under stress")

    def _require_same(self, seen: dict[str, JsonValue]) -> None:
        """Raise unless what answers there says of itself what it said first."""
        before = self._seen = self._seen or seen
        changed = sorted(name for name in seen | before if seen.get(name) != before.get(name))
        if changed:
            raise self._fault("attest", f"another engine answers there than before: it has another {changed[0]}")

    def _fault(self, stage: str, reason: str) -> EngineFault:
        return EngineFault(self._role, stage, f"the engine at {self._arm.attach}: {reason}")

    async def _whole(self, stage: str, work: Awaitable[T]) -> T:
        """Do work that may not fail: a failed request is then the engine's fault."""
        try:
            return await work
        except RequestFailed as failed:
            raise self._fault(stage, str(failed)) from failed

    async def _while_there(self, stage: str, work: Awaitable[T]) -> T:
        """Do work; where the engine is not reached any more, that is its fault and not the request's."""
        try:
            return await work
        except EngineUnreachable:
            await self._whole(stage, self._client.health())
            raise


class AttachedLauncher:
    """``equipoise_evals.ports.Launcher`` of engines that ran already: a launch pair is a round with the same two.

    Args:
        recorder: Gets a ``StopRecord`` when a round ends, for the time that it took.
        limits: Time limits.
    """

    def __init__(self, recorder: Recorder, limits: Limits | None = None) -> None:
        self._recorder = recorder
        self._limits = limits or Limits()

    @asynccontextmanager
    async def launch_pair(self, plan: Plan, pair: int, order: tuple[Role, ...]) -> AsyncIterator[dict[Role, Engine]]:
        """Attach to both engines; both go on running when the context is left.

        Raises:
            EngineFault: One does not answer, or is not what was meant.
        """
        began_s = time.monotonic()
        clients = {role: self._client(plan.arms.of(role)) for role in order}
        try:
            attached = {
                role: AttachedEngine(
                    plan.arms.of(role), plan.model, clients[role], role=role, pair=pair, first=role == order[0]
                )
                for role in order
            }
            for engine in attached.values():
                await engine.ready(self._limits)
            engines: dict[Role, Engine] = {**attached}
            yield engines
        finally:
            await to_the_end(all_of(client.close() for client in clients.values()))
            for role in order:
                self._recorder.append(StopRecord(pair=pair, role=role, held_s=time.monotonic() - began_s, clean=True))

    def _client(self, arm: ArmSpec) -> EngineClient:
        assert arm.attach is not None  # noqa: S101 - a plan attaches to both engines or to none
        return EngineClient(arm.attach, request_s=self._limits.request_s)
