"""Which decode steps of a block count: full batch, after the planned warm-up, at contexts that a whole quad shares.

Step time rises with the context inside a block, so a quad's blocks are compared over the contexts that all four have.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from equipoise_evals.model import BlockRecord, LatencyPlan, Metric, Role
from equipoise_evals.model.records import SHORTEST_US

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MIN_COMMON_STEPS = 4


class UnusableQuadError(ValueError):
    """A quad is no measurement: too few comparable steps, or times that no clock which runs could give."""


@dataclass(frozen=True)
class TimedBlock:
    """The steps of one block that may count, as arrays of equal length, in order.

    Attributes:
        record: The block.
        contexts: Context of each step in tokens; of a prefill, its place in the block.
        busy_us: Busy time; ``period_us`` the period, nan where a step has none.
        client_us: Time per output token of each request at its client; another length.
    """

    record: BlockRecord
    contexts: Integers
    busy_us: Floats
    period_us: Floats
    client_us: Floats


def timed_block(block: BlockRecord, latency: LatencyPlan) -> TimedBlock:
    """The full-batch steps of a block after its warm-up steps.

    Steps are counted by their context, which each raises by one token per request, so that a clock which sampled only
    every n-th step leaves out the same steps as one that saw them all. Prefills, each of the same length, are counted
    by their place instead.
    """
    columns = block.steps
    full = np.flatnonzero(np.array(columns.real_batch, dtype=np.int64) == block.batch)
    prefills = latency.phase == "prefill"
    all_contexts = np.arange(len(columns)) if prefills else np.array(columns.context_tokens, dtype=np.int64)
    if prefills:
        full = full[latency.warmup_steps :]
    elif full.size:
        full = full[all_contexts[full] >= all_contexts[full[0]] + latency.warmup_steps * block.batch]
    return TimedBlock(
        record=block,
        contexts=all_contexts[full],
        busy_us=np.array(columns.busy_us, dtype=np.float64)[full],
        period_us=np.array(columns.period_us, dtype=np.float64)[full],
        client_us=np.array([timing.tpot_us for timing in block.client], dtype=np.float64),
    )


def require_running_clock(block: TimedBlock) -> None:
    """Raise ``UnusableQuadError`` where the clock ran backwards, or stood still for a step that an engine timed.

    By a client's clock tokens that arrive together take no time; by an engine's every step takes some.
    """
    if np.any(np.diff(np.array(block.record.steps.monotonic_ns, dtype=np.int64)) < 0):
        raise UnusableQuadError(f"{_called(block.record)}: the clock ran backwards between two steps")
    if block.record.clock == "engine" and not np.all((block.busy_us >= SHORTEST_US) & ~(block.period_us < SHORTEST_US)):
        raise UnusableQuadError(f"{_called(block.record)}: a step took no time by the engine's clock")


def comparable_times(quad: Sequence[TimedBlock], metric: Metric) -> list[tuple[Role, Floats]]:
    """Times of each block of a quad, in the order run, over the same contexts.

    Raises:
        UnusableQuadError: fewer than 4 steps were decoded at contexts that all blocks share, or all of them took no
            time in a block.
    """
    if metric == "client_tpot":
        _require_time(quad, [block.client_us for block in quad])
        return [(block.record.role, block.client_us) for block in quad]
    measured = [_measured(block, metric) for block in quad]
    first, _ = measured[0]
    if all(np.array_equal(contexts, first) for contexts, _ in measured):
        common, times = first, [us for _, us in measured]  # the usual case, and far cheaper
    else:
        common = reduce(np.intersect1d, (contexts for contexts, _ in measured))
        times = [us[np.isin(contexts, common)] for contexts, us in measured]
    if len(common) < MIN_COMMON_STEPS:
        raise UnusableQuadError(
            f"{_called(quad[0].record)}: only {len(common)} steps decoded at contexts that all four blocks share"
        )
    _require_time(quad, times)
    return [(block.record.role, us) for block, us in zip(quad, times, strict=True)]


def _require_time(quad: Sequence[TimedBlock], times: Sequence[Floats]) -> None:
    if min(float(us.mean()) for us in times) < SHORTEST_US:
        raise UnusableQuadError(f"{_called(quad[0].record)}: no step of a block took any time")


def _called(block: BlockRecord) -> str:
    return f"pair {block.pair}, batch {block.batch}, quad {block.quad}"


def _measured(block: TimedBlock, metric: Metric) -> tuple[Integers, Floats]:
    us = block.busy_us if metric == "busy" else block.period_us
    present = np.isfinite(us)
    return (block.contexts, us) if present.all() else (block.contexts[present], us[present])
