"""Checks of error rates: simulate through the production judge, then judge the count by an exact binomial test."""

import numpy as np

from equipoise_evals.calibrate.latency import latency_plan, simulate_latency
from equipoise_evals.calibrate.worlds import LatencyWorld
from tests.support.rates import at_least, at_most


def require_at_most(limit: float, hits: int, runs: int) -> None:
    """Fail if ``hits`` of ``runs`` are too many for a true rate of at most ``limit``."""
    assert at_most(hits, runs, limit), f"{hits} of {runs} at a limit of {limit:.1%}"


def require_at_least(limit: float, hits: int, runs: int) -> None:
    """Fail if ``hits`` of ``runs`` are too few for a true rate of at least ``limit``."""
    assert at_least(hits, runs, limit), f"{hits} of {runs} at a least rate of {limit:.1%}"


def false_differences(world: LatencyWorld, runs: int, seed: int, margin: float = 0.005) -> int:
    """Runs of an A/A world that end ``faster`` or ``slower``."""
    rng, plan = np.random.default_rng(seed), latency_plan(margin=margin)
    return sum(simulate_latency(world, plan, rng).word in {"faster", "slower"} for _ in range(runs))
