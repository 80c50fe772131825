"""Published and enumerated values, by their case number in ``../shared/cases/stats_open.json``.

The numbers are copied, each with its source, so that the suite needs nothing outside the repository;
``test_copies_agree`` compares the copies with the file where it is present. Optional cases without a test here
(V25, V30, V31, V36, V39-V41) belong to methods that the product does not use.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from equipoise_evals.stats.equality import launch_permutation, mismatch_upper
from equipoise_evals.stats.exact import miller_detectable_effect, miller_sample_size, sign_flip_exact, tost_paired
from equipoise_evals.stats.latency import quantile_hd, variance_components
from equipoise_evals.stats.multiple import holm
from equipoise_evals.stats.paired import (
    clustered_mean,
    mcnemar,
    mcnemar_sample_size,
    newcombe_interval,
    tango_interval,
    tango_noninferiority,
)
from equipoise_evals.stats.sequential import gsprt, spending_bounds, wald_bounds

CASES = Path(__file__).parents[4] / "shared" / "cases" / "stats_open.json"

SLEEP_X = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SLEEP_Y = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
DEPRESSION_X = [1.83, 0.5, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.3]
DEPRESSION_Y = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
DARWIN = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
CLUSTERS = [[1, 1, 0], [1, 1, 1], [0, 0, 1], [0, 0, 0], [1, 0, 1], [1, 1, 1]]
NESTED_3 = [[[9, 5], [8, 3]], [[10, 6], [7, 11]], [[1, 12], [2, 4]]]
NESTED_2 = [[9, 5, 8, 3], [10, 6, 7, 11], [1, 12, 2, 4]]
QUANTILES = [0.1, 0.25, 0.5, 0.75, 0.9]


def test_v01_mcnemar_bentur() -> None:
    """Fagerland, Lydersen & Laake 2013/2014, the data of Bentur 2009."""
    result = mcnemar(1, 7)
    expected = (0.0703125, 0.0390625, 0.0338949, 0.0770999)
    assert (result.exact_p, result.midp, result.asymptotic_p, result.corrected_p) == pytest.approx(expected, abs=1e-6)


def test_v03_mcnemar_approval() -> None:
    """Agresti's approval table; R mcnemar.test."""
    result = mcnemar(150, 86)
    assert (result.chi2, result.chi2_corrected) == pytest.approx((17.35593, 16.8178), abs=1e-5)
    expected = (3.71594e-05, 3.09929e-05, 4.11456e-05)
    assert (result.exact_p, result.asymptotic_p, result.corrected_p) == pytest.approx(expected, abs=1e-9)
    assert tango_interval(150, 86, 1600) == pytest.approx((0.0213616, 0.058998), abs=1e-5)


@pytest.mark.parametrize(
    ("b", "c", "n", "confidence", "expected"),
    [
        pytest.param(9, 3, 32, 0.95, (-0.0270905, 0.3896975), id="V04-Tango-1998-table-VII"),
        pytest.param(0, 1, 44, 0.90, (-0.0956624, 0.0365169), id="V05-Tango-1998-table-V"),
        pytest.param(1, 7, 21, 0.95, (-0.5172323, -0.026003), id="V06-Fagerland-2014"),
    ],
)
def test_tango_interval(b: int, c: int, n: int, confidence: float, expected: tuple[float, float]) -> None:
    """Tango 1998 tables V and VII, Fagerland 2014; further digits by R ratesci."""
    assert tango_interval(b, c, n, confidence) == pytest.approx(expected, abs=1e-5)


def test_v05_tango_noninferiority() -> None:
    """Tango 1998 table V."""
    assert tango_noninferiority(0, 1, 44, 0.1) == pytest.approx((1.7085643, 0.0437658), abs=1e-5)


def test_v09_newcombe() -> None:
    """Newcombe 1998, method 10 (0.0562, 0.3292)."""
    assert newcombe_interval(20, 12, 2, 16) == pytest.approx((0.0561564, 0.329207), abs=1e-5)


