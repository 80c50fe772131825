"""Launch pairs that ran on several machines of a cluster: the node is a stratum, shown beside the number.

Both engines of a pair run on one node, so a pair's log-ratio holds nothing of how fast the node is, only of how large
the change is there. The interval stays the t interval over pairs. With node effects b_k fixed, n_k of R pairs on node k
and normal errors, the mean is of the effect sum(n_k b_k) / R with the variance within nodes, and independent of s2,
while (R - 1) s2 / sigma2 is a noncentral chi-square: larger than if the b_k were equal. So the interval covers that
effect at least as often as its level says, and what nodes differ by widens it.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from equipoise_evals.judge.contrasts import Unit
from equipoise_evals.model import NodeEffects
from equipoise_evals.stats.strata import strata_p

SUSPECT_P = 0.01


def node_effects(units: Sequence[Unit], nodes: Mapping[int, str]) -> NodeEffects | None:
    """What units show on each node, by the number of the pair; None where all ran on one, or one's was not recorded.

    A unit of two pairs on two nodes stands under both names: what one pair was to cancel of the other may remain.
    """
    if any(not nodes.get(pair.pair) for unit in units for pair in unit):
        return None
    logs: dict[str, list[float]] = {}
    for unit in units:
        name = " and ".join(sorted({nodes[pair.pair] for pair in unit}))
        logs.setdefault(name, []).append(fmean(pair.log_ratio for pair in unit))
    if len(logs) < 2:
        return None
    return NodeEffects(
        units={name: len(group) for name, group in logs.items()},
        effects={name: math.expm1(fmean(group)) for name, group in logs.items()},
        p_value=strata_p(logs),
    )


def node_note(found: NodeEffects) -> str:
    """What a reader must know of it, in one sentence or two."""
    shown = ", ".join(
        f"{effect:+.2%} on {name} ({found.units[name]})" for name, effect in sorted(found.effects.items())
    )
    said = f"Launch pairs ran on {len(found.effects)} nodes: {shown}; the number is the mean over all."
    if found.p_value is None or found.p_value >= SUSPECT_P:
        return said
    return (
        f"{said} Nodes differ by more than pairs of one node do (p = {found.p_value:.2g}): the interval holds that "
        "spread, but on another node the change may be of another size."
    )
