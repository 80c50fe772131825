"""Goodput: the share of requests that met a stated objective, beside the times that decide.

After DistServe (Zhong et al., OSDI 2024): a request counts if both its time to first token and its time per output
token are within the objective. Here load is closed, one batch at a time, so the rate is that of a batch's own decoding.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from equipoise_evals.judge.steps import TimedBlock
from equipoise_evals.model import ROLES, ClientTiming, Goodput, Interval, LatencyPlan, Role, Slo
from equipoise_evals.stats.checks import mean_sd
from equipoise_evals.stats.latency import t_half_width

US_PER_S, US_PER_MS = 1e6, 1e3
LEVEL = 0.95


def judge_goodput(quads: Sequence[Sequence[TimedBlock]], latency: LatencyPlan) -> Goodput | None:
    """Goodput at the primary batch over complete launch pairs; None without an objective or without client times.

    Args:
        quads: Blocks of each launch pair, in order.
        latency: The plan's latency half.
    """
    slo = latency.slo
    timed = all(block.record.client for blocks in quads for block in blocks)
    if slo is None or not quads or not timed:
        return None
    shares = [_by_role(blocks, slo, met_share) for blocks in quads]
    rates = [_by_role(blocks, slo, good_per_s) for blocks in quads]
    differences = [100 * (pair["B"] - pair["A"]) for pair in shares]
    return Goodput(
        slo=slo,
        batch=latency.primary_batch,
        pairs=len(shares),
        baseline_share=fmean(pair["A"] for pair in shares),
        candidate_share=fmean(pair["B"] for pair in shares),
        baseline_per_s=fmean(pair["A"] for pair in rates),
        candidate_per_s=fmean(pair["B"] for pair in rates),
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
    """The t interval over launch pairs; shares that never differ would claim certainty, and have none."""
    mean, sd = mean_sd(differences)
    if len(differences) < 2 or sd == 0:
        return None
    half = t_half_width(sd, len(differences), LEVEL)
    return Interval(low=mean - half, high=mean + half, level=LEVEL)
