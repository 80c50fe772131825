"""The borrowed launch variance against its defining equations and the plain t."""

import math

import numpy as np
import pytest
from scipy import special, stats

from equipoise_evals.stats.latency import ratio_interval
from equipoise_evals.stats.moderated import LaunchPrior, launch_prior, moderated_interval

PRIOR = LaunchPrior(d0=12.0, s0=0.002, histories=20)


def simulated_history(seed: int, d0: float, s0: float, histories: int) -> tuple[list[float], list[int]]:
    """SDs of A/A comparisons whose launch variances are scaled inverse chi-square, as the model says."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(3, 11, histories)
    variances = s0**2 * (d0 / rng.chisquare(d0, histories) if math.isfinite(d0) else np.ones(histories))
    sds = np.sqrt(variances * rng.chisquare(pairs - 1) / (pairs - 1))
    return sds.tolist(), pairs.tolist()


def test_prior_recovers_its_parameters() -> None:
    prior = launch_prior(*simulated_history(1, 8.0, 0.003, 4_000))
    assert prior.d0 == pytest.approx(8.0, rel=0.15)
    assert prior.s0 == pytest.approx(0.003, rel=0.03)
    assert prior.histories == 4_000


def test_prior_solves_its_moment_equations() -> None:
    """Smyth 2004, section 6.2: mean and variance of log s^2 under the fitted prior equal those of the sample."""
    sds, pairs = simulated_history(2, 4.0, 0.003, 60)
    prior, df = launch_prior(sds, pairs), np.array(pairs) - 1
    log_variances = 2 * np.log(sds)
    centred = log_variances - special.digamma(df / 2) + np.log(df / 2)
    assert centred.var(ddof=1) == pytest.approx(
        special.polygamma(1, df / 2).mean() + special.polygamma(1, prior.d0 / 2), rel=1e-9
    )
    location = 2 * math.log(prior.s0) - special.digamma(prior.d0 / 2) + math.log(prior.d0 / 2)
    assert centred.mean() == pytest.approx(location, rel=1e-9)


def test_prior_of_one_variance_is_capped() -> None:
    """Histories no more different than chance: d0 is the degrees of freedom they hold, not infinity."""
    prior = launch_prior([0.003, 0.0031, 0.0029, 0.003], [5, 5, 5, 5])
    assert prior.d0 == 16.0
    assert prior.s0 == pytest.approx(0.003 * math.exp(-(special.digamma(2) - math.log(2)) / 2), rel=1e-2)


@pytest.mark.parametrize(
    ("sds", "pairs"),
    [
        ([0.1, 0.1], [3, 3]),
        ([0.1, 0.1, 0.0], [3, 3, 3]),
        ([0.1, 0.1, 0.1], [3, 3, 1]),
        ([0.1, 0.1, 0.1], [3, 3, 3, 3]),
        ([0.1, 0.1, math.nan], [3, 3, 3]),
    ],
)
def test_prior_refuses(sds: list[float], pairs: list[int]) -> None:
    with pytest.raises(ValueError, match=r"needs at least|positive SD|missing"):
        launch_prior(sds, pairs)


def test_moderated_interval_written_out() -> None:
    """Smyth 2004, eq. 1, with s0 inflated by 1.5; scipy's t on d0 + d degrees of freedom."""
    logs = [-0.0164, -0.0140, -0.0181]
    result = moderated_interval(logs, PRIOR, 0.98, most_df=12.0)
    sd = math.sqrt((12 * (1.5 * 0.002) ** 2 + 2 * np.var(logs, ddof=1)) / 14)
    half = stats.t.isf(0.01, 14) * sd / math.sqrt(3)
    assert result.borrowed
    assert (result.sd, result.df, result.level) == pytest.approx((sd, 14.0, 0.98), rel=1e-12)
    mean = float(np.mean(logs))
    assert (result.low, result.high) == pytest.approx((math.exp(mean - half), math.exp(mean + half)), rel=1e-12)
    assert result.guard_p == pytest.approx(stats.chi2.sf(2 * np.var(logs, ddof=1) / 0.003**2, 2), rel=1e-9)


def test_a_long_history_counts_for_four_degrees_of_freedom() -> None:
    """So that three pairs weigh a third of it and ten more than twice, however many A/A comparisons there were."""
    logs = [-0.0164, -0.0140, -0.0181]
    capped = moderated_interval(logs, PRIOR, 0.98)
    assert capped == moderated_interval(logs, PRIOR._replace(d0=4.0), 0.98, most_df=1e9)
    assert capped.df == 4.0 + 2
    assert moderated_interval(logs, PRIOR._replace(d0=3.0), 0.98).df == 3.0 + 2


def test_guard_falls_back_to_the_plain_t() -> None:
    """Pairs far more different than history: its variance is not used at all."""
    logs = [-0.03, 0.03, 0.01]
    result, plain = moderated_interval(logs, PRIOR, 0.9), ratio_interval(logs, 0.9)
    assert not result.borrowed
    assert result[:7] == plain
    assert (result.df, result.guard_p < 0.15) == (2.0, True)
    # Twice the inflated SD, at two pairs: the upper 4.6 % point of chi-square, not so far out that history stays.
    assert not moderated_interval([-0.006 / math.sqrt(2), 0.006 / math.sqrt(2)], PRIOR).borrowed


def test_moderated_edges() -> None:
    """One pair cannot be checked against history; equal pairs still get the history's width."""
    one = moderated_interval([-0.01], PRIOR)
    assert (one.borrowed, one.ratio) == (False, math.exp(-0.01))
    assert math.isnan(one.low)
    assert math.isnan(one.guard_p)
    same = moderated_interval([-0.01, -0.01], PRIOR)
    assert same.borrowed
    assert same.low < same.ratio < same.high
    for prior, inflation in ((PRIOR, 0.9), (LaunchPrior(12.0, 0.0, 3), 1.5), (LaunchPrior(0.0, 0.1, 3), 1.5)):
        with pytest.raises(ValueError, match="borrowed"):
            moderated_interval([0.1, 0.2], prior, inflation=inflation)
    with pytest.raises(ValueError, match="borrowed"):
        moderated_interval([0.1, 0.2], PRIOR, most_df=0.0)
