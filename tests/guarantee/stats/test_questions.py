"""Error rates of paired statistics: exact by enumeration where the sample space allows it, simulated elsewhere."""

import numpy as np
import pytest
from scipy import stats

from equipoise_evals.stats.equality import launch_permutation, mismatch_upper, output_shift
from equipoise_evals.stats.paired import clustered_mean, mcnemar, tango_interval, tango_noninferiority
from equipoise_evals.stats.sequential import gsprt
from tests.support.rates import at_least, at_most

pytestmark = pytest.mark.guarantee


@pytest.mark.parametrize("discordance", [0.005, 0.02, 0.08])
def test_mcnemar_size_enumerated(discordance: float) -> None:
    """1,319 questions, both arms alike: the exact test never exceeds 5 %, mid-p by less than a tenth of it."""
    total_exact = total_midp = 0.0
    for discordant in range(220):
        weight = stats.binom.pmf(discordant, 1319, discordance)
        for b in range(discordant + 1):
            result = mcnemar(b, discordant - b)
            probability = weight * stats.binom.pmf(b, discordant, 0.5) if weight > 1e-12 else 0.0
            total_exact += probability * (result.exact_p < 0.05)
            total_midp += probability * (result.midp < 0.05)
    assert total_exact <= 0.05
    assert total_exact < total_midp <= 0.055


def test_the_size_of_tangos_interval_enumerated() -> None:
    """Both arms alike, up to a tenth of the questions discordant: it excludes 0 in at most 5.3 %, and in more than 5 %.

    Whether it does depends on b and c alone, not on n (the score at 0 is (b - c)/sqrt(b + c)).
    """
    outside = np.zeros(221)
    for discordant in range(1, 221):
        lost = np.arange(discordant + 1)
        excludes = [tango_interval(discordant - c, c, 1319).high < 0 for c in lost.tolist()]
        outside[discordant] = 2 * stats.binom.pmf(lost, discordant, 0.5)[excludes].sum()
    for questions, greatest in ((200, 0.1), (300, 0.1), (1319, 0.1)):
        shares = np.linspace(0.001, greatest, 100)[:, None]
        sizes = stats.binom.pmf(np.arange(221), questions, shares) @ outside
        assert 0.05 < sizes.max() <= 0.0535


@pytest.mark.parametrize(("p_b", "p_c"), [(0.03, 0.02), (0.1, 0.1), (0.2, 0.1), (0.4, 0.05)])
def test_tango_covers_enumerated(p_b: float, p_c: float) -> None:
    """All tables of 60 questions: the 95 % interval holds the true difference 94-99 % of the time."""
    covered = 0.0
    for b in range(61):
        for c in range(61 - b):
            probability = stats.multinomial.pmf([b, c, 60 - b - c], 60, [p_b, p_c, 1 - p_b - p_c])
            if probability > 1e-10:
                interval = tango_interval(b, c, 60)
                covered += probability * (interval.low <= p_b - p_c <= interval.high)
    assert 0.94 <= covered <= 0.99


def test_noninferiority_errs_at_most_its_level() -> None:
    """At a true loss of exactly the margin, of 1,319 questions: non-inferior in about 5 % (score test)."""
    rng, runs = np.random.default_rng(1), 20_000
    tables = rng.multinomial(1319, [0.02, 0.03, 0.95], runs)
    passed = sum(tango_noninferiority(b, c, 1319, 0.01).p_value < 0.05 for b, c, _ in tables.tolist())
    assert at_most(passed, runs, 0.055)
    assert at_least(passed, runs, 0.045)


def test_clustered_interval_covers_where_the_naive_does_not() -> None:
    """100 questions, 4 passes each, most of the variance between questions."""
    rng, runs = np.random.default_rng(2), 4_000
    clusters = np.repeat(np.arange(100), 4).tolist()
    covered = naive = 0
    for _ in range(runs):
        scores = rng.random((100, 4)) < rng.beta(0.3, 0.2, (100, 1))
        result = clustered_mean(scores.ravel(), clusters)
        interval = result.interval()
        covered += interval.low <= 0.6 <= interval.high
        naive += abs(result.mean - 0.6) <= 1.96 * result.se_naive
    assert at_least(covered, runs, 0.94)
    assert not at_least(naive, runs, 0.94)


