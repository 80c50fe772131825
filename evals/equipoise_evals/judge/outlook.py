"""How much more evidence would decide, if the estimates and the spread between launches stayed as they are."""

import math
from collections.abc import Sequence

from equipoise_evals.judge.levels import LookLevels
from equipoise_evals.model import LatencyContrast, LatencyEvidence
from equipoise_evals.stats.power import chance_below, chance_between, fewest_pairs

PAIRS_WITHIN_REACH = 200
"""Beyond this many launch pairs nobody waits; the answer is then None."""
LIKELY = 0.8
"""The chance from which a number of pairs is said to decide: the power that plans are made for."""


def pairs_needed(evidence: LatencyEvidence, levels: LookLevels) -> int | None:
    """Fewest launch pairs that decide with a chance of 80 % in one look at these levels; None if none in reach do."""
    per_unit = evidence.busy.pairs_per_unit
    units = fewest_pairs(
        lambda units: chance_of_a_word(evidence, units, levels),
        LIKELY,
        least=max(2, evidence.busy.units + 1),
        most=PAIRS_WITHIN_REACH // per_unit,
    )
    return None if units is None else per_unit * units


def chance_of_a_word(evidence: LatencyEvidence, pairs: int, levels: LookLevels) -> float:
    """Chance that ``slower``, ``faster`` or ``equivalent`` holds at so many pairs (units), whichever is the likeliest.

    Where a word asks something of both clocks, it is as likely as what it asks of the one that is less sure: the two
    clocks of a step go together.
    """
    busy, period, m = evidence.busy, evidence.period, math.log1p(evidence.margin)
    level = levels.difference
    slower = max(_below(-m, -_log(clock), clock, pairs, level) for clock in (busy, period))
    faster = 0.0
    if period.effect < 0:
        faster = min(_below(0.0, _log(busy), busy, pairs, level), _below(m, _log(period), period, pairs, level))
    equivalent = _equivalent((busy, period), evidence.margin, pairs, levels.equivalence)
    return max(slower, faster, equivalent)


def _equivalent(clocks: Sequence[LatencyContrast], margin: float, pairs: int, level: float) -> float:
    if any(abs(clock.effect) >= margin for clock in clocks):
        return 0.0  # it is below one half there, and falls with the pairs
    margins = (math.log1p(-margin), math.log1p(margin))
    return min(chance_between(margins, _log(clock), clock.launch_sd or 0.0, pairs, level) for clock in clocks)


def _below(bound: float, mean: float, clock: LatencyContrast, pairs: int, level: float) -> float:
    return chance_below(bound, mean, clock.launch_sd or 0.0, pairs, level)


def _log(clock: LatencyContrast) -> float:
    return math.log1p(clock.effect)
