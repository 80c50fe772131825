"""Levels of looks: exact where scipy or integration over the sphere gives them, the z-levels in the limit.

The error rate over all looks of the product's plan is simulated in ``tests/guarantee/stats``.
"""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from equipoise_evals.stats.looks import look_level, look_plan
from equipoise_evals.stats.sequential import spending_bounds, spent_alpha

PAIRS = (3, 4, 5, 6, 8, 10)


def test_known_variance_is_the_z_bound() -> None:
    bounds = spending_bounds("pocock", [0.25, 0.5, 1.0], 0.05)
    plan = look_plan((2, 4, 8), 0.05, variance="known")
    assert [look.critical for look in plan] == bounds
    assert [look.nominal_alpha for look in plan] == pytest.approx(stats.norm.sf(bounds), rel=1e-9)
    assert [look.level for look in plan] == pytest.approx(1 - 2 * stats.norm.sf(bounds), rel=1e-12)
    assert [(look.size, look.fraction) for look in plan] == [(2, 0.25), (4, 0.5), (8, 1.0)]


def test_first_look_is_a_plain_t() -> None:
    """Nothing was looked at before, so the spent error is the nominal one."""
    first = look_plan(PAIRS)[0]
    assert first.nominal_alpha == pytest.approx(spent_alpha("pocock", [0.3], 0.025)[0], rel=1e-9)
    assert first.critical == pytest.approx(stats.t.isf(first.nominal_alpha, 2), rel=1e-9)
    (only,) = look_plan((5,), 0.025)
    assert only.level == pytest.approx(0.95, rel=1e-12)


@pytest.mark.parametrize("alpha", [0.01, 0.025, 0.05])
def test_second_look_on_the_sphere(alpha: float) -> None:
    """Looks at 2 and 3: t depends on the direction of the three values only, uniform on a sphere; integrated there."""
    first, second = look_plan((2, 3), alpha)

    # t at 3 values exceeds its bound inside a cap about (1, 1, 1): tan(polar) < sqrt(2)/critical.
    cap = math.atan(math.sqrt(2) / second.critical)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    polar = (nodes + 1) * cap / 2
    passing = _passing_share(polar, first.critical)
    stopped = float(np.sum(weights * np.sin(polar) * passing)) * cap / 4
    spent = spent_alpha("pocock", [2 / 3, 1.0], alpha)
    assert stopped == pytest.approx(spent[1] - spent[0], rel=2e-3)


def _passing_share(polar: NDArray[np.float64], critical: float) -> NDArray[np.float64]:
    """At each polar angle about (1, 1, 1), the share of azimuths whose first two coordinates have t below the bound."""
    azimuth = (np.arange(4_000) + 0.5) * 2 * math.pi / 4_000
    along, across = np.cos(polar)[:, None], np.sin(polar)[:, None]
    total = 2 * along / math.sqrt(3) + 2 * across * np.sin(azimuth) / math.sqrt(6)
    difference = math.sqrt(2) * across * np.cos(azimuth)
    passing: NDArray[np.float64] = np.mean(total <= critical * np.abs(difference), axis=1)
    return passing


def test_many_pairs_approach_the_z_levels() -> None:
    estimated, known = (look_plan((30, 45, 60), variance=v) for v in ("estimated", "known"))
    for one, other in zip(estimated, known, strict=True):
        assert one.nominal_alpha == pytest.approx(other.nominal_alpha, rel=0.05)


@pytest.mark.parametrize("kind", ["pocock", "obrien_fleming"])
def test_estimated_levels_are_stricter(kind: str) -> None:
    """t statistics of few pairs forget faster than z, so each later look gets less."""
    estimated, known = (look_plan(PAIRS, kind=kind, variance=v) for v in ("estimated", "known"))  # type: ignore[arg-type]
    assert all(one.level >= other.level - 1e-8 for one, other in zip(estimated, known, strict=True))
    assert all(look.critical > 0 for look in estimated)


def test_look_level_picks_one() -> None:
    assert look_level(6, PAIRS, 0.05) == look_plan(PAIRS, 0.05)[3]
    with pytest.raises(ValueError, match="not at 7"):
        look_level(7, PAIRS)


def test_plan_refuses() -> None:
    """One pair has no variance to estimate; a known one may be looked at from the first."""
    assert look_plan((1, 2), variance="known")[0].size == 1
    for sizes in ((), (1, 2), (3, 3), (5, 4), (2.5, 3)):
        with pytest.raises(ValueError, match=r"cannot look|increase strictly|count"):
            look_plan(sizes)  # type: ignore[arg-type]
