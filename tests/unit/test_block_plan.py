"""Block lengths that variance components ask for, from blocks whose components are known."""

import math

import numpy as np
import pytest

from equipoise_evals.block_plan import MOST_QUADS, BlockAdvice, block_advice
from equipoise_evals.decode.schedule import planned_blocks
from equipoise_evals.model import ROLES, BlockRecord, ClientTiming, LatencyPlan, Layout, StopRecord
from tests.support import records as make

PLAN = LatencyPlan(
    batch_sizes=(16,), primary_batch=16, quads_per_pair=4, prompt_tokens=32, steps_per_block=72, warmup_steps=8,
    margin=0.005,
)  # fmt: skip


def blocks(pairs: int, step_sd: float, block_sd: float, launch_sd: float, *, seed: int = 1) -> list[BlockRecord]:
    """Blocks of 5 ms steps that rise by 0.1 % each, with these relative SDs; 100 ms of prefill before each."""
    rng = np.random.default_rng(seed)
    rise = 1 + 0.001 * np.arange(PLAN.steps_per_block)
    found = []
    for pair in range(1, pairs + 1):
        launches = {role: launch_sd * rng.standard_normal() for role in ("A", "B")}
        for planned in planned_blocks(PLAN, pair):
            level = launches[planned.role] + block_sd * rng.standard_normal()
            times = 5_000 * rise * np.exp(level + step_sd * rng.standard_normal(PLAN.steps_per_block))
            found.append(
                BlockRecord(
                    pair=pair, role=planned.role, batch=16, quad=planned.quad, position=planned.position,
                    sequence=planned.sequence, steps=make.block_steps(16, times.tolist(), PLAN),
                    client=(ClientTiming(ttft_us=100_000, tpot_us=5_000, output_tokens=72),),
                )
            )  # fmt: skip
    return found


def stops(pairs: int, held_s: float = 150.0) -> list[StopRecord]:
    ends = [(pair, role) for pair in range(1, pairs + 1) for role in ROLES]
    return [StopRecord(pair=pair, role=role, held_s=held_s, clean=True) for pair, role in ends]


def advice(*sds: float, pairs: int = 40) -> BlockAdvice:
    found = block_advice(blocks(pairs, *sds), stops(pairs), PLAN, "co_resident")
    assert found is not None
    return found


def test_the_components_are_those_put_in_and_the_counts_follow() -> None:
    """Steps 2 %, blocks 0.2 %, launches 0.1 %: sqrt(0.1/0.0052 * 4e-4/4e-6) = 44 steps, by the plan's own formula."""
    found = advice(0.02, 0.002, 0.001)
    assert found.step_sd == pytest.approx(0.02, rel=0.05)
    assert found.block_sd == pytest.approx(0.002, rel=0.3)
    assert found.launch_sd == pytest.approx(0.001, rel=0.5)
    assert found.steps_per_block == pytest.approx(44, rel=0.35)
    assert found.block_s == pytest.approx(0.1)
    # 32 blocks of 72 steps: 150 s less 16 of a batch in both arms, halved between the arms.
    in_blocks_s = 16 * (0.1 + 72 * found.step_s)
    assert found.launch_s == pytest.approx((150 - in_blocks_s) / 2)
    steps = math.ceil(math.sqrt(found.block_s / found.step_s) * found.step_sd / found.block_sd)
    of_arm = math.ceil(math.sqrt(found.launch_s / found.block_s) * found.block_sd / found.launch_sd)
    assert (found.steps_per_block, found.quads_per_pair) == (steps, min(MOST_QUADS, math.ceil(of_arm / 2)))


def test_launches_that_differ_most_ask_for_short_measuring() -> None:
    calm, wild = advice(0.02, 0.002, 0.0005), advice(0.02, 0.002, 0.02)
    assert wild.quads_per_pair < calm.quads_per_pair <= MOST_QUADS


def test_without_two_launches_blocks_or_steps_there_is_no_advice() -> None:
    assert block_advice(blocks(1, 0.02, 0.002, 0.001), stops(1), PLAN, "co_resident") is None
    assert block_advice(blocks(2, 0.02, 0.002, 0.001), [], PLAN, "co_resident") is None
    by_client = [one.model_copy(update={"clock": "client"}) for one in blocks(2, 0.02, 0.002, 0.001)]
    assert block_advice(by_client, stops(2), PLAN, "co_resident") is None
    short = [
        one.model_copy(update={"steps": make.block_steps(16, [5_000.0] * 9, PLAN), "client": ()})
        for one in blocks(2, 0.02, 0.002, 0.001)
    ]
    assert block_advice(short, stops(2), PLAN, "co_resident") is None


def test_blocks_without_clients_cost_next_to_nothing() -> None:
    unseen = [one.model_copy(update={"client": ()}) for one in blocks(4, 0.02, 0.002, 0.001)]
    found = block_advice(unseen, stops(4), PLAN, "co_resident")
    assert found is not None
    assert found.block_s == pytest.approx(0.001)


@pytest.mark.parametrize(
    ("layout", "held_s"),
    # A pair of 150 s: both engines hold one device set together, one after the other for half of it, or each its own.
    [("co_resident", 150.0), ("alternating", 75.0), ("crossover", 150.0)],
)
def test_a_launch_costs_the_same_seconds_wherever_the_engines_run(layout: Layout, held_s: float) -> None:
    measured = blocks(4, 0.02, 0.002, 0.001)
    found = block_advice(measured, stops(4, held_s), PLAN, layout)
    assert found == block_advice(measured, stops(4), PLAN, "co_resident")


def test_pairs_without_blocks_do_not_make_launches_look_cheap() -> None:
    """Once the speed is decided, later pairs only answer questions."""
    measured = blocks(4, 0.02, 0.002, 0.001)
    short = [stop.model_copy(update={"pair": stop.pair + 4, "held_s": 70.0}) for stop in stops(4)]
    found = block_advice(measured, [*stops(4), *short], PLAN, "co_resident")
    assert found == block_advice(measured, stops(4), PLAN, "co_resident")
