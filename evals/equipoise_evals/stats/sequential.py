"""Looking at the data more than once: spending functions, their z-bounds, and the GSPRT on paired questions.

Owns the error budget of repeated looks. Owns no data and no decision rule; ``looks`` turns a budget into the level of
each look's interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy import optimize, special

from equipoise_evals.stats.checks import Floats, Interval, count, open_unit
from equipoise_evals.stats.paired import constrained_loss_rate

Spending = Literal["obrien_fleming", "pocock"]

DECIMALS = 9
"""Decimals of a bound: below its accuracy, above what the order of a machine's summation changes."""

# Z-values outside these never matter: 1e-19 of the mass lies below, and no bound above 38 has a level a float can hold.
_LOWEST_Z, _HIGHEST_Z = -9.0, 38.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


class Gsprt(NamedTuple):
    """Log-likelihood ratio of H1 against H0 and the bounds at which Wald's test stops."""

    llr: float
    lower: float
    upper: float
    estimate: float

    @property
    def decision(self) -> Literal["accept_low", "accept_high", "continue"]:
        """Which hypothesis the evidence so far accepts, if any."""
        if self.llr <= self.lower:
            return "accept_low"
        return "accept_high" if self.llr >= self.upper else "continue"


def spent_alpha(kind: Spending, fractions: Sequence[float], alpha: float) -> tuple[float, ...]:
    """Return the one-sided error spent up to each look (Lan & DeMets 1983, Biometrika 70, 659-663).

    ``obrien_fleming`` spends 2 - 2 Phi(z_{alpha/2}/sqrt(t)), ``pocock`` alpha ln(1 + (e - 1) t).

    Args:
        kind: spending function.
        fractions: information fractions, strictly increasing, in (0, 1].
        alpha: one-sided error spent at fraction 1, in (0, 1).

    Raises:
        ValueError: an unknown kind, or fractions or alpha outside their range.
    """
    if kind not in get_args(Spending):
        msg = f"a spending function is one of {get_args(Spending)}, not {kind!r}"
        raise ValueError(msg)
    if not fractions or not all(a < b for a, b in pairwise((0.0, *fractions))) or fractions[-1] > 1.0:
        msg = f"information fractions increase strictly within (0, 1], so {fractions} is refused"
        raise ValueError(msg)
    budget = open_unit(alpha, "alpha")
    if kind == "pocock":
        return tuple(budget * math.log1p((math.e - 1.0) * fraction) for fraction in fractions)
    z = float(special.ndtri(budget / 2.0))
    return tuple(2.0 * float(special.ndtr(z / math.sqrt(fraction))) for fraction in fractions)


def spending_bounds(kind: Spending, fractions: Iterable[float], alpha: float = 0.025) -> list[float]:
    """Return the z-bound of each look that spends ``alpha`` one-sided by a Lan-DeMets function (``spent_alpha``).

    Bounds come from the recursive integration of Armitage, McPherson & Rowe (1969) over the part of the z-scale not
    yet stopped, by Gauss-Legendre panels no wider than the narrowest step. There is no futility bound. Fractions need
    not end in 1: then less than ``alpha`` is spent. A look that spends less than a float can hold has the bound
    ``inf``.

    Args:
        kind: spending function.
        fractions: information fractions, strictly increasing, in (0, 1].
        alpha: one-sided error spent at fraction 1, in (0, 1).

    Raises:
        ValueError: what ``spent_alpha`` refuses.
    """
    times = tuple(float(fraction) for fraction in fractions)
    return list(_bounds(times, spent_alpha(kind, times, alpha)))


@lru_cache(maxsize=256)
def _bounds(times: tuple[float, ...], spent: tuple[float, ...]) -> tuple[float, ...]:
    bounds = [-float(special.ndtri(spent[0])) if spent[0] > 0.0 else math.inf]
    nodes, mass = _first_density(bounds[0], _next_step(times, 0))
    for look in range(1, len(times)):
        shrink = math.sqrt(times[look - 1] / times[look])
        step = math.sqrt(1.0 - times[look - 1] / times[look])
        bounds.append(_solve_bound(nodes * shrink, mass, step, spent[look] - spent[look - 1]))
        if look + 1 < len(times):
            narrowest = min(step, _next_step(times, look))
            nodes, mass = _continued_density(nodes * shrink, mass, step, _grid(bounds[look], narrowest))
    return tuple(round(bound, DECIMALS) for bound in bounds)


def _next_step(times: Sequence[float], look: int) -> float:
    """Width, on the z-scale of this look, of the increment to the next one."""
    return math.sqrt(times[look + 1] / times[look] - 1.0) if look + 1 < len(times) else math.inf


