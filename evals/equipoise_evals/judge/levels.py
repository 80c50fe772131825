"""How sure an interval must be at each look, so that the errors over all looks stay within the plan's alpha.

Pocock-type spending after Lan and DeMets (1983), exact for t intervals over few launch pairs (``stats.looks``).
"""

from equipoise_evals.model import Frozen, Plan
from equipoise_evals.stats.looks import look_level


class LookLevels(Frozen):
    """Two-sided confidence of the intervals of one look.

    Attributes:
        difference: For ``faster`` and ``slower``: both sides together spend alpha over the looks.
        equivalence: For ``equivalent``: each side spends alpha over the looks (two one-sided tests).
    """

    difference: float
    equivalence: float


def look_levels(plan: Plan, pairs: int) -> LookLevels:
    """The levels at ``pairs`` finished launch pairs.

    Where the plan has no look at this number of pairs nothing can be decided, and the levels are those of a single
    look, for reading only.
    """
    if pairs not in plan.looks:
        return LookLevels(difference=1 - plan.alpha, equivalence=1 - 2 * plan.alpha)
    units = pairs // plan.pairs_per_unit
    looks = tuple(look // plan.pairs_per_unit for look in plan.looks)
    return LookLevels(
        difference=look_level(units, looks, plan.alpha / 2).level,
        equivalence=look_level(units, looks, plan.alpha).level,
    )
