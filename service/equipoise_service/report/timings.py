"""What the blocks of a comparison look like: every block in the order it ran, and how the steps of both arms spread.

Steps are those that the judge counts: at full batch, after the planned warm-up, of each engine's last launch in a pair.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from equipoise_evals.judge.steps import TimedBlock, timed_block
from equipoise_evals.model import (
    ROLES,
    BlockRecord,
    Frozen,
    LatencyPlan,
    LaunchRecord,
    Metric,
    Records,
    Role,
)

Floats = NDArray[np.float64]
BINS = 80
TAIL = 0.002
"""Share of the steps left out of a histogram at either end: one slow step would squeeze all others together."""
ENGINE_CLOCKS: tuple[Metric, ...] = ("busy", "period")
CLIENT_CLOCK: tuple[Metric, ...] = ("client_tpot",)


class Spread(Frozen):
    """Step times of one block by one clock: mean, tenth and ninetieth percentile."""

    mean_us: float
    low_us: float
    high_us: float


class BlockTimes(Frozen):
    """One block. ``sequence`` is its place within the pair, over all batch sizes.

    Attributes:
        steps: Steps that count.
        busy: By the engine's clock; by the client's, from token to token as it arrived, and ``period`` is then None.
        clock_mhz: Median of the GPU's clock meanwhile; None where none was recorded. Temperature likewise.
        throttled: Why the GPU ran slower than it could, by the driver's reasons.
    """

    pair: int
    role: Role
    batch: int
    sequence: int
    steps: int
    busy: Spread
    period: Spread | None
    clock_mhz: float | None
    temperature_c: float | None
    throttled: tuple[str, ...]


class ArmSteps(Frozen):
    """All steps of one arm at one batch size by one clock.

    Attributes:
        counts: Steps in each bin.
        below: Steps faster than the first bin; ``above`` slower than the last.
    """

    steps: int
    mean_us: float
    median_us: float
    p99_us: float
    counts: tuple[int, ...]
    below: int
    above: int


class Distribution(Frozen):
    """Steps of both arms over the same bins, of equal width from ``low_us`` to ``high_us``."""

    batch: int
    clock: Metric
    low_us: float
    high_us: float
    arms: dict[Role, ArmSteps]


class Timings(Frozen):
    """Blocks in the order run, and distributions: the primary batch size first, busy before period.

    Attributes:
        by_client: Whether the clock is the client's, of engines that ran already; there is no other distribution then.
    """

    blocks: tuple[BlockTimes, ...]
    distributions: tuple[Distribution, ...]
    by_client: bool = False


def timings_of(records: Iterable[LaunchRecord | BlockRecord], latency: LatencyPlan) -> Timings:
    """Blocks and distributions of the launches and blocks of a comparison, given in the order observed."""
    blocks = Records(records=tuple(records)).current_blocks()
    timed = [timed_block(block, latency) for block in sorted(blocks, key=lambda block: (block.pair, block.sequence))]
    counted = [block for block in timed if block.busy_us.size]
    by_client = any(block.clock == "client" for block in blocks)
    batches = sorted(latency.batch_sizes, key=lambda batch: (batch != latency.primary_batch, batch))
    found = (
        distribution(batch, clock, [block for block in counted if block.record.batch == batch])
        for batch in batches
        for clock in (CLIENT_CLOCK if by_client else ENGINE_CLOCKS)
    )
    return Timings(
        blocks=tuple(block_times(block) for block in counted),
        distributions=tuple(one for one in found if one is not None),
        by_client=by_client,
    )


def block_times(block: TimedBlock) -> BlockTimes:
    """One block in numbers; it has at least one step that counts."""
    record = block.record
    telemetry = record.telemetry
    reasons = telemetry.get("throttle_reasons")
    periods = block.period_us[np.isfinite(block.period_us)]
    has_period = periods.size > 0 and record.clock == "engine"
    return BlockTimes(
        pair=record.pair,
        role=record.role,
        batch=record.batch,
        sequence=record.sequence,
        steps=block.busy_us.size,
        busy=_spread(block.busy_us),
        period=_spread(periods) if has_period else None,
        clock_mhz=_median(telemetry.get("sm_clock_mhz")),
        temperature_c=_median(telemetry.get("temperature_c")),
        throttled=tuple(map(str, reasons)) if isinstance(reasons, list) else (),
    )


def distribution(batch: int, clock: Metric, blocks: Sequence[TimedBlock]) -> Distribution | None:
    """Histograms of both arms over common bins; None unless both have steps."""
    times = {role: _times(clock, [block for block in blocks if block.record.role == role]) for role in ROLES}
    if min(us.size for us in times.values()) == 0:
        return None
    low_us, high_us = np.quantile(np.concatenate(list(times.values())), [TAIL, 1 - TAIL])
    if high_us <= low_us:
        low_us, high_us = low_us - 1.0, high_us + 1.0
    return Distribution(
        batch=batch,
        clock=clock,
        low_us=float(low_us),
        high_us=float(high_us),
        arms={role: _arm_steps(us, float(low_us), float(high_us)) for role, us in times.items()},
    )


def _times(clock: Metric, blocks: Iterable[TimedBlock]) -> Floats:
    columns = [block.period_us if clock == "period" else block.busy_us for block in blocks]
    together = np.concatenate(columns) if columns else np.empty(0)
    return together[np.isfinite(together)]


def _arm_steps(us: Floats, low_us: float, high_us: float) -> ArmSteps:
    counts, _ = np.histogram(us, bins=BINS, range=(low_us, high_us))
    median_us, p99_us = np.quantile(us, [0.5, 0.99])
    return ArmSteps(
        steps=us.size,
        mean_us=float(us.mean()),
        median_us=float(median_us),
        p99_us=float(p99_us),
        counts=tuple(int(count) for count in counts),
        below=int((us < low_us).sum()),
        above=int((us > high_us).sum()),
    )


def _spread(us: Floats) -> Spread:
    low, high = np.quantile(us, [0.1, 0.9])
    return Spread(mean_us=float(us.mean()), low_us=float(low), high_us=float(high))


def _median(quantity: JsonValue) -> float | None:
    """The median of a telemetry quantity; None where the GPU did not say."""
    value = quantity.get("median") if isinstance(quantity, Mapping) else None
    return float(value) if isinstance(value, int | float) else None
