"""Checks of error rates: simulate through the production judge, then judge the count by an exact binomial test."""

import numpy as np
from scipy.stats import binomtest

from equipoise_evals.calibrate.latency import latency_plan, simulate_latency
from equipoise_evals.calibrate.worlds import LatencyWorld

LEAST_P = 0.001
"""A count is held against its limit only if it would be this improbable at the limit."""


def require_at_most(limit: float, hits: int, runs: int) -> None:
    """Fail if ``hits`` of ``runs`` are too many for a true rate of at most ``limit``."""
    p_value = binomtest(hits, runs, limit, alternative="greater").pvalue
    assert p_value > LEAST_P, f"{hits} of {runs} at a limit of {limit:.1%}: p = {p_value:.2g}"


def require_at_least(limit: float, hits: int, runs: int) -> None:
    """Fail if ``hits`` of ``runs`` are too few for a true rate of at least ``limit``."""
    p_value = binomtest(hits, runs, limit, alternative="less").pvalue
    assert p_value > LEAST_P, f"{hits} of {runs} at a least power of {limit:.1%}: p = {p_value:.2g}"


def false_differences(world: LatencyWorld, runs: int, seed: int, margin: float = 0.005) -> int:
    """Runs of an A/A world that end ``faster`` or ``slower``."""
    rng, plan = np.random.default_rng(seed), latency_plan(margin=margin)
    return sum(simulate_latency(world, plan, rng).word in {"faster", "slower"} for _ in range(runs))
