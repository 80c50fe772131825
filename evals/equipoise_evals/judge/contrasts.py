"""From blocks to one log-ratio per launch pair, metric and batch size."""

from collections.abc import Iterable, Sequence
from statistics import fmean, geometric_mean
from typing import Protocol, TypeVar

import numpy as np

from equipoise_evals.judge.steps import Floats, TimedBlock, comparable_times, require_running_clock, timed_block
from equipoise_evals.judge.two_level import PairLevels, pair_levels
from equipoise_evals.model import BlockRecord, Frozen, LatencyPlan, Metric, Role
from equipoise_evals.stats.latency import abba_contrast

METRICS: tuple[Metric, ...] = ("busy", "period", "client_tpot")


class PairContrast(Frozen):
    """One metric at one batch size in one launch pair: natural log of candidate over baseline, and both times.

    The times are geometric means of block means, so that their ratio is the contrast.
    """

    pair: int
    log_ratio: float
    median_log_ratio: float
    baseline_us: float
    candidate_us: float


Contrasts = dict[tuple[Metric, int], list[PairContrast]]
"""By metric and batch size."""

Unit = tuple[PairContrast, ...]
"""Launch pairs that make one log-ratio together: one pair, or two of which each undoes what the other adds."""


class OfOnePair(Protocol):
    """Something that is known of one launch pair."""

    @property
    def pair(self) -> int:
        """Its 1-based number."""


Known = TypeVar("Known", bound=OfOnePair)

Quads = dict[int, list[TimedBlock]]
"""By number of the quad, the blocks in the order run."""


def quads_by_pair(blocks: Iterable[BlockRecord], latency: LatencyPlan) -> dict[tuple[int, int], Quads]:
    """Blocks by batch size and pair, of those pairs whose planned quads are all complete.

    Raises ``UnusableQuadError`` where the clock of a block cannot have run.
    """
    grouped: dict[tuple[int, int], Quads] = {}
    for block in sorted(blocks, key=lambda b: (b.batch, b.pair, b.quad, b.position)):
        quads = grouped.setdefault((block.batch, block.pair), {})
        timed = timed_block(block, latency)
        require_running_clock(timed)
        quads.setdefault(block.quad, []).append(timed)
    return {
        key: quads
        for key, quads in grouped.items()
        if len(quads) == latency.quads_per_pair and all(len(quad) == 4 for quad in quads.values())
    }


def all_contrasts(complete: dict[tuple[int, int], Quads], latency: LatencyPlan) -> Contrasts:
    """Every contrast that complete launch pairs allow: per metric and batch size, in order of pairs.

    The client's metric is left out of a pair in which a block has no client-side times. Raises ``UnusableQuadError``
    if the blocks of a quad have too few steps in common.
    """
    contrasts: Contrasts = {(metric, batch): [] for metric in METRICS for batch in latency.batch_sizes}
    for (batch, pair), quads in complete.items():
        timed_by_clients = all(block.client_us.size for quad in quads.values() for block in quad)
        for metric in METRICS if timed_by_clients else METRICS[:2]:
            contrasts[metric, batch].append(_pair_contrast(pair, list(quads.values()), metric))
    return contrasts


def units_of(pairs: Sequence[Known], pairs_per_unit: int) -> list[tuple[Known, ...]]:
    """Complete units, in order: pairs 1 and 2, 3 and 4, and so on where two pairs make one."""
    grouped: dict[int, list[Known]] = {}
    for pair in pairs:
        grouped.setdefault((pair.pair - 1) // pairs_per_unit, []).append(pair)
    return [tuple(unit) for unit in grouped.values() if len(unit) == pairs_per_unit]


def primary_levels(complete: dict[tuple[int, int], Quads], latency: LatencyPlan) -> list[PairLevels]:
    """Whether the steps of each complete launch pair jump between two levels at the primary batch, in order."""
    levels = []
    for (batch, _), quads in complete.items():
        if batch == latency.primary_batch:
            arms: dict[Role, list[Floats]] = {"A": [], "B": []}
            for quad in quads.values():
                for block in quad:
                    arms[block.record.role].append(block.busy_us)
            levels.append(pair_levels(arms))
    return levels


def _pair_contrast(pair: int, quads: Sequence[list[TimedBlock]], metric: Metric) -> PairContrast:
    times = [comparable_times(quad, metric) for quad in quads]
    means = [[(role, float(us.mean())) for role, us in quad] for quad in times]
    medians = [[(role, _median(us)) for role, us in quad] for quad in times]
    return PairContrast(
        pair=pair,
        log_ratio=fmean(abba_contrast(quad) for quad in means),
        median_log_ratio=fmean(abba_contrast(quad) for quad in medians),
        baseline_us=geometric_mean([us for quad in means for role, us in quad if role == "A"]),
        candidate_us=geometric_mean([us for quad in means for role, us in quad if role == "B"]),
    )


def _median(values: Floats) -> float:
    """The median; numpy's own costs ten times as much on a short block."""
    ordered, middle = np.sort(values), values.size // 2
    return float(ordered[middle] if values.size % 2 else (ordered[middle - 1] + ordered[middle]) / 2)
