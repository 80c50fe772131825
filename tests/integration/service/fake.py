"""A launcher without processes: engines that answer at once, and a hook that can fail, wait or look on."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from equipoise_evals.decode.schedule import launch_order
from equipoise_evals.model import (
    ArmSpec,
    LaunchRecord,
    Plan,
    Role,
    SamplingPlan,
    StopRecord,
    StressRecord,
    TokenChoice,
    TreatmentRecord,
)
from equipoise_evals.model.records import ClientTiming, PromptProbe
from equipoise_evals.ports import Asked, Decoded, Engine, Generation, Recorder
from tests.support import records as make


class Call(NamedTuple):
    """One call of an engine's method."""

    method: str
    role: Role
    pair: int


Hook = Callable[[Call], Awaitable[None]]


async def nothing(call: Call) -> None:
    """Let every call pass."""
    del call


class FakeEngine:
    """Answers ``#### 1``; the persistent policy is 2 % faster and makes no fills."""

    def __init__(self, role: Role, arm: ArmSpec, pair: int, hook: Hook, first: Role) -> None:
        self._role, self._arm, self._pair, self._hook, self._first = role, arm, pair, hook, first

    @property
    def role(self) -> Role:
        """The arm it plays."""
        return self._role

    @property
    def arm(self) -> ArmSpec:
        """The arm's specification."""
        return self._arm

    @property
    def _hair(self) -> float:
        """By how much launches of the candidate differ: pairs that agree to the last digit would be copies."""
        return 1 + 1e-12 * self._pair if self._role == "B" else 1.0

    async def attest(self) -> LaunchRecord:
        """Attest what was asked for."""
        await self._hook(Call("attest", self._role, self._pair))
        return make.launch(self._pair, self._role, self._arm.scratch, self._first)

    async def probe(self, prompt: Asked) -> PromptProbe:
        """One token, of a tokenizer without BOS."""
        return PromptProbe(tokens=1, head=(1,), bos=None)

    async def generate(self, prompt: Asked, sampling: SamplingPlan) -> Generation:
        """The same answer to everything."""
        await self._hook(Call("generate", self._role, self._pair))
        return Generation(text="#### 1", output_ids=(1,), finish_reason="stop", prompt_tokens=1, cached_tokens=0)

    async def choose(self, prompt: Asked, prefix: Sequence[int], tokens: tuple[int | None, int | None]) -> TokenChoice:
        """The baseline's token is likelier in both engines."""
        await self._hook(Call("choose", self._role, self._pair))
        return TokenChoice(logprobs=(-0.1, -2.5), top=((tokens[0] or 0, -0.1),), path="decode")

    async def decode(self, batch: int, prompt_tokens: int, steps: int, seed: int) -> Decoded:
        """Steps that differ a little, so that there is a variance."""
        await self._hook(Call("decode", self._role, self._pair))
        speed = self._hair * (980.0 if self._arm.scratch == "persistent" else 1000.0)
        times = [speed * (1 + 0.0002 * ((seed + step) % 7)) for step in range(steps)]
        client = (ClientTiming(ttft_us=1000.0, tpot_us=speed + 50, output_tokens=steps),)
        return Decoded(steps=make.block_steps(batch, times), client=client)

    async def prefill(self, batch: int, prompt_tokens: int, steps: int, seed: int) -> Decoded:
        """Prefills that last 20 times as long as a decode step, and first tokens 500 us later."""
        await self._hook(Call("prefill", self._role, self._pair))
        speed = self._hair * (19_600.0 if self._arm.scratch == "persistent" else 20_000.0)
        times = [speed * (1 + 0.0002 * ((seed + step) % 7)) for step in range(steps)]
        return Decoded(steps=make.prefill_steps(batch, times), client=())

    async def count_kernels(self, batch: int, steps: int, prefill_tokens: int | None = None) -> TreatmentRecord:
        """Ninety fills a step, or none."""
        await self._hook(Call("count_kernels", self._role, self._pair))
        fills = 0.0 if self._arm.scratch == "persistent" else 90.0
        return TreatmentRecord(
            pair=self._pair,
            role=self._role,
            activity="CPU",
            steps=steps,
            per_step={"aten::zeros": fills},
            phase="decode" if prefill_tokens is None else "prefill",
        )

    async def stress(self, batch: int, seed: int) -> StressRecord:
        """Every phase ends well."""
        await self._hook(Call("stress", self._role, self._pair))
        return make.stress(self._pair, self._role, batch=batch)


class FakeLauncher:
    """Launches ``FakeEngine`` pairs and notes how many are there."""

    def __init__(self, recorder: Recorder, hook: Hook = nothing) -> None:
        self.recorder, self.hook = recorder, hook
        self.alive = self.pairs = 0

    @asynccontextmanager
    async def launch_pair(self, plan: Plan, pair: int, order: tuple[Role, ...]) -> AsyncIterator[dict[Role, Engine]]:
        """Both engines, gone after the context."""
        first, _ = launch_order(plan, pair)
        engines: dict[Role, Engine] = {
            role: FakeEngine(role, plan.arms.of(role), pair, self.hook, first) for role in order
        }
        self.alive += 2
        self.pairs = pair
        try:
            yield engines
        finally:
            self.alive -= 2
            for role in order:
                self.recorder.append(StopRecord(pair=pair, role=role, held_s=1.0, clean=True))