def test_v11_connor() -> None:
    """Connor 1987 / Miettinen 1968; R MESS."""
    n = mcnemar_sample_size(0.2, 0.1, alpha=0.05, power=0.8)
    assert n == pytest.approx(233.09454, abs=1e-4)
    assert math.ceil(n) == 234


def test_v13_gsm8k_net_12() -> None:
    """Enumeration: the most discordant questions at which a net 12 of 1,319 is significant at 5 %."""
    significant = dict.fromkeys(("midp", "exact_p", "asymptotic_p"), 0)
    for discordant in range(12, 1320, 2):
        result = mcnemar((discordant + 12) // 2, (discordant - 12) // 2)._asdict()
        for name in significant:
            if result[name] < 0.05:
                significant[name] = discordant
    assert significant == {"midp": 36, "exact_p": 30, "asymptotic_p": 36}


def test_v15_clustered() -> None:
    """Miller 2024 appendix A; inspect_ai's C/(C-1); R sandwich."""
    result = clustered_mean(np.array(CLUSTERS).ravel(), np.repeat(np.arange(6), 3).tolist())
    expected = (0.6111111, 0.1182356, 0.1452258, 0.1590869)
    assert (result.mean, result.se_naive, result.se_clustered, result.se_corrected) == pytest.approx(expected, abs=1e-6)


def test_v17_miller() -> None:
    """Miller 2024, sample-size equation, closed form."""
    assert miller_sample_size(0.03, 1 / 9, (1 / 6, 1 / 6)) == pytest.approx(3875.98999, abs=1e-4)
    assert miller_detectable_effect(198, 1 / 9, (1 / 6, 1 / 6)) == pytest.approx(0.1327333, abs=1e-4)
    assert miller_detectable_effect(198, 1 / 9, (1 / 6, 1 / 6), passes=10) == pytest.approx(0.0756696, abs=1e-4)


def test_v18_holm() -> None:
    """Textbook example; R p.adjust."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02], abs=1e-12)


def test_v20_tost() -> None:
    """R's sleep data; R t.test and statsmodels."""
    result = tost_paired(SLEEP_X, SLEEP_Y, -0.5, 0.5)
    got = (result.t_lower, result.p_lower, result.t_upper, result.p_upper, result.p_value)
    assert got == pytest.approx((-2.7766442, 0.9892408, -5.3476111, 0.0002319, 0.9892408), abs=1e-6)
    assert (result.low, result.high) == pytest.approx((-2.2930053, -0.8669947), abs=1e-6)
    assert tost_paired(SLEEP_X, SLEEP_Y, -2.5, 2.5).p_value == pytest.approx(0.0211169, abs=1e-6)


def test_v22_harrell_davis() -> None:
    """Harrell & Davis 1982 on the Hollander & Wolfe depression data."""
    expected = [0.6342654, 0.9798877, 1.4494849, 2.0166733, 2.7968832]
    assert [quantile_hd(DEPRESSION_X + DEPRESSION_Y, q) for q in QUANTILES] == pytest.approx(expected, abs=1e-6)


def test_v24_sign_flip_darwin() -> None:
    """Fisher 1935: 863 of 32,768 sign patterns of Darwin's maize."""
    result = sign_flip_exact(DARWIN)
    assert (result.count_ge, result.total) == (863, 32768)
    assert (result.p_greater, result.p_two) == pytest.approx((0.02633667, 0.05267334), abs=1e-7)


def test_v27_kalibera_jones_three_levels() -> None:
    """Kalibera & Jones 2013, worked example (16.5, 2.6, 3.6 / 16.5, -5.7, 2.3)."""
    result = variance_components(NESTED_3)
    assert result.s2 == pytest.approx([16.5, 2.583333, 3.5625], abs=1e-5)
    assert result.t2 == pytest.approx([16.5, -5.666667, 2.270833], abs=1e-5)


def test_v28_kalibera_jones_two_levels() -> None:
    """Kalibera & Jones 2013 (12.7, 3.6 / 12.7, 0.4), and the half-width of the mean's 95 % interval."""
    result = variance_components(NESTED_2)
    assert result.s2 == pytest.approx([12.722222, 3.5625], abs=1e-5)
    assert result.t2 == pytest.approx([12.722222, 0.381944], abs=1e-5)
    assert (result.high - result.low) / 2 == pytest.approx(4.688707, abs=1e-5)


def test_v32_obrien_fleming_spending() -> None:
    """Lan & DeMets 1983; R rpact."""
    expected = [4.8769, 3.357, 2.6803, 2.2898, 2.031]
    assert spending_bounds("obrien_fleming", [0.2, 0.4, 0.6, 0.8, 1]) == pytest.approx(expected, abs=1e-3)


def test_v35_wald() -> None:
    """Wald 1945."""
    assert wald_bounds(0.05, 0.05) == pytest.approx((-2.944439, 2.944439), abs=1e-6)
    result = gsprt(55, 1221, 43, -0.02, 0, alpha=0.05, beta=0.05)
    assert (result.lower, result.upper) == wald_bounds(0.05, 0.05)


def test_v37_gsprt() -> None:
    """fishtest's LLRcalc on the score scale; the normal approximation is the closed form it compares with."""
    losses, draws, wins, low, high = 55, 1221, 43, -0.02, 0.0
    assert gsprt(losses, draws, wins, low, high).llr == pytest.approx(0.3010215, abs=1e-6)
    n, mean = losses + draws + wins, (wins - losses) / (losses + draws + wins)
    variance = (wins + losses) / n - mean**2
    normal = n * (high - low) * (2 * mean - low - high) / (2 * variance)
    assert normal == pytest.approx(0.3206858, abs=1e-6)


def test_v43_rule_of_three() -> None:
    """Clopper & Pearson 1934; scipy binomtest."""
    assert mismatch_upper(0, 1319) == pytest.approx(0.00226864, abs=1e-7)
    assert mismatch_upper(0, 1319, confidence=0.975) == pytest.approx(0.00279282, abs=1e-7)


def test_v44_least_p_of_few_launches() -> None:
    """Combinatorics: what p can be reached with so few units; benchstat's table."""
    assert {n: sign_flip_exact([1.0] * n).p_two for n in (5, 6)} == {5: 0.0625, 6: 0.03125}
    separated = {n: stats.mannwhitneyu(range(n), range(n, 2 * n), method="exact").pvalue for n in (3, 4, 5)}
    assert separated == pytest.approx({3: 0.1, 4: 0.02857143, 5: 0.00793651}, abs=1e-7)
    apart = launch_permutation([["a"]] * 5, [["b"]] * 5)
    assert apart.p_value == pytest.approx(separated[5], abs=1e-12)


def test_gsm8k_66_discordant() -> None:
    """0.822 against 0.813 of 1,319 with 66 discordant questions (issue 3, acceptance 5): no claim of a difference."""
    assert tango_interval(39, 27, 1319) == pytest.approx((-0.0031, 0.0217), abs=5e-5)
    assert mcnemar(39, 27).midp == pytest.approx(0.142, abs=5e-4)


def test_gsm8k_12_discordant() -> None:
    """The same scores with 12 discordant questions, all one way: 2 x 2^-12 less half the observed term."""
    assert mcnemar(12, 0).midp == pytest.approx(2.0**-12, rel=1e-12)
    assert tango_interval(12, 0, 1319).low > 0


@pytest.mark.skipif(not CASES.exists(), reason="../shared is not beside this checkout")
def test_copies_agree() -> None:
    """The data copied above are those of the case file."""
    cases = {case["id"]: case["inputs"] for case in json.loads(CASES.read_text())}
    assert cases["V15"]["y"] == CLUSTERS
    assert (cases["V20"]["x"], cases["V20"]["y"]) == (SLEEP_X, SLEEP_Y)
    assert cases["V22"] == {"x": DEPRESSION_X + DEPRESSION_Y, "q": QUANTILES}
    assert cases["V24"]["d"] == DARWIN
    assert (cases["V27"]["Y"], cases["V28"]["Y"]) == (NESTED_3, NESTED_2)
