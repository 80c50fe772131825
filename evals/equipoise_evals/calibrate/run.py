"""Runs cells and judges their rates: a limit is broken when an exact binomial bound says so."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.stats import beta

from equipoise_evals.calibrate.accuracy import AccuracyOutcome, accuracy_plan, simulate_accuracy
from equipoise_evals.calibrate.grid import AccuracyCell, LatencyCell
from equipoise_evals.calibrate.latency import FIXED_PAIRS, LatencyOutcome, latency_plan, simulate_latency
from equipoise_evals.model import Frozen, looks_up_to

BOUND_CONFIDENCE = 0.99
"""One-sided confidence of the Clopper-Pearson bound that decides whether a limit is broken."""

Cell = LatencyCell | AccuracyCell


class Counted(Frozen):
    """What a number of simulated comparisons of one cell counted; batches of one cell can be added."""

    runs: int
    words: dict[str, int]
    asked: int
    covered: int
    with_interval: int
    fixed_covered: tuple[int, ...] = ()
    units: int
    suspected: int = 0
    blocked: int = 0

    def plus(self, other: "Counted") -> "Counted":
        """Both together."""
        return Counted(
            runs=self.runs + other.runs,
            words=dict(Counter(self.words) + Counter(other.words)),
            asked=self.asked + other.asked,
            covered=self.covered + other.covered,
            with_interval=self.with_interval + other.with_interval,
            fixed_covered=tuple(a + b for a, b in zip(self.fixed_covered, other.fixed_covered, strict=True)),
            units=self.units + other.units,
            suspected=self.suspected + other.suspected,
            blocked=self.blocked + other.blocked,
        )


class CellResult(Frozen):
    """One cell, counted.

    Attributes:
        cell: The row.
        counted: The counts.
        rate: Share of runs that did what the cell asks about.
        low: Clopper-Pearson 99 % lower bound of the rate; ``high`` the upper.
        holds: Whether the limit stands: an error rate's lower bound is not above it, a power's upper bound not below;
            None for a row that only reports.
        coverage_holds: Whether intervals cover as often as they claim: at the look's level at least 95 %; at a fixed
            95 % between 94 and 96 % where launch pairs differ normally, else at least 93.5 %.
    """

    cell: LatencyCell | AccuracyCell
    counted: Counted
    rate: float
    low: float
    high: float
    holds: bool | None
    coverage_holds: bool


def count_cell(cell: Cell, runs: int, seed: Sequence[int]) -> Counted:
    """Simulate ``runs`` comparisons of a cell; the same seed gives the same counts."""
    rng = np.random.default_rng(seed)
    if isinstance(cell, LatencyCell):
        plan = latency_plan(steps_per_block=cell.steps_per_block)
        if cell.history is not None:
            looks = looks_up_to(plan.pairs_max, with_history=True)
            plan = plan.model_copy(update={"history": dict.fromkeys(("busy", "period"), cell.history), "looks": looks})
        return _count_latency(cell, [simulate_latency(cell.world, plan, rng) for _ in range(runs)])
    accuracy = accuracy_plan(latency_plan(), cell.world, cell.passes_max)
    return _count_accuracy(cell, [simulate_accuracy(cell.world, accuracy, rng) for _ in range(runs)])


def result(cell: Cell, counted: Counted) -> CellResult:
    """The rate of a cell, its exact bounds, and whether the limit holds."""
    low, high = clopper_pearson(counted.asked, counted.runs)
    holds: bool | None = None
    if cell.limit is not None:
        holds = high >= cell.limit if cell.question == "power" else low <= cell.limit
    return CellResult(
        cell=cell,
        counted=counted,
        rate=counted.asked / counted.runs,
        low=low,
        high=high,
        holds=holds,
        coverage_holds=_covers_enough(cell, counted),
    )


def _covers_enough(cell: Cell, counted: Counted) -> bool:
    if cell.limit is None and cell.question in {"false_difference", "false_equivalent"}:
        return True  # The row shows where the rule ends; nothing is claimed there.
    least, most = (0.94, 0.96) if is_normal(cell) else (0.935, 1.0)
    fixed = [clopper_pearson(covered, counted.runs) for covered in counted.fixed_covered]
    _, look_high = clopper_pearson(counted.covered, counted.with_interval)
    claimed = cell.covers if isinstance(cell, LatencyCell) else cell.question != "report"
    asks_for_look = claimed and counted.with_interval > 0
    return (look_high >= 0.95 or not asks_for_look) and all(low <= most and high >= least for low, high in fixed)


def is_normal(cell: Cell) -> bool:
    """Whether launch pairs of this cell differ normally, so that a t interval covers as it says.

    A drift leaves its square in a quad with a sign that alternates, and spikes are rare and large: neither is normal.
    """
    if not isinstance(cell, LatencyCell):
        return False
    world = cell.world
    return world.launch_shape == "normal" and not (world.level_gap or world.drift or world.spike_share)


def clopper_pearson(hits: int, runs: int) -> tuple[float, float]:
    """Exact one-sided 99 % bounds of a rate, below and above (Clopper and Pearson 1934)."""
    tail = 1 - BOUND_CONFIDENCE
    low = float(beta.ppf(tail, hits, runs - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, runs - hits)) if hits < runs else 1.0
    return low, high


def _count_latency(cell: LatencyCell, outcomes: Sequence[LatencyOutcome]) -> Counted:
    sought = {
        "false_difference": {"faster", "slower"},
        "false_equivalent": {"equivalent"},
        "power": {"faster"},
        "report": set[str](),
    }[cell.question]
    within = cell.by_pairs or max(o.pairs for o in outcomes)
    return Counted(
        runs=len(outcomes),
        words=dict(Counter(o.word for o in outcomes)),
        asked=sum(o.word in sought and o.pairs <= within for o in outcomes),
        covered=sum(o.covered is True for o in outcomes),
        with_interval=sum(o.covered is not None for o in outcomes),
        fixed_covered=tuple(sum(o.fixed_covered[i] for o in outcomes) for i in range(len(FIXED_PAIRS))),
        units=sum(o.pairs for o in outcomes),
    )


def _count_accuracy(cell: AccuracyCell, outcomes: Sequence[AccuracyOutcome]) -> Counted:
    sought = {
        "false_difference": {"regression", "improved"},
        "false_non_inferior": {"non_inferior", "improved"},
        "power": {"regression"},
        "report": set[str](),
    }[cell.question]
    asked = sum(o.word in sought for o in outcomes)
    return Counted(
        runs=len(outcomes),
        words=dict(Counter(o.word for o in outcomes)),
        asked=sum(o.suspected for o in outcomes) if cell.question == "report" else asked,
        covered=sum(o.covered for o in outcomes),
        with_interval=len(outcomes),
        units=sum(o.passes for o in outcomes),
        suspected=sum(o.suspected for o in outcomes),
        blocked=sum(o.blocked for o in outcomes),
    )
