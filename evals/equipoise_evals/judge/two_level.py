"""Engines whose steps jump between two levels: seen, said, and never averaged away.

Real H200 blocks were seen jumping between 4390 and 4590 us. Means then depend on how long each arm happened to stay at
the lower level, so the shares stand beside the means, and arms whose shares differ by more than 5 points are disturbed.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from equipoise_evals.model import ROLES, Frozen, Invalid, Role, TwoLevelEvidence
from equipoise_evals.stats.steady import LEAST_STEPS, low_share, two_levels

Floats = NDArray[np.float64]
SHARE_GAP_MAX = 0.05
"""Largest difference of the arms' shares at the lower level that a contrast of means may carry."""


class PairLevels(Frozen):
    """One launch pair at the primary batch.

    Attributes:
        tested: Whether its blocks were long enough to tell two levels from one.
        low_us: Lower level, ``high_us`` the upper; None where only one was found.
        low_share: Share of each arm's steps at the lower level; empty where only one was found.
    """

    tested: bool
    low_us: float | None = None
    high_us: float | None = None
    low_share: dict[Role, float] = Field(default_factory=dict)


def pair_levels(busy_us: Mapping[Role, Sequence[Floats]]) -> PairLevels:
    """Look for two levels in the blocks of one launch pair, arm by arm.

    An arm that stayed at one level is measured against the other arm's boundary: staying there is its share.
    """
    steps = {role: np.concatenate(busy_us[role]) for role in ROLES}
    if min(us.size for us in steps.values()) < LEAST_STEPS:
        return PairLevels(tested=False)
    found = {role: two_levels(steps[role]) for role in ROLES}
    seen = [levels for levels in found.values() if levels.found]
    if not seen:
        return PairLevels(tested=True)
    boundary = fmean(levels.boundary for levels in seen)
    return PairLevels(
        tested=True,
        low_us=fmean(levels.low for levels in seen),
        high_us=fmean(levels.high for levels in seen),
        low_share={
            role: low_share(steps[role], found[role].boundary if found[role].found else boundary) for role in ROLES
        },
    )


def two_level_evidence(pairs: Sequence[PairLevels]) -> TwoLevelEvidence | None:
    """Levels and shares over the pairs in which two levels were found; None if there is none."""
    found = [pair for pair in pairs if pair.low_us is not None and pair.high_us is not None]
    if not found:
        return None
    return TwoLevelEvidence(
        pairs=len(found),
        tested=sum(pair.tested for pair in pairs),
        low_us=fmean(pair.low_us for pair in found if pair.low_us is not None),
        high_us=fmean(pair.high_us for pair in found if pair.high_us is not None),
        baseline_share=fmean(pair.low_share["A"] for pair in found),
        candidate_share=fmean(pair.low_share["B"] for pair in found),
    )


def disturbed(evidence: TwoLevelEvidence | None) -> Invalid | None:
    """Whether the arms spent such different shares at the lower level that their means cannot be compared."""
    if evidence is None or abs(evidence.baseline_share - evidence.candidate_share) <= SHARE_GAP_MAX:
        return None
    return Invalid(
        reason="disturbed",
        detail=f"each arm's step times jump between two levels (on average over both arms {evidence.low_us:.0f} and "
        f"{evidence.high_us:.0f} us); the baseline spent {evidence.baseline_share:.0%} of its steps at its lower level "
        f"and the candidate {evidence.candidate_share:.0%}: with more than {100 * SHARE_GAP_MAX:.0f} points between "
        "them, chance decides which mean is lower",
    )
