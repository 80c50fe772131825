"""The confidence that each look of a plan may claim, so that the error over all looks stays within its budget.

Owns the step from an error budget (``sequential.spent_alpha``) to the level of each look's interval, also where the
variance is estimated from the few launch pairs at hand. Owns no schedule: the looks are the plan's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from scipy import optimize, special

from equipoise_evals.stats.checks import Floats, count
from equipoise_evals.stats.sequential import DECIMALS, Spending, spending_bounds, spent_alpha

Variance = Literal["estimated", "known"]

_CELLS = 300
_SUB_NODES, _SUB_WEIGHTS = np.polynomial.legendre.leggauss(3)
_BEYOND = 1e-11


class Look(NamedTuple):
    """One look of a plan.

    ``nominal_alpha`` is the one-sided error that its own interval may make, ``level`` the two-sided confidence that
    follows, ``critical`` the t (or z) value of that level.
    """

    size: int
    fraction: float
    nominal_alpha: float
    level: float
    critical: float


def look_plan(
    sizes: Sequence[int], alpha: float = 0.025, *, kind: Spending = "pocock", variance: Variance = "estimated"
) -> tuple[Look, ...]:
    """Return every look of a plan with the level of its interval.

    ``variance`` says what the intervals are made of. ``known``: score intervals over many questions; the level is
    that of the z-bound. ``estimated``: t intervals over launch pairs, for which the z-bound's level is too generous
    (with looks at 3, 4, 5, 6, 8, 10 pairs it errs in 5.9 % of runs instead of 5 %). Their bounds spend the budget
    exactly for normal log-ratios, by recursion over the distribution of t itself: because mean and variance are
    sufficient and the null is free of scale, t at one look depends on the earlier looks only through t at the last
    one (Hall, Wijsman & Ghosh 1965, Annals of Mathematical Statistics 36, 575-614). Accurate to about 1e-3 in t.

    For an interval against 0 use alpha = 0.025 per side; for equivalence and one-sided limits 0.05, at the same
    two-sided ``level`` = 1 - 2 x nominal.

    Args:
        sizes: launch pairs or passes at each look, strictly increasing; the last is the most the plan allows.
            With the variance estimated, from 2 on.
        alpha: one-sided error over all looks.
        kind: spending function.
        variance: "estimated" from the launch pairs, or "known".

    Raises:
        ValueError: sizes that do not increase, a first look that has no variance to estimate, or what
            ``spent_alpha`` refuses.
    """
    whole = tuple(count(size, "a look's size") for size in sizes)
    if not whole or whole[0] < (2 if variance == "estimated" else 1):
        msg = f"a plan whose variance is {variance} cannot look at {whole[:1]}"
        raise ValueError(msg)
    return _planned(whole, alpha, kind, variance)


@lru_cache(maxsize=256)
def _planned(whole: tuple[int, ...], alpha: float, kind: Spending, variance: Variance) -> tuple[Look, ...]:
    fractions = [size / whole[-1] for size in whole]
    if variance == "known":
        bounds = spending_bounds(kind, fractions, alpha)
        nominal = [float(special.ndtr(-bound)) for bound in bounds]
    else:
        bounds = list(_t_bounds(whole, spent_alpha(kind, fractions, alpha)))
        nominal = [float(special.stdtr(size - 1, -bound)) for size, bound in zip(whole, bounds, strict=True)]
    return tuple(
        Look(size, fraction, tail, 1.0 - 2.0 * tail, bound)
        for size, fraction, tail, bound in zip(whole, fractions, nominal, bounds, strict=True)
    )


def look_level(
    size: int,
    sizes: Sequence[int],
    alpha: float = 0.025,
    *,
    kind: Spending = "pocock",
    variance: Variance = "estimated",
) -> Look:
    """Return one look of ``look_plan``.

    Raises:
        ValueError: the plan has no look at ``size`` (an unplanned look has no level), or ``look_plan`` refuses it.
    """
    for look in look_plan(sizes, alpha, kind=kind, variance=variance):
        if look.size == size:
            return look
    msg = f"the plan looks at {tuple(sizes)}, not at {size}"
    raise ValueError(msg)


# The t statistic of n values is sqrt(n - 1) tan(theta), where sin(theta) = r is the cosine between the values and the
# vector of ones. One more value turns r into (sqrt(n) r cos(phi) + sin(phi))/sqrt(n + 1), tan(phi) = t_n/sqrt(n)
# independent of r. The mass not yet stopped is kept in cells of theta and carried on one value at a time.


@lru_cache(maxsize=64)
def _t_bounds(sizes: tuple[int, ...], spent: tuple[float, ...]) -> tuple[float, ...]:
    bounds = [-float(special.stdtrit(sizes[0] - 1, spent[0]))]
    edges = _edges(sizes[0], math.atan(bounds[0] / math.sqrt(sizes[0] - 1)))
    mass = np.diff(special.stdtr(sizes[0] - 1, math.sqrt(sizes[0] - 1) * np.tan(edges)))
    for n in range(sizes[0], sizes[-1]):
        step = _Step(n, edges, mass)
        top = math.pi / 2.0
        if n + 1 in sizes:
            look = len(bounds)
            top = step.stop(spent[look] - spent[look - 1])
            bounds.append(round(math.sqrt(n) * math.tan(top), DECIMALS))
        edges = _edges(n + 1, top)
        mass = -np.diff([step.above(edge) for edge in edges.tolist()])
    return tuple(bounds)


def _edges(n: int, top: float) -> Floats:
    """Cell edges of theta for n values: up to the bound, without the outermost 1e-11 of the distribution."""
    reach = math.atan(-float(special.stdtrit(n - 1, _BEYOND)) / math.sqrt(n - 1))
    return np.linspace(-reach, min(top, reach), _CELLS + 1)


class _Step:
    """The mass not yet stopped at n values, about to receive one more."""

    def __init__(self, n: int, edges: Floats, mass: Floats) -> None:
        half = (edges[1] - edges[0]) / 2.0
        slope = np.gradient(mass)[:, None] * _SUB_NODES / 2.0
        r = np.sin((edges[:-1] + half)[:, None] + half * _SUB_NODES).ravel()
        self._weights = ((mass[:, None] + slope) * _SUB_WEIGHTS / 2.0).ravel()
        self._reach = np.sqrt((n * r * r + 1.0) / (n + 1.0))
        self._best_phi = np.arctan2(1.0, math.sqrt(n) * r)
        self._phi = np.linspace(-math.pi / 2.0, math.pi / 2.0, 8193)
        self._below_phi = special.stdtr(n, math.sqrt(n) * np.tan(self._phi))

    def above(self, theta: float) -> float:
        """Probability that the next theta is larger: phi then lies around its best value, which gives the reach."""
        width = np.arccos(np.clip(math.sin(theta) / self._reach, -1.0, 1.0))
        upper = np.interp(self._best_phi + width, self._phi, self._below_phi)
        lower = np.interp(self._best_phi - width, self._phi, self._below_phi)
        return float((upper - lower) @ self._weights)

    def stop(self, tail: float) -> float:
        """The theta beyond which exactly ``tail`` of the mass goes next."""
        return float(optimize.brentq(lambda theta: self.above(theta) - tail, -math.pi / 2.0, math.pi / 2.0, xtol=1e-12))
