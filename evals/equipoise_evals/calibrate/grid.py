"""The cells of the calibration: worlds, and what each one is allowed to do wrong.

Limits are those that the product promises; `docs/statistics.md` says where each comes from.
"""

from typing import Literal

from equipoise_evals.calibrate.accuracy import AccuracyWorld
from equipoise_evals.calibrate.worlds import LatencyWorld
from equipoise_evals.model import Frozen, LaunchHistory

Question = Literal["false_difference", "false_equivalent", "power", "report"]

STEP = LatencyWorld(step_cv=0.01, step_ar1=0.3)


class LatencyCell(Frozen):
    """One cell of the latency grid.

    Attributes:
        name: Row of the table.
        world: The truth.
        question: What is counted: false ``faster``/``slower`` at no effect, false ``equivalent`` at the margin, or
            ``faster`` at an effect.
        limit: Largest rate allowed, or least power; None where the table only reports, coverage of error rows included.
        by_pairs: For power: only verdicts reached with at most so many pairs count.
        steps_per_block: Length of a block; two-level behaviour is tested from 100 steps on.
        history: Borrowed launch variance, or None.
        covers: Whether the interval of a verdict is claimed to cover; else the table only says how often it does.
        ci: Whether the cell belongs to the small grid.
    """

    name: str
    world: LatencyWorld
    question: Question
    limit: float | None
    by_pairs: int | None = None
    steps_per_block: int = 32
    history: LaunchHistory | None = None
    covers: bool = True
    ci: bool = False


class AccuracyCell(Frozen):
    """One cell of the accuracy grid.

    As ``LatencyCell``, counting false ``regression`` or ``improved`` at no difference, false ``non_inferior`` at the
    margin, or ``regression`` at a loss.
    """

    name: str
    world: AccuracyWorld
    question: Literal["false_difference", "false_non_inferior", "power", "report"]
    limit: float | None
    passes_max: int = 2
    ci: bool = False


CALM = LatencyWorld(launch_sd=0.0005, step_cv=0.001, step_ar1=0.0)
"""An engine with history: its log-ratios have an SD of 0.054 %, launches 0.05 % and steps 0.1 % / sqrt(24)."""

HISTORY = LaunchHistory(d0=12.0, s0=0.00054, histories=6, source="simulated: six A/A comparisons of three pairs")
"""What A/A comparisons of ``CALM`` tell: the SD of the log-ratios themselves, steps included."""


WIDER = LaunchHistory(d0=12.0, s0=0.002, histories=6, source="simulated: launches that differed by 0.2 %")
"""A history wide enough that no early ``equivalent`` ends the runs in which it misleads."""


def _unlike(times: float, *, effect: float = 0.0) -> LatencyWorld:
    """Launches that today differ so many times as much as ``WIDER`` says."""
    return CALM.model_copy(update={"launch_sd": times * WIDER.s0, "effect": effect})


def _null(name: str, limit: float, *, ci: bool = False, steps: int = 32, **world: object) -> LatencyCell:
    return LatencyCell(
        name=name,
        world=STEP.model_copy(update=world),
        question="false_difference",
        limit=limit,
        steps_per_block=steps,
        ci=ci,
    )


