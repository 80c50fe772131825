"""Simulated worlds: what two engines would have recorded, had the truth been this. Seeded, and nothing measured.

A world acts on three scales. Launches: each launch pair's log-ratio departs from the truth by a draw of the launch
distribution. Blocks: a two-level engine spends a share of each block at a lower level, and the share differs from
block to block. Steps: AR(1) noise, a warm-up, a drift and spikes.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from equipoise_evals.decode import schedule
from equipoise_evals.model import BlockRecord, Frozen, LatencyPlan, Plan, Role, StepColumns

Floats = NDArray[np.float64]
LaunchShape = Literal["normal", "t3", "bimodal", "rare"]
RARE = 0.1
"""Share of launches in which a rare state shows."""


class LatencyWorld(Frozen):
    """One truth about step times. All sizes are relative to the step time unless a name says otherwise.

    Attributes:
        effect: True ratio of candidate to baseline minus 1.
        launch_sd: SD of a launch pair's log-ratio.
        device_gap: How much longer a step takes on the second device set than on the first.
        launch_shape: Distribution of that log-ratio, scaled to ``launch_sd``: normal; Student's t with 3 degrees of
            freedom; bimodal, where each engine starts into one of two equally likely levels; rare, where every tenth
            launch of the candidate is slower than the others, and the mean over all is the effect.
        step_cv: SD of a step's noise.
        step_ar1: Correlation of the noise of neighbouring steps.
        drift: Change over the blocks of a launch pair, linear in time.
        warmup: Excess of a block's first step, halving every two steps.
        spike_share: Share of steps that take a spike.
        spike: Size of a spike.
        level_gap: Distance of a second, lower level of step times; 0 for engines with one level.
        level_share_sd: SD of the share of low-level steps from block to block, around one half.
        base_us: Step time of the baseline.
    """

    effect: float = 0.0
    launch_sd: float = 0.0005
    launch_shape: LaunchShape = "normal"
    step_cv: float = 0.01
    step_ar1: float = 0.3
    drift: float = 0.0
    warmup: float = 0.0
    spike_share: float = 0.0
    spike: float = 0.0
    level_gap: float = 0.0
    level_share_sd: float = 0.0
    base_us: float = 4_650.0
    device_gap: float = 0.0


PERIOD_OVERHEAD_US = 120.0
"""Sampling, copies and scheduling between two steps; what the period has beyond the busy time."""


def launch_log_ratio(world: LatencyWorld, rng: np.random.Generator) -> float:
    """The log-ratio of one launch pair: the truth plus one draw of the launch distribution."""
    match world.launch_shape:
        case "normal":
            unit = rng.standard_normal()
        case "t3":
            unit = rng.standard_t(3) / np.sqrt(3.0)
        case "rare":
            unit = (float(rng.random() < RARE) - RARE) / np.sqrt(RARE * (1 - RARE))
        case _:
            unit = (rng.integers(2) - rng.integers(2)) * np.sqrt(2.0)
    return float(np.log1p(world.effect) + world.launch_sd * unit)


def pair_blocks(world: LatencyWorld, plan: Plan, pair: int, rng: np.random.Generator) -> list[BlockRecord]:
    """The blocks of one launch pair, in the order of the schedule; the plan has a latency half."""
    latency = plan.latency
    assert latency is not None  # noqa: S101 - as its caller sees to
    shift: dict[Role, float] = {"A": 0.0, "B": launch_log_ratio(world, rng)}
    for role, device in schedule.device_sets(plan, pair).items():
        shift[role] += device * np.log1p(world.device_gap)
    planned = schedule.pair_blocks(plan, pair)
    drift = 1 + world.drift * np.arange(len(planned)) / len(planned)
    levels = world.base_us * np.exp([shift[block.role] for block in planned]) * drift
    busy = levels[:, None] * _block_shapes(world, (len(planned), latency.steps_per_block), rng)
    return [
        BlockRecord(
            pair=pair,
            role=block.role,
            batch=block.batch,
            quad=block.quad,
            position=block.position,
            sequence=block.sequence,
            steps=block_steps(block.batch, busy_us, latency),
            client=(),
        )
        for block, busy_us in zip(planned, busy, strict=True)
    ]


def block_steps(batch: int, busy_us: Floats, latency: LatencyPlan) -> StepColumns:
    """Columns of one block with these busy times; the first step has no period, since nothing ran before it."""
    n = len(busy_us)
    period = (busy_us + PERIOD_OVERHEAD_US).tolist()
    return StepColumns(
        monotonic_ns=tuple((1_000 * np.cumsum(busy_us + PERIOD_OVERHEAD_US)).astype(np.int64).tolist()),
        graph_batch=(batch,) * n,
        real_batch=(batch,) * n,
        context_tokens=tuple(range(batch * latency.prompt_tokens, batch * (latency.prompt_tokens + n), batch)),
        busy_us=tuple(busy_us.tolist()),
        period_us=(None, *period[1:]),
    )


def _block_shapes(world: LatencyWorld, size: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Relative step times, shape (blocks, steps)."""
    blocks, steps = size
    shapes: Floats = 1.0 + world.step_cv * _ar1(size, world.step_ar1, rng)
    if world.warmup:
        shapes += world.warmup * 0.5 ** (np.arange(steps) / 2)
    if world.spike_share:
        shapes += world.spike * (rng.random(size) < world.spike_share)
    if world.level_gap:
        shares = np.clip(0.5 + world.level_share_sd * rng.standard_normal((blocks, 1)), 0.0, 1.0)
        shapes -= world.level_gap * (rng.random(size) < shares)
    return np.maximum(shapes, 0.05)


def _ar1(size: tuple[int, int], correlation: float, rng: np.random.Generator) -> Floats:
    """Stationary AR(1) noise of unit variance along each row."""
    innovations = rng.standard_normal(size)
    innovations[:, 1:] *= np.sqrt(1 - correlation**2)
    noise: Floats = lfilter([1.0], [1.0, -correlation], innovations, axis=1)
    return noise
