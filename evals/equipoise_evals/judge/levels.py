"""How sure an interval must be at each look, so that the errors over all looks stay within the plan's alpha.

Pocock-type spending after Lan and DeMets (1983): the nominal level of a look comes from the normal boundary, and is
then applied to the t distribution of that look's launch pairs.
"""

from functools import cache

from scipy.stats import norm

from equipoise_evals.model import Frozen, Plan
from equipoise_evals.stats.sequential import spending_bounds


class LookLevels(Frozen):
    """Two-sided confidence of the intervals of one look.

    Attributes:
        difference: For ``faster`` and ``slower``: both sides together spend alpha over the looks.
        equivalence: For ``equivalent``: each side spends alpha over the looks (two one-sided tests).
        spent: Whether these are a look's levels; False where the plan has no look at this number of pairs, and the
            levels are those of a single look, for reading only.
    """

    difference: float
    equivalence: float
    spent: bool


def look_levels(plan: Plan, pairs: int) -> LookLevels:
    """The levels at ``pairs`` finished launch pairs."""
    if pairs not in plan.looks:
        return LookLevels(difference=1 - plan.alpha, equivalence=1 - 2 * plan.alpha, spent=False)
    index = plan.looks.index(pairs)
    return LookLevels(
        difference=1 - 2 * _nominal(plan.looks, plan.alpha / 2)[index],
        equivalence=1 - 2 * _nominal(plan.looks, plan.alpha)[index],
        spent=True,
    )


@cache
def _nominal(looks: tuple[int, ...], alpha: float) -> tuple[float, ...]:
    """One-sided nominal level of each look."""
    bounds = spending_bounds("pocock", [look / looks[-1] for look in looks], alpha=alpha)
    return tuple(float(norm.sf(bound)) for bound in bounds)
