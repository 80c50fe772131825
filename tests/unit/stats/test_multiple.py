"""Holm against the closed testing procedure it abbreviates, and against statsmodels."""

import itertools
import math

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from equipoise_evals.stats.multiple import holm


def closed_test(p: list[float], which: int) -> float:
    """Largest Bonferroni p over all families that contain the hypothesis (Marcus, Peritz & Gabriel 1976)."""
    others = [i for i in range(len(p)) if i != which]
    families = [(which, *rest) for size in range(len(p)) for rest in itertools.combinations(others, size)]
    return max(min(1.0, len(family) * min(p[i] for i in family)) for family in families)


@pytest.mark.parametrize("seed", range(5))
def test_holm_is_the_closed_test(seed: int) -> None:
    p = (np.random.default_rng(seed).random(6) ** 3).tolist()
    assert holm(p) == pytest.approx([closed_test(p, i) for i in range(6)], rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_holm_statsmodels(seed: int) -> None:
    p = np.random.default_rng(seed).choice([0.001, 0.01, 0.02, 0.02, 0.3], 7).tolist()
    assert holm(p) == pytest.approx(multipletests(p, method="holm")[1], rel=1e-12)


def test_holm_edges() -> None:
    assert holm([]) == []
    assert holm([0.2]) == [0.2]
    assert holm([0, 1, 1]) == [0.0, 1.0, 1.0]
    assert holm([0.6, 0.6]) == [1.0, 1.0]
    assert all(type(p) is float for p in holm(np.array([0.01, 0.2])))
    for p in ([-0.1], [1.1], [math.nan]):
        with pytest.raises(ValueError, match=r"between 0 and 1|missing"):
            holm(p)
