"""What the step clock costs, from blocks in which it alternates between every step and every n-th. Pure.

Both settings are compared within a block, a few dozen steps apart, so that neither a launch's own speed nor a level
that lasts for seconds stands between them. The launch remains the unit of the interval.
"""

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from equipoise_evals.model import BlockRecord, StepColumns
from equipoise_evals.stats.latency import ratio_interval
from tests.gpu.claims import Claim, Document

HOOK_LIMIT_US = 20.0
HOOK_ROWS = 2_000
PERIOD_LIMIT = 0.005

Stretch = tuple[bool, float]
"""Whether every step was clocked, and the mean period of the stretch in us."""


def clock_claims(document: Document) -> list[Claim]:
    """Host time of the hooks, and the period with the clock at every step against every 16th."""
    blocks = document.observed.of(BlockRecord)
    batches = document.plan.latency.batch_sizes if document.plan.latency else ()
    return [hook_claim(document), *(_period_claim(batch, blocks) for batch in batches)]


def hook_claim(document: Document) -> Claim:
    """Host time of the hooks, the median over so many steps of each engine."""
    costs = _costs(document.observed.of(BlockRecord))
    medians = [float(cost["hook_median_us"]) for cost in costs if cost["hook_rows"] == HOOK_ROWS]
    worst = max(medians, default=math.nan)
    return Claim(
        f"median host time of the hooks over {HOOK_ROWS} steps is at most {HOOK_LIMIT_US:g} us",
        worst <= HOOK_LIMIT_US,
        f"largest of {len(medians)} medians: {worst:.1f} us; their median: "
        f"{statistics.median(medians or [math.nan]):.1f} us",
    )


def launch_effects(blocks: Sequence[BlockRecord]) -> list[float]:
    """One mean log-ratio a launch: the period with the clock at every step over that with it at few."""
    of_launch: dict[tuple[int, str], list[float]] = defaultdict(list)
    for block in blocks:
        of_launch[block.pair, block.role] += contrasts(stretches(block.steps))
    return [statistics.fmean(found) for found in of_launch.values() if found]


def stretches(steps: StepColumns) -> list[Stretch]:
    """The block's stretches of one setting, in order; period and time since the last row tell which."""
    rows: list[Stretch] = []
    for (before_ns, at_ns), period_us in zip(itertools.pairwise(steps.monotonic_ns), steps.period_us[1:], strict=True):
        if period_us is not None:
            rows.append((round((at_ns - before_ns) / 1000 / period_us) == 1, period_us))
    grouped = itertools.groupby(rows, key=lambda row: row[0])
    return [(dense, statistics.fmean(period for _, period in group)) for dense, group in grouped]


def contrasts(found: Sequence[Stretch]) -> list[float]:
    """Log-ratios of each stretch and the mean of its two neighbours: a linear drift cancels. The first is warm-up."""
    ratios = []
    for (_, before), (dense, here), (_, after) in zip(found[1:], found[2:], found[3:], strict=False):
        ratio = math.log(here) - (math.log(before) + math.log(after)) / 2
        ratios.append(ratio if dense else -ratio)
    return ratios


def _period_claim(batch: int, blocks: Sequence[BlockRecord]) -> Claim:
    sentence = f"the period at batch {batch} moves by less than 0.5 %, 95 % interval over launches"
    effects = launch_effects([block for block in blocks if block.batch == batch])
    if len(effects) < 3:
        return Claim(sentence, holds=False, seen=f"{len(effects)} launches")
    interval = ratio_interval(effects)
    low, high = interval.low - 1, interval.high - 1
    seen = f"{interval.ratio - 1:+.3%} [{low:+.3%}, {high:+.3%}], {len(effects)} launches"
    return Claim(sentence, holds=low > -PERIOD_LIMIT and high < PERIOD_LIMIT, seen=seen)


def _costs(blocks: Sequence[BlockRecord]) -> list[Mapping[str, Any]]:
    return [cost for block in blocks if isinstance(cost := block.telemetry.get("step_clock"), dict)]
