"""What a comparison will take before anything runs: launch pairs, passes, device seconds.

The chances are those of one look on its own, for normal log-ratios; a run that may also stop earlier does at least as
well. How often the whole procedure errs and stops is in the calibration, not here.
"""

import math

from scipy.special import ndtr, ndtri

from equipoise_evals.model import Frozen, looks_up_to
from equipoise_evals.stats.looks import look_level
from equipoise_evals.stats.power import chance_below, chance_between, fewest_pairs

PAIRS_WITHIN_REACH = 100
"""Beyond this many launch pairs nobody waits."""


class Costs(Frozen):
    """Seconds that one engine start, one batch size's blocks of a pair, and one pass of one arm hold the device."""

    start_s: float
    blocks_s: float
    pass_s: float


class Aim(Frozen):
    """What is expected, and what should be shown.

    Attributes:
        effect: Expected relative change of the step time; 0 asks for ``equivalent``.
        launch_sd: SD of a launch pair's log-ratio.
        margin_latency: Relative margin m.
        questions: Questions asked.
        discordance: Share of questions that differ between a pass of each arm.
        margin_pp: Margin M in percentage points.
        pairs_max: Launch pairs at most.
        passes_max: Passes per arm at most.
        alpha: Two-sided error over all looks.
    """

    effect: float
    launch_sd: float
    margin_latency: float
    questions: int
    discordance: float
    margin_pp: float
    pairs_max: int = 10
    passes_max: int = 10
    alpha: float = 0.05


class LookChance(Frozen):
    """Chance that a look decides, and what the run has cost by then."""

    pairs: int
    latency: float
    accuracy: float
    device_seconds: float


def plan_looks(aim: Aim, costs: Costs) -> list[LookChance]:
    """Each look of the plan with the chance that latency and accuracy are decided there."""
    looks = looks_up_to(aim.pairs_max)
    return [
        LookChance(
            pairs=pairs,
            latency=chance_of_difference(aim, pairs, looks) if aim.effect else chance_of_equivalence(aim, pairs, looks),
            accuracy=chance_of_non_inferiority(aim, min(pairs, aim.passes_max)),
            device_seconds=pairs * (2 * costs.start_s + costs.blocks_s) + 2 * min(pairs, aim.passes_max) * costs.pass_s,
        )
        for pairs in looks
    ]


def pairs_that_decide(aim: Aim, chance: float) -> int | None:
    """Fewest launch pairs that decide latency with this chance as the last look of their plan; None beyond reach."""
    of_look = chance_of_difference if aim.effect else chance_of_equivalence
    return fewest_pairs(lambda pairs: of_look(aim, pairs, looks_up_to(pairs)), chance, least=3, most=PAIRS_WITHIN_REACH)


def chance_of_difference(aim: Aim, pairs: int, looks: tuple[int, ...]) -> float:
    """Chance that the look's interval excludes no effect, on the side of the effect."""
    level = look_level(pairs, looks, aim.alpha / 2).level
    return chance_below(0.0, -abs(math.log1p(aim.effect)), aim.launch_sd, pairs, level)


def chance_of_equivalence(aim: Aim, pairs: int, looks: tuple[int, ...]) -> float:
    """Chance that the look's equivalence interval lies inside the margin when the effect is 0."""
    level = look_level(pairs, looks, aim.alpha).level
    margins = (math.log1p(-aim.margin_latency), math.log1p(aim.margin_latency))
    return chance_between(margins, 0.0, aim.launch_sd, pairs, level)


def chance_of_non_inferiority(aim: Aim, passes: int) -> float:
    """Power of the one-sided limit against -M at no difference, if discordance is all chance from pass to pass."""
    se_pp = 100 * math.sqrt(aim.discordance / (aim.questions * passes))
    return float(ndtr(aim.margin_pp / se_pp - ndtri(1 - aim.alpha))) if se_pp else 1.0
