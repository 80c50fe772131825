"""Blocks beside foreign load are run again, and what stays disturbed is said."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from equipoise_evals.experiment import (
    run_comparison,
)
from equipoise_evals.judge import judge
from equipoise_evals.model import (
    BlockRecord,
    Plan,
    Records,
    Role,
    Verdict,
)
from equipoise_evals.ports import Decoded, Engine, World
from tests.fakes.launching import ListRecorder
from tests.integration.service.fake import FakeLauncher
from tests.support import records as make
from tests.support.experiment import silent


class Disturbed:
    """Fake engines beside whose blocks there is foreign load, in these calls of ``decode`` that time a block."""

    def __init__(self, recorder: ListRecorder, calls: set[int]) -> None:
        self.launcher, self.calls, self.timed = FakeLauncher(recorder), calls, 0

    @asynccontextmanager
    async def launch_pair(self, plan: Plan, pair: int, order: tuple[Role, ...]) -> AsyncIterator[dict[Role, Engine]]:
        async with self.launcher.launch_pair(plan, pair, order) as engines:
            for engine in engines.values():
                setattr(engine, "decode", self.decoding(engine, plan))  # noqa: B010 - a fake's method is replaced
            yield engines

    def decoding(self, engine: Engine, plan: Plan) -> Callable[..., Awaitable[Decoded]]:
        decode = engine.decode

        async def decoded(batch: int, prompt_tokens: int, steps: int, seed: int) -> Decoded:
            done = await decode(batch, prompt_tokens, steps, seed)
            assert plan.latency is not None
            if steps != plan.latency.steps_per_block:
                return done
            self.timed += 1
            return done.model_copy(update={"disturbed": "a neighbour"}) if self.timed in self.calls else done

        return decoded


async def run_disturbed(calls: set[int], **fields: object) -> tuple[Verdict, Records]:
    plan = make.plan(accuracy=None, pairs_max=3, **fields)
    recorder = ListRecorder()
    launcher = Disturbed(recorder, calls)
    verdict = await run_comparison(plan, (), World(launcher, lambda: 0.0, recorder, silent))
    assert verdict == judge(recorder.records(), plan)
    return verdict, recorder.records()


async def test_a_quad_beside_foreign_load_is_run_again_and_its_last_run_counts() -> None:
    # The third block of the first quad; the repetition is blocks 5 to 8.
    verdict, records = await run_disturbed({3})
    blocks = records.of(BlockRecord)
    assert [block.disturbed for block in blocks[:4]] == [None, None, "a neighbour", None]
    first = [(block.pair, block.batch, block.quad, block.attempt) for block in blocks[:8]]
    assert first == [(1, 1, 1, 1)] * 4 + [(1, 1, 1, 2)] * 4
    assert [block.role for block in blocks[:4]] == [block.role for block in blocks[4:8]]
    assert len(blocks) == 3 * 8 + 4
    assert records.current_blocks() == blocks[4:]
    assert verdict.latency is not None
    assert verdict.latency.evidence.notes == ()


async def test_what_stays_disturbed_is_judged_and_said_and_repetitions_have_an_end() -> None:
    verdict, records = await run_disturbed(set(range(1, 1000)))
    # Two batch sizes of one quad each: two repetitions in each of three pairs.
    assert len(records.of(BlockRecord)) == 3 * (8 + 8)
    assert verdict.latency is not None
    assert verdict.latency.evidence.notes == (
        "24 of 24 blocks ran beside foreign load, also when repeated (a neighbour): the spread between launch pairs "
        "contains it.",
    )
    latency = make.LATENCY.model_copy(update={"quads_per_pair": 3})
    _, records = await run_disturbed(set(range(1, 1000)), latency=latency)
    assert len(records.of(BlockRecord)) == 3 * (2 * 3 * 4 + 2 * 4)
