"""From raw blocks to one log-ratio per launch pair. Which steps count is decided here and nowhere else.

Step time rises with the context inside a block, so blocks are compared over the contexts that all blocks of a quad
have in common, after the planned warm-up steps.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from equipoise_evals.judge.two_level import PairLevels, pair_levels
from equipoise_evals.model import BlockRecord, Frozen, LatencyPlan, Metric, Role
from equipoise_evals.stats.latency import abba_contrast

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Quad = list[tuple[Role, float]]
METRICS: tuple[Metric, ...] = ("busy", "period", "client_tpot")


class UnusableQuadError(ValueError):
    """A quad has too few comparable steps to be a measurement."""


class PairContrast(Frozen):
    """One metric at one batch size in one launch pair: natural log of candidate over baseline, and both levels."""

    pair: int
    log_ratio: float
    median_log_ratio: float
    baseline_us: float
    candidate_us: float


Contrasts = dict[tuple[Metric, int], list[PairContrast]]
"""By metric and batch size."""

MIN_COMMON_STEPS = 4


def all_contrasts(blocks: Iterable[BlockRecord], latency: LatencyPlan) -> Contrasts:
    """Every contrast that these blocks allow: per metric and batch size, one per complete launch pair, in order.

    A pair counts once every planned quad of the batch size is complete. The client's metric is left out where a block
    has no client-side times. Raises ``UnusableQuadError`` if a quad has fewer than 4 comparable steps in some block.
    """
    grouped: dict[tuple[int, int], dict[int, list[BlockRecord]]] = {}
    for block in blocks:
        grouped.setdefault((block.batch, block.pair), {}).setdefault(block.quad, []).append(block)
    contrasts: Contrasts = {(metric, batch): [] for metric in METRICS for batch in latency.batch_sizes}
    for (batch, pair), quads in sorted(grouped.items()):
        if len(quads) == latency.quads_per_pair and all(len(quad) == 4 for quad in quads.values()):
            for metric in METRICS:
                if metric != "client_tpot" or all(block.client for quad in quads.values() for block in quad):
                    contrasts[metric, batch].append(_pair_contrast(pair, list(quads.values()), latency, metric))
    return contrasts


def primary_levels(blocks: Iterable[BlockRecord], latency: LatencyPlan) -> list[PairLevels]:
    """Whether the steps of each launch pair jump between two levels, at the primary batch, in order of pairs."""
    times: dict[int, dict[Role, list[Floats]]] = {}
    for block in blocks:
        if block.batch == latency.primary_batch:
            _, us = _engine_times(block, latency, "busy")
            if us.size:
                times.setdefault(block.pair, {"A": [], "B": []})[block.role].append(us)
    return [pair_levels(arms) for _, arms in sorted(times.items()) if all(arms.values())]


def _pair_contrast(pair: int, quads: Sequence[list[BlockRecord]], latency: LatencyPlan, metric: Metric) -> PairContrast:
    quads_of_times = [_comparable_times(quad, latency, metric) for quad in quads]
    means: list[Quad] = [[(role, float(np.mean(us))) for role, us in quad] for quad in quads_of_times]
    medians: list[Quad] = [[(role, float(np.median(us))) for role, us in quad] for quad in quads_of_times]
    return PairContrast(
        pair=pair,
        log_ratio=fmean(abba_contrast(quad) for quad in means),
        median_log_ratio=fmean(abba_contrast(quad) for quad in medians),
        baseline_us=fmean(us for quad in means for role, us in quad if role == "A"),
        candidate_us=fmean(us for quad in means for role, us in quad if role == "B"),
    )


def _comparable_times(quad: list[BlockRecord], latency: LatencyPlan, metric: Metric) -> list[tuple[Role, Floats]]:
    ordered = sorted(quad, key=lambda block: block.position)
    if metric == "client_tpot":
        return [(block.role, _client_times(block)) for block in ordered]
    timed = [_engine_times(block, latency, metric) for block in ordered]
    first = timed[0][0]
    if all(np.array_equal(contexts, first) for contexts, _ in timed):
        common = first  # the usual case, and far cheaper
    else:
        common = reduce(np.intersect1d, (contexts for contexts, _ in timed))
    if len(common) < MIN_COMMON_STEPS:
        raise UnusableQuadError(
            f"pair {ordered[0].pair}, batch {ordered[0].batch}, quad {ordered[0].quad}: only {len(common)} steps "
            f"decoded at contexts that all four blocks share"
        )
    return [(block.role, us[np.isin(contexts, common)]) for block, (contexts, us) in zip(ordered, timed, strict=True)]


def _client_times(block: BlockRecord) -> Floats:
    return np.array([timing.tpot_us for timing in block.client])


def _engine_times(block: BlockRecord, latency: LatencyPlan, metric: Metric) -> tuple[Integers, Floats]:
    """Contexts in tokens and times in microseconds of the full-batch steps after the warm-up, absent ones left out."""
    columns = block.steps
    times = np.array(columns.busy_us if metric == "busy" else columns.period_us, dtype=np.float64)
    contexts = np.array(columns.context_tokens, dtype=np.int64)
    full = np.flatnonzero(np.array(columns.real_batch, dtype=np.int64) == block.batch)[latency.warmup_steps :]
    measured = full[np.isfinite(times[full])]
    return contexts[measured], times[measured]
