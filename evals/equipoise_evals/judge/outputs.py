"""Outputs of passes compared as texts: match rates, and whether arms differ more than an arm differs from itself.

For a change that should not alter arithmetic the outputs are the evidence, far more than the score.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from equipoise_evals.judge.grades import GradedPass
from equipoise_evals.stats.equality import LEAST_LAUNCHES, launch_permutation, output_shift

MOST_LAUNCHES = 10
"""Launches per arm up to which all allocations are enumerated."""


@dataclass(frozen=True)
class Outputs:
    """What the texts say.

    Attributes:
        matches: Share of identical texts for each two passes, as ``A1-B1``, over the questions answered in both.
        cross_equal: Whether every A-B comparison is all equal.
        control_equal: Whether every A-A comparison is; None without one.
        shift_p: p of the 4-run test; None without two passes per arm.
    """

    matches: dict[str, float]
    cross_equal: bool
    control_equal: bool | None
    shift_p: float | None


def compare_outputs(baseline: Sequence[GradedPass], candidate: Sequence[GradedPass], seed: int) -> Outputs:
    """Compare the texts of all passes; ``seed`` fixes the draws of the 4-run test."""
    passes = [*baseline, *candidate]
    matches = {f"{one.name}-{two.name}": _match(one, two) for one, two in combinations(passes, 2)}
    cross = [f"{a.name}-{b.name}" for a in baseline for b in candidate]
    control = [f"{a.name}-{b.name}" for a, b in combinations(baseline, 2)]
    return Outputs(
        matches=matches,
        cross_equal=all(matches[name] == 1.0 for name in cross),
        control_equal=all(matches[name] == 1.0 for name in control) if control else None,
        shift_p=_shift_p(baseline, candidate, seed),
    )


def _match(one: GradedPass, two: GradedPass) -> float:
    return len(one.texts.items() & two.texts.items()) / len(one.texts.keys() & two.texts.keys())


def _shift_p(baseline: Sequence[GradedPass], candidate: Sequence[GradedPass], seed: int) -> float | None:
    if min(len(baseline), len(candidate)) < 2:
        return None
    texts = _complete([*baseline[:2], *candidate[:2]])
    return output_shift(texts[0], texts[1], texts[2], texts[3], np.random.default_rng(seed)).p_value


def permutation_p(baseline: Sequence[GradedPass], candidate: Sequence[GradedPass]) -> float | None:
    """The p of a shift of outputs with the launch as the unit; None below five passes per arm."""
    launches = min(len(baseline), len(candidate), MOST_LAUNCHES)
    if launches < LEAST_LAUNCHES:
        return None
    texts = _complete([*baseline[:launches], *candidate[:launches]])
    return launch_permutation(texts[:launches], texts[launches:]).p_value


def _complete(passes: Sequence[GradedPass]) -> list[list[str]]:
    """Texts of the questions that every one of these passes answered, in the same order."""
    common = sorted(set.intersection(*(set(graded.texts) for graded in passes)))
    return [[graded.texts[q] for q in common] for graded in passes]
