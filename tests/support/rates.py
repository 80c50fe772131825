"""How a simulated rate is judged: by an exact binomial bound, never by a tolerance of taste."""

from scipy import stats

LEVEL = 0.001
"""Chance of a false alarm of one check; seeds are fixed, so a check that passes once always passes."""


def at_most(events: int, runs: int, rate: float) -> bool:
    """The simulation does not show a rate above ``rate``."""
    return bool(stats.binomtest(events, runs, rate, alternative="greater").pvalue > LEVEL)


def at_least(events: int, runs: int, rate: float) -> bool:
    """The simulation does not show a rate below ``rate``."""
    return bool(stats.binomtest(events, runs, rate, alternative="less").pvalue > LEVEL)


def exactly(events: int, runs: int, rate: float) -> bool:
    """The simulation does not show a rate other than ``rate``."""
    return bool(stats.binomtest(events, runs, rate).pvalue > LEVEL)
