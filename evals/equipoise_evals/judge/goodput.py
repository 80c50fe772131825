"""Goodput: the share of requests that met a stated objective, beside the times that decide.

After DistServe (Zhong et al., OSDI 2024): a request counts if both its time to first token and its time per output
token are within the objective. Here load is closed, one batch at a time, so the rate is that of a batch's own decoding.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from equipoise_evals.judge.contrasts import Quads, units_of
from equipoise_evals.judge.steps import TimedBlock
from equipoise_evals.model import ROLES, ClientTiming, Goodput, Interval, LatencyPlan, Role, Slo
from equipoise_evals.stats.checks import mean_sd
from equipoise_evals.stats.latency import t_half_width

US_PER_S, US_PER_MS = 1e6, 1e3
LEVEL = 0.95


class _OfPair(NamedTuple):
    """Share and rate of each arm's requests in one launch pair."""

    pair: int
    share: Mapping[Role, float]
    per_s: Mapping[Role, float]


def judge_goodput(
    complete: Mapping[tuple[int, int], Quads], latency: LatencyPlan, pairs_per_unit: int
) -> Goodput | None:
    """Goodput at the primary batch over complete units of launch pairs; None without an objective or client times.

    Args:
        complete: Blocks of complete launch pairs, by batch size and pair.
        latency: The plan's latency half.
        pairs_per_unit: Launch pairs that make one number of the interval: only in their mean does what differs between
            device sets, or from one launch to the next, cancel.
    """
    slo = latency.slo
    blocks = {
        pair: [block for quad in quads.values() for block in quad]
        for (batch, pair), quads in complete.items()
        if batch == latency.primary_batch
    }
    if slo is None or not all(block.record.client for of_pair in blocks.values() for block in of_pair):
        return None
    found = [
        _OfPair(pair, _by_role(of_pair, slo, met_share), _by_role(of_pair, slo, good_per_s))
        for pair, of_pair in blocks.items()
    ]
    units = units_of(found, pairs_per_unit)
    pairs = [pair for unit in units for pair in unit]
    if not pairs:
        return None
    differences = [fmean(100 * (pair.share["B"] - pair.share["A"]) for pair in unit) for unit in units]
    return Goodput(
        slo=slo,
        batch=latency.primary_batch,
        pairs=len(pairs),
        baseline_share=fmean(pair.share["A"] for pair in pairs),
        candidate_share=fmean(pair.share["B"] for pair in pairs),
        baseline_per_s=fmean(pair.per_s["A"] for pair in pairs),
        candidate_per_s=fmean(pair.per_s["B"] for pair in pairs),
        difference_pp=fmean(differences),
        interval_pp=_interval(differences),
    )


def met(timing: ClientTiming, slo: Slo) -> bool:
    """Whether one request met everything that the objective asks."""
    in_time = slo.ttft_ms is None or timing.ttft_us <= slo.ttft_ms * US_PER_MS
    return in_time and (slo.tpot_ms is None or timing.tpot_us <= slo.tpot_ms * US_PER_MS)


def met_share(requests: Sequence[ClientTiming], slo: Slo) -> float:
    """Share of requests that met the objective."""
    return fmean(met(timing, slo) for timing in requests)


def good_per_s(requests: Sequence[ClientTiming], slo: Slo) -> float:
    """Requests that met the objective per second, until the last of a batch that began together had ended."""
    lasted_us = max(timing.ttft_us + timing.tpot_us * (timing.output_tokens - 1) for timing in requests)
    return sum(met(timing, slo) for timing in requests) / lasted_us * US_PER_S


def _by_role(
    blocks: Sequence[TimedBlock], slo: Slo, of_block: Callable[[Sequence[ClientTiming], Slo], float]
) -> Mapping[Role, float]:
    return {
        role: fmean(of_block(block.record.client, slo) for block in blocks if block.record.role == role)
        for role in ROLES
    }


def _interval(differences: Sequence[float]) -> Interval | None:
    """The t interval over units; shares that never differ would claim certainty, and have none."""
    mean, sd = mean_sd(differences)
    if len(differences) < 2 or sd == 0:
        return None
    half = t_half_width(sd, len(differences), LEVEL)
    return Interval(low=mean - half, high=mean + half, level=LEVEL)