@pytest.mark.parametrize(("mismatches_true", "n"), [(0.001, 1319), (0.02, 300), (0.5, 40)])
def test_mismatch_bound_covers_enumerated(mismatches_true: float, n: int) -> None:
    """Clopper-Pearson: the upper bound holds the true rate at least as often as it says."""
    covered = sum(
        stats.binom.pmf(k, n, mismatches_true) for k in range(n + 1) if mismatch_upper(k, n) >= mismatches_true
    )
    assert covered >= 0.95


Texts = list[int]


def texts(rng: np.random.Generator, questions: int, flip: float) -> Texts:
    """Outputs of one launch: text 0, or another one with probability ``flip``."""
    changed: Texts = np.where(rng.random(questions) < flip, rng.integers(1, 3, questions), 0).tolist()
    return changed


def moved(run: Texts, questions: int) -> Texts:
    """The run with new texts on its first questions."""
    return [9] * questions + run[questions:]


def test_output_shift_size_and_power() -> None:
    """Four launches of one process: p < 0.05 at most 5 %. One arm with 7 % new texts: seen nearly always."""
    rng, runs = np.random.default_rng(3), 600
    false = true = 0
    for _ in range(runs):
        one = [texts(rng, 200, 0.05) for _ in range(4)]
        false += output_shift(one[0], one[1], one[2], one[3], rng, 500).p_value < 0.05
        true += output_shift(one[0], one[1], moved(one[2], 15), moved(one[3], 15), rng, 500).p_value < 0.01
    assert at_most(false, runs, 0.05)
    assert at_least(true, runs, 0.95)


def launch_with_state(rng: np.random.Generator) -> Texts:
    """A launch that picks one of two kernels at start, which decides 10 % of its texts."""
    return [5 * int(rng.integers(0, 2))] * 10 + texts(rng, 90, 0.02)


def test_launch_states_fool_the_questions_but_not_the_launches() -> None:
    """Both arms alike, launch-wide states: the 4-run test suspects far above its level; the permutation keeps 1 %."""
    rng, runs = np.random.default_rng(4), 600
    suspected = confirmed = 0
    for _ in range(runs):
        outputs = [launch_with_state(rng) for _ in range(10)]
        suspected += output_shift(outputs[0], outputs[1], outputs[5], outputs[6], rng, 500).p_value < 0.01
        confirmed += launch_permutation(outputs[:5], outputs[5:]).p_value < 0.01
    assert not at_most(suspected, runs, 0.05)
    assert at_most(confirmed, runs, 0.01)


def test_launch_permutation_sees_a_real_shift() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        baseline = [texts(rng, 200, 0.02) for _ in range(5)]
        candidate = [moved(texts(rng, 200, 0.02), 20) for _ in range(5)]
        assert launch_permutation(baseline, candidate).p_value < 0.01


def test_gsprt_keeps_both_errors() -> None:
    """Under each hypothesis, looking every 200 questions up to 20,000: the wrong end at most 5 % of the time."""
    rng, runs = np.random.default_rng(6), 1_000
    for mean, wrong in ((-0.01, "accept_high"), (0.01, "accept_low")):
        errors = 0
        for _ in range(runs):
            steps = rng.multinomial(200, [0.04 - mean / 2, 0.92, 0.04 + mean / 2], 100).cumsum(axis=0)
            ends = (gsprt(lost, drawn, won, -0.01, 0.01).decision for lost, drawn, won in steps.tolist())
            errors += next((end for end in ends if end != "continue"), "continue") == wrong
        assert at_most(errors, runs, 0.05)
