"""How long blocks should be, and how many, on a machine whose launches, blocks and steps vary as they were seen to.

Kalibera & Jones' plan (``stats.latency.repetition_plan``) over the busy times of the primary batch: what buys most
precision for a second of the device. It says nothing of what a plan that runs should do: that is fixed beforehand.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean

import numpy as np

from equipoise_evals.judge.cost import timed_pairs_seconds
from equipoise_evals.judge.steps import Floats, TimedBlock, timed_block
from equipoise_evals.model import BlockRecord, Frozen, LatencyPlan, Layout, Role, StopRecord
from equipoise_evals.model.plan import DEVICE_SETS
from equipoise_evals.stats.latency import repetition_plan, variance_components

MOST_STEPS, MOST_QUADS = 2_048, 16
BLOCKS_OF_AN_ARM = 2
"""In one quad."""


class BlockAdvice(Frozen):
    """What the variance components of a comparison ask for.

    Attributes:
        step_sd: Relative SD that single steps add; ``block_sd`` what blocks, ``launch_sd`` what launches add. 0 where
            the level below explains all of it.
        step_s: Seconds of one more step; ``block_s`` of one more block beside its steps, ``launch_s`` of one more
            engine start with all that goes with it.
        steps_per_block: Steps that are timed in a block, warm-up steps left out, for most precision a second.
        quads_per_pair: Quads of four blocks per batch size and launch pair.
    """

    step_sd: float
    block_sd: float
    launch_sd: float
    step_s: float
    block_s: float
    launch_s: float
    steps_per_block: int
    quads_per_pair: int


def block_advice(
    blocks: Sequence[BlockRecord], stops: Iterable[StopRecord], latency: LatencyPlan, layout: Layout
) -> BlockAdvice | None:
    """The advice of a comparison's current blocks; None without two launches, or of engines that ran already."""
    timed: dict[Role, dict[int, list[TimedBlock]]] = {"A": defaultdict(list), "B": defaultdict(list)}
    for block in blocks:
        if block.batch == latency.primary_batch and block.clock == "engine":
            timed[block.role][block.pair].append(timed_block(block, latency))
    expected = BLOCKS_OF_AN_ARM * latency.quads_per_pair
    arms = [[of_pair for of_pair in arm.values() if len(of_pair) == expected] for arm in timed.values()]
    held_s = timed_pairs_seconds(stops, blocks, layout)
    if min(map(len, arms)) < 2 or not held_s:
        return None
    every = [block for arm in arms for of_pair in arm for block in of_pair]
    steps = min(block.busy_us.size for block in every)
    if steps < 2:
        return None
    components = [variance_components(_logs(arm, steps)).t2 for arm in arms]
    t2 = [max(0.0, fmean(of_level)) for of_level in zip(*components, strict=True)]
    step_s = fmean(float(np.nanmean(block.period_us)) for block in every) * 1e-6
    block_s = fmean(_overhead_s(block.record) for block in every)
    in_blocks_s = len(latency.batch_sizes) * 2 * expected * (block_s + latency.steps_per_block * step_s)
    # Blocks of two device sets at once pass while both are held, so a pair's own time is what each was held for.
    pair_s = fmean(held_s.values()) / DEVICE_SETS[layout]
    launch_s = max(block_s, (pair_s - in_blocks_s) / 2)
    wanted, of_arm = repetition_plan(t2, (step_s, block_s, launch_s), MOST_STEPS)
    return BlockAdvice(
        step_sd=math.sqrt(t2[0]),
        block_sd=math.sqrt(t2[1]),
        launch_sd=math.sqrt(t2[2]),
        step_s=step_s,
        block_s=block_s,
        launch_s=launch_s,
        steps_per_block=wanted,
        quads_per_pair=min(MOST_QUADS, math.ceil(of_arm / BLOCKS_OF_AN_ARM)),
    )


def _logs(launches: list[list[TimedBlock]], steps: int) -> Floats:
    """Log busy times, shape (launches, blocks, steps), less what all blocks share at each step: the context's."""
    logs = np.log([[block.busy_us[:steps] for block in of_pair] for of_pair in launches])
    centred: Floats = logs - logs.mean(axis=(0, 1), keepdims=True)
    return centred


def _overhead_s(block: BlockRecord) -> float:
    """Seconds of a block beside its steps: its prefill, as its clients saw it; a millisecond where they saw nothing."""
    return fmean([timing.ttft_us for timing in block.client]) * 1e-6 if block.client else 1e-3
