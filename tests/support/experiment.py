"""Runs of the straight line over engines without processes, whole or cut short."""

from typing import Any

import pytest

from equipoise_evals.experiment import (
    run_comparison,
)
from equipoise_evals.gsm8k.prompt import Prompt, build_prompts
from equipoise_evals.model import (
    Plan,
    Question,
    Records,
    Verdict,
)
from equipoise_evals.ports import EngineFault, World
from tests.fakes.launching import ListRecorder
from tests.integration.service.fake import Call, FakeLauncher, Hook, nothing
from tests.support import records as make


def silent(stage: str, done: int, total: int, detail: str = "") -> None:
    """Nobody listens."""


def prompts(n: int = 4, gold: str = "1") -> tuple[Prompt, ...]:
    return build_prompts([Question(id=i, question=f"q{i}", rationale="r", gold=gold) for i in range(n)], [])


async def run(hook: Hook = nothing, **changes: Any) -> tuple[Verdict, Records, Plan]:
    plan = make.plan(**({"accuracy": make.accuracy_plan(4)} | changes))
    recorder = ListRecorder()
    world = World(FakeLauncher(recorder, hook), lambda: 0.0, recorder, silent)
    return await run_comparison(plan, prompts() if plan.accuracy else (), world), recorder.records(), plan


class Killed:
    """Ends the run at the ``at``-th call of one method, once."""

    def __init__(self, method: str, at: int) -> None:
        self.method, self.at = method, at
        self.seen = 0

    async def __call__(self, call: Call) -> None:
        if call.method == self.method:
            self.seen += 1
            if self.seen == self.at:
                raise EngineFault(call.role, "gsm8k", "killed")


async def cut_short_and_resumed(kill: Killed) -> tuple[Verdict, Records, Plan]:
    plan = make.plan(accuracy=make.accuracy_plan(4, concurrency=1))
    recorder = ListRecorder()
    world = World(FakeLauncher(recorder, kill), lambda: 0.0, recorder, silent)
    with pytest.raises(EngineFault, match="killed"):
        await run_comparison(plan, prompts(), world)
    return await run_comparison(plan, prompts(), world), recorder.records(), plan
