"""How often the checks of a block raise a false alarm, and how often they see what they are for."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import signal

from equipoise_evals.stats.steady import mser5, steady_state, two_levels
from tests.support.rates import at_least, at_most

pytestmark = pytest.mark.guarantee

RUNS = 1_000
Steps = NDArray[np.float64]


def noise(rng: np.random.Generator, n: int, rho: float = 0.3) -> Steps:
    """AR(1) of unit variance."""
    white = rng.standard_normal(n + 300) * math.sqrt(1 - rho**2)
    return np.asarray(signal.lfilter([1.0], [1.0, -rho], white)[300:], dtype=np.float64)


def spiked(rng: np.random.Generator, steps: Steps, share: float, size: float) -> Steps:
    return steps * (1 + (rng.random(steps.size) < share) * rng.exponential(size, steps.size))


UNIMODAL: dict[str, Callable[[np.random.Generator, int, float], Steps]] = {
    "white": lambda rng, n, cv: 1 + cv * noise(rng, n, 0.0),
    "ar6": lambda rng, n, cv: 1 + cv * noise(rng, n, 0.6),
    "ar9": lambda rng, n, cv: 1 + cv * noise(rng, n, 0.9),
    "growth": lambda rng, n, cv: 1 + cv * noise(rng, n) + 0.01 * np.arange(n) / 200,
    "t3": lambda rng, n, cv: np.maximum(0.5, 1 + cv * rng.standard_t(3, n) / 1.7),
    "skewed": lambda rng, n, cv: np.exp(2 * cv * np.exp(noise(rng, n))),
    "few_spikes": lambda rng, n, cv: spiked(rng, 1 + cv * noise(rng, n), 0.03, 0.5),
    "many_spikes": lambda rng, n, cv: spiked(rng, 1 + cv * noise(rng, n), 0.10, 0.2),
}


@pytest.mark.parametrize("cv", [0.005, 0.02])
@pytest.mark.parametrize("world", UNIMODAL)
def test_two_levels_seldom_seen_in_one(world: str, cv: float) -> None:
    """Blocks of 256 steps: at most 2 % false alarms, 4 % where a tenth of the steps are spikes."""
    rng = np.random.default_rng(sum(map(ord, world)))
    alarms = sum(two_levels(UNIMODAL[world](rng, 256, cv)).found for _ in range(RUNS))
    assert at_most(alarms, RUNS, 0.04 if world == "many_spikes" else 0.02)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8])
def test_two_levels_seen(share: float) -> None:
    """4390 and 4590 us with 0.5 % of noise at each level and 2 % of spikes: seen in 95 % of blocks."""
    rng = np.random.default_rng(round(100 * share))
    seen = 0
    for _ in range(RUNS):
        steps = np.where(rng.random(256) < share, 4390.0, 4590.0) * (1 + 0.005 * noise(rng, 256, 0.6))
        seen += two_levels(spiked(rng, steps, 0.02, 0.3)).found
    assert at_least(seen, RUNS, 0.95)


@pytest.mark.parametrize("rho", [0.0, 0.6, 0.9])
def test_steady_blocks_seldom_condemned(rho: float) -> None:
    """256 steps, CV 1 %: at most 2 % called drifting, at most 2 % called never settled."""
    rng = np.random.default_rng(round(10 * rho))
    blocks = [1 + 0.01 * noise(rng, 256, rho) for _ in range(RUNS)]
    assert at_most(sum(not steady_state(block).steady for block in blocks), RUNS, 0.02)
    assert at_most(sum(not mser5(block).settled for block in blocks), RUNS, 0.02)


def test_drift_and_warm_up_seen() -> None:
    """2 % of drift is condemned; a decaying warm-up of 5 % is dropped, and what is left has at most 0.2 % of it."""
    rng = np.random.default_rng(11)
    place = np.arange(256)
    drifting = condemned = clean = 0
    for _ in range(RUNS):
        base = 1 + 0.005 * noise(rng, 256)
        condemned += not steady_state(base + 0.02 * place / 256).steady
        warm_up = 0.05 * np.exp(-place / 30)
        drop = mser5(base + warm_up).drop
        clean += warm_up[drop:].mean() < 0.002
        drifting += 1
    assert at_least(condemned, drifting, 0.95)
    assert at_least(clean, drifting, 0.95)
