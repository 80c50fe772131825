"""The analysis of variance over strata against SciPy's own."""

import numpy as np
import pytest
from scipy.stats import f_oneway

from equipoise_evals.stats.strata import strata_p


@pytest.mark.parametrize("sizes", [(2, 1), (3, 3), (4, 1, 2), (5, 2, 2, 1)])
def test_it_is_scipys_one_way_analysis(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(sizes))
    groups = {f"node {place}": rng.normal(place * 0.5, 1.0, size).tolist() for place, size in enumerate(sizes)}
    assert strata_p(groups) == pytest.approx(f_oneway(*groups.values()).pvalue, rel=1e-9)


def test_nothing_is_said_without_a_second_stratum_or_a_second_value_in_one() -> None:
    assert strata_p({}) is None
    assert strata_p({"a": [0.1, 0.2]}) is None
    assert strata_p({"a": [0.1], "b": [0.2], "c": [0.4]}) is None


def test_values_that_do_not_vary_within_strata_differ_or_do_not() -> None:
    assert strata_p({"a": [0.25, 0.25], "b": [0.5]}) == 0.0
    assert strata_p({"a": [0.25, 0.25], "b": [0.25]}) == 1.0