LATENCY_CELLS: tuple[LatencyCell, ...] = (
    _null("A/A, launch SD 0.05 %, step CV 0.5 %", 0.05, step_cv=0.005),
    _null("A/A, launch SD 0.05 %, step CV 2 %, AR(1) 0.6", 0.05, step_cv=0.02, step_ar1=0.6),
    _null("A/A, launch SD 0.3 %", 0.05, launch_sd=0.003, ci=True),
    _null("A/A, launch SD 0.6 %", 0.05, launch_sd=0.006),
    _null("A/A, launch SD 0.3 %, t3", 0.05, launch_sd=0.003, launch_shape="t3", ci=True),
    _null("A/A, launch SD 0.6 %, t3", 0.05, launch_sd=0.006, launch_shape="t3"),
    _null("A/A, drift 2 %, warm-up 20 %, spikes", 0.05, launch_sd=0.001, drift=0.02, warmup=0.2, spike_share=0.01,
          spike=0.5),
    _null("A/A, launches of two levels, SD 0.3 %", 0.065, launch_sd=0.003, launch_shape="bimodal", ci=True),
    _null("A/A, steps of two levels, equal shares", 0.065, launch_sd=0.0005, step_cv=0.003, level_gap=0.043,
          level_share_sd=0.02, steps=128),
    _null("A/A, steps of two levels, shares that vary by 15 points", 0.065, launch_sd=0.0005, step_cv=0.003,
          level_gap=0.043, level_share_sd=0.15, steps=128, ci=True),
    LatencyCell(name="A/A, launch SD 0.05 % as in the history", world=CALM, question="false_difference", limit=0.05,
                history=HISTORY),
    LatencyCell(name="A/A, launch SD 1.5 times the history's", world=CALM.model_copy(update={"launch_sd": 0.00078}),
                question="false_difference", limit=0.05, history=HISTORY, ci=True),
    LatencyCell(name="A/A, launches of two levels, SD 1.5 times the history's",
                world=CALM.model_copy(update={"launch_sd": 0.00078, "launch_shape": "bimodal"}),
                question="false_difference", limit=0.065, history=HISTORY),
    LatencyCell(name="A/A, launch SD 0.4 %, 2 times the history's", world=_unlike(2), question="false_difference",
                limit=0.05, history=WIDER, ci=True),
    LatencyCell(name="A/A, launch SD 0.6 %, 3 times the history's", world=_unlike(3), question="false_difference",
                limit=0.05, history=WIDER, covers=False, ci=True),
    LatencyCell(name="effect +0.5 % (the margin), launch SD 0.4 %, 2 times the history's",
                world=_unlike(2, effect=0.005), question="false_equivalent", limit=0.055, history=WIDER, ci=True),
    LatencyCell(name="effect +0.5 % (the margin), launch SD 0.6 %, 3 times the history's",
                world=_unlike(3, effect=0.005), question="false_equivalent", limit=None, history=WIDER),
    LatencyCell(name="A/A, every tenth launch of the candidate 3 % slower, mean 0",
                world=CALM.model_copy(update={"launch_shape": "rare", "launch_sd": 0.009}),
                question="false_difference", limit=None),
    LatencyCell(name="effect +0.5 % (the margin), launch SD 0.05 %", world=STEP.model_copy(update={"effect": 0.005}),
                question="false_equivalent", limit=0.055, ci=True),
    LatencyCell(name="effect +0.5 % (the margin), launch SD 0.3 %",
                world=STEP.model_copy(update={"effect": 0.005, "launch_sd": 0.003}), question="false_equivalent",
                limit=0.055),
    LatencyCell(name="effect -1.64 %, launch SD 0.05 %, by 3 pairs", world=STEP.model_copy(update={"effect": -0.0164}),
                question="power", limit=0.95, by_pairs=3, steps_per_block=64, ci=True),
    LatencyCell(name="effect -1.64 %, launch SD 0.3 %, by 10 pairs",
                world=STEP.model_copy(update={"effect": -0.0164, "launch_sd": 0.003}), question="power", limit=0.95,
                by_pairs=10, ci=True),
    LatencyCell(name="effect -1.64 %, launch SD 0.05 %, with history, by 2 pairs",
                world=CALM.model_copy(update={"effect": -0.0164}), question="power", limit=None, by_pairs=2,
                history=HISTORY),
)  # fmt: skip

ACCURACY_CELLS: tuple[AccuracyCell, ...] = (
    AccuracyCell(name="no difference, discordance 0.5 %", world=AccuracyWorld(discordance=0.005),
                 question="false_difference", limit=0.05, ci=True),
    AccuracyCell(name="no difference, discordance 2 %", world=AccuracyWorld(discordance=0.02),
                 question="false_difference", limit=0.053),  # what whole numbers of discordant questions make of 5 %
    AccuracyCell(name="no difference, discordance 8 %, 8 passes", world=AccuracyWorld(discordance=0.08),
                 question="false_difference", limit=0.05, passes_max=8),
    AccuracyCell(name="difference -1 pp (the margin), discordance 2 %",
                 world=AccuracyWorld(discordance=0.02, difference=-0.01), question="false_non_inferior", limit=0.055,
                 ci=True),
    AccuracyCell(name="difference -1 pp (the margin), discordance 8 %, 8 passes",
                 world=AccuracyWorld(discordance=0.08, difference=-0.01), question="false_non_inferior", limit=0.055,
                 passes_max=8),
    AccuracyCell(name="difference -2 pp, discordance 4 %", world=AccuracyWorld(discordance=0.04, difference=-0.02),
                 question="power", limit=None),
    AccuracyCell(name="launch-wide states, 6 passes", world=AccuracyWorld(discordance=0.04, launch_states=0.8),
                 question="report", limit=None, passes_max=6, ci=True),
)  # fmt: skip