def _grid(bound: float, narrowest: float) -> tuple[Floats, Floats]:
    """Gauss-Legendre nodes and weights from far below up to the bound, panels no wider than the narrowest step."""
    top = min(bound, _HIGHEST_Z)
    panels = max(1, math.ceil((top - _LOWEST_Z) / min(1.0, narrowest)))
    edges = np.linspace(_LOWEST_Z, top, panels + 1)
    half = (edges[1:] - edges[:-1])[:, None] / 2.0
    middle = (edges[1:] + edges[:-1])[:, None] / 2.0
    return (middle + half * _NODES).ravel(), np.broadcast_to(half * _WEIGHTS, (panels, _NODES.size)).ravel()


def _normal_density(z: Floats) -> Floats:
    density: Floats = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return density


def _first_density(bound: float, next_step: float) -> tuple[Floats, Floats]:
    nodes, weights = _grid(bound, next_step)
    return nodes, weights * _normal_density(nodes)


def _continued_density(
    centres: Floats, mass: Floats, step: float, grid: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Carry the mass not yet stopped one look on.

    In slices, each fed by the mass within 40 steps of it (beyond, a normal density underflows to 0), so that very
    close looks cost little.
    """
    nodes, weights = grid
    density = np.empty_like(nodes)
    for start in range(0, nodes.size, 256):
        part = nodes[start : start + 256]
        near = slice(*np.searchsorted(centres, (part[0] - 40.0 * step, part[-1] + 40.0 * step)).tolist())
        density[start : start + 256] = _normal_density((part[:, None] - centres[near]) / step) @ mass[near] / step
    return nodes, weights * density


def _solve_bound(centres: Floats, mass: Floats, step: float, tail: float) -> float:
    """The z beyond which the mass not yet stopped has exactly ``tail`` left to spend."""

    def overspent(bound: float) -> float:
        return float(special.ndtr((centres - bound) / step) @ mass) - tail

    if tail <= 0.0:
        return math.inf
    return float(optimize.brentq(overspent, _LOWEST_Z, _HIGHEST_Z, xtol=1e-12))


def wald_bounds(alpha: float = 0.05, beta: float = 0.05) -> Interval:
    """Return Wald's log-likelihood bounds: log(beta/(1 - alpha)) accepts H0, log((1 - beta)/alpha) accepts H1.

    Args:
        alpha: error of accepting H1 under H0.
        beta: error of accepting H0 under H1; alpha + beta < 1.

    Raises:
        ValueError: levels outside (0, 1), or a sum of 1 or more, for which the bounds cross.
    """
    alpha, beta = open_unit(alpha, "alpha"), open_unit(beta, "beta")
    if alpha + beta >= 1.0:
        msg = f"alpha + beta = {alpha + beta} leaves nothing between the two bounds"
        raise ValueError(msg)
    return Interval(math.log(beta) - math.log1p(-alpha), math.log1p(-beta) - math.log(alpha))


def gsprt(  # noqa: PLR0917  DESIGN section 5 fixes the order of the arguments
    losses: int, draws: int, wins: int, low: float, high: float, alpha: float = 0.05, beta: float = 0.05
) -> Gsprt:
    """Return the generalised sequential probability ratio of two mean differences on paired questions.

    A win scores +1, a draw 0, a loss -1. Under each hypothesis the three probabilities take their maximum-likelihood
    values subject to P(win) - P(loss) = low (H0) or high (H1), in closed form (``constrained_loss_rate``), so empty
    cells need no regularisation. Van den Bergh 2020, "A practical introduction to the GSPRT". Without data the
    ratio is 0: no evidence either way.

    Args:
        losses: questions that only the baseline answers correctly.
        draws: questions that both or neither answer correctly.
        wins: questions that only the candidate answers correctly.
        low: mean difference under H0, in (-1, 1).
        high: mean difference under H1, in (-1, 1), above ``low``.
        alpha: error of accepting H1 under H0.
        beta: error of accepting H0 under H1.

    Raises:
        ValueError: negative or fractional counts, low >= high, or levels ``wald_bounds`` refuses.
    """
    lost, drawn, won = count(losses, "losses"), count(draws, "draws"), count(wins, "wins")
    if not -1.0 < low < high < 1.0:
        msg = f"H0 and H1 need -1 < low < high < 1, not low = {low!r} and high = {high!r}"
        raise ValueError(msg)
    bounds = wald_bounds(alpha, beta)
    n = lost + drawn + won
    if n == 0:
        return Gsprt(0.0, bounds.low, bounds.high, math.nan)
    ratio = _log_likelihood(lost, drawn, won, float(high)) - _log_likelihood(lost, drawn, won, float(low))
    return Gsprt(ratio, bounds.low, bounds.high, (won - lost) / n)


def _log_likelihood(losses: int, draws: int, wins: int, mean: float) -> float:
    """Largest multinomial log-likelihood with P(win) - P(loss) = mean."""
    loss_rate = constrained_loss_rate(wins, losses, losses + draws + wins, mean)
    rates = (loss_rate, 1.0 - 2.0 * loss_rate - mean, loss_rate + mean)
    return math.fsum(n * math.log(rate) for n, rate in zip((losses, draws, wins), rates, strict=True) if n)
