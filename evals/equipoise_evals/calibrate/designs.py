"""What a verdict costs: designs of experiment side by side in the same simulated worlds, judged by production code.

Every design sees the same launch pairs of a run, at the same cost of each start; they differ in when they look and
stop. Owns no engine and no clock: costs are drawn from the ranges that were measured.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy.special import stdtrit

from equipoise_evals.calibrate.latency import joined, latency_plan
from equipoise_evals.calibrate.worlds import LatencyWorld, pair_blocks
from equipoise_evals.judge import Measured, conclude, measure
from equipoise_evals.judge.steps import timed_block
from equipoise_evals.model import BlockRecord, EngineMetric, Frozen, LatencyPlan, LaunchHistory, Plan, Records, Role
from equipoise_evals.model.plan import looks_up_to
from equipoise_evals.stats.latency import ratio_interval
from equipoise_evals.stats.moderated import launch_prior

MARGIN = 0.01
"""Relative margin of ``equivalent`` in all designs."""
PAIRS_MAX = 10
METRICS: tuple[EngineMetric, ...] = ("busy", "period")
HISTORIES, HISTORY_PAIRS = 6, 3
"""A/A comparisons that a machine's history holds, and launch pairs in each."""
HISTORY_POOL = 20
"""Machines whose history is simulated for each batch of runs; each run borrows that of one."""
NAIVE_ALPHA = 0.05

History = dict[EngineMetric, LaunchHistory]


class Costs(Frozen):
    """Seconds that hold the device, each drawn evenly from the range that the first H200 host showed.

    Attributes:
        start_s: One engine start.
        measuring_s: The blocks of one launch pair.
    """

    start_s: tuple[float, float] = (60.0, 78.0)
    measuring_s: tuple[float, float] = (10.0, 20.0)


class Design(Frozen):
    """When an experiment looks; the last look ends it.

    Attributes:
        name: Its row.
        looks: Numbers of launch pairs, one launch of each arm, after which it may end; () is the naive design.
        borrows: Whether the launch variance is borrowed from the machine's A/A history.
    """

    name: str
    looks: tuple[int, ...]
    borrows: bool = False


DESIGNS = (
    Design(name="run once: one launch per arm, t over its steps", looks=()),
    Design(name="5 + 5 launches", looks=(5,)),
    Design(name="10 + 10 launches", looks=(10,)),
    Design(name="Equipoise", looks=looks_up_to(PAIRS_MAX)),
    Design(name="Equipoise with A/A history", looks=looks_up_to(PAIRS_MAX, with_history=True), borrows=True),
)
REFERENCE = "10 + 10 launches"


class CostCell(Frozen):
    """One truth, and how unlike launches were when the machine's history was made.

    Attributes:
        launch_sd: SD of a launch pair's log-ratio today.
        history_sd: The same in the A/A comparisons of the history.
    """

    name: str
    effect: float
    launch_sd: float
    history_sd: float

    @property
    def world(self) -> LatencyWorld:
        """Steps as calm as CUDA events show them: 0.02 % of noise in a launch pair's contrast."""
        return LatencyWorld(effect=self.effect, launch_sd=self.launch_sd, step_cv=0.001, step_ar1=0.0)

    @property
    def right(self) -> str:
        """The word that is true."""
        return "faster" if self.effect < 0 else "equivalent"

    @property
    def wrong(self) -> frozenset[str]:
        """Words that are false; ``inconclusive`` never is."""
        return frozenset({"faster", "slower", "equivalent"} - {self.right})


def _cell(effect: float, launch_sd: float, history_sd: float | None = None) -> CostCell:
    name = f"{'zero effect' if effect == 0 else f'effect {effect:.2%}'}, launch SD {launch_sd:.2%}"
    if history_sd is not None:
        name += f", history {history_sd:.2%}"
    return CostCell(name=name, effect=effect, launch_sd=launch_sd, history_sd=history_sd or launch_sd)


EFFECT = -0.0164
"""What was reported for the original change (DESIGN, section 1)."""
COST_CELLS = (
    _cell(0.0, 0.0005),
    _cell(EFFECT, 0.0005),
    _cell(0.0, 0.003),
    _cell(EFFECT, 0.003),
    _cell(0.0, 0.006),
    _cell(EFFECT, 0.006),
    _cell(0.0, 0.0045, history_sd=0.003),
)


class Ended(Frozen):
    """How one design ended in one run: its word, and seconds that engines held the device."""

    word: str
    device_s: float
    pairs: int


class Tally(Frozen):
    """What one design did over the runs of a cell; tallies can be added."""

    runs: int = 0
    right: int = 0
    wrong: int = 0
    pairs: int = 0
    device_s: float = 0.0
    device_s_squared: float = 0.0

    def plus(self, other: "Tally") -> "Tally":
        """Both together."""
        return Tally(**{name: getattr(self, name) + getattr(other, name) for name in Tally.model_fields})

    @property
    def mean_s(self) -> float:
        """Mean device seconds of a run, whatever its word."""
        return self.device_s / self.runs

    @property
    def error_s(self) -> float:
        """Standard error of ``mean_s``."""
        return math.sqrt(max(0.0, self.device_s_squared / self.runs - self.mean_s**2) / self.runs)


def tally_cell(cell: CostCell, runs: int, seed: Sequence[int], costs: Costs | None = None) -> dict[str, Tally]:
    """Simulate ``runs`` comparisons of a cell under every design; the same seed gives the same tallies."""
    rng = np.random.default_rng(seed)
    histories = machine_histories(cell, np.random.default_rng([*seed, HISTORY_POOL]))
    tallies = {design.name: Tally() for design in DESIGNS}
    for _ in range(runs):
        history = histories[int(rng.integers(len(histories)))]
        for name, ended in simulate_designs(cell.world, history, costs or Costs(), rng).items():
            tallies[name] = tallies[name].plus(
                Tally(
                    runs=1,
                    right=ended.word == cell.right,
                    wrong=ended.word in cell.wrong,
                    pairs=ended.pairs,
                    device_s=ended.device_s,
                    device_s_squared=ended.device_s**2,
                )
            )
    return tallies


def machine_histories(cell: CostCell, rng: np.random.Generator, machines: int = HISTORY_POOL) -> list[History]:
    """Launch variances that A/A comparisons tell of machines like this one, each fitted by production code."""
    plan = latency_plan(MARGIN)
    world = cell.world.model_copy(update={"effect": 0.0, "launch_sd": cell.history_sd})
    return [_history(world, plan, rng) for _ in range(machines)]


def _history(world: LatencyWorld, plan: Plan, rng: np.random.Generator) -> History:
    sds: dict[EngineMetric, list[float]] = {metric: [] for metric in METRICS}
    for _ in range(HISTORIES):
        blocks = [block for pair in range(1, HISTORY_PAIRS + 1) for block in pair_blocks(world, plan, pair, rng)]
        contrasts = measure(Records(records=tuple(blocks)), plan).contrasts
        for metric in METRICS:
            logs = [contrast.log_ratio for contrast in contrasts[metric, _latency(plan).primary_batch]]
            sds[metric].append(ratio_interval(logs).sd)
    return {
        metric: LaunchHistory(**launch_prior(found, [HISTORY_PAIRS] * HISTORIES)._asdict(), source="simulated")
        for metric, found in sds.items()
    }


def simulate_designs(world: LatencyWorld, history: History, costs: Costs, rng: np.random.Generator) -> dict[str, Ended]:
    """Every design over the same launch pairs, which are simulated up to the last look of any."""
    plan = latency_plan(MARGIN)
    starts_s = rng.uniform(*costs.start_s, size=(PAIRS_MAX, 2)).sum(axis=1)
    spent_s = np.cumsum(starts_s + rng.uniform(*costs.measuring_s, size=PAIRS_MAX))
    first = pair_blocks(world, plan, 1, rng)
    seen = [measure(Records(records=tuple(first)), plan)]
    for pair in range(2, PAIRS_MAX + 1):
        seen.append(joined(seen[-1], measure(Records(records=tuple(pair_blocks(world, plan, pair, rng))), plan)))
    ended = {}
    for design in DESIGNS:
        pairs, word = _ends(design, plan, history, seen) if design.looks else (1, naive_word(first, plan))
        ended[design.name] = Ended(word=word, device_s=float(spent_s[pairs - 1]), pairs=pairs)
    return ended


def _ends(design: Design, plan: Plan, history: History, seen: Sequence[Measured]) -> tuple[int, str]:
    """The look that ends a design, and its word there."""
    update = {"looks": design.looks, "pairs_max": design.looks[-1], "history": history if design.borrows else {}}
    of_design = plan.model_copy(update=update)
    word = ""
    for look in design.looks:
        verdict = conclude(seen[look - 1], of_design)
        word = verdict.latency.word if verdict.latency else verdict.overall.word
        if word != "inconclusive":
            return look, word
    return design.looks[-1], word


def naive_word(blocks: Iterable[BlockRecord], plan: Plan) -> str:
    """What somebody says who takes the steps of one launch per arm for independent: Welch's t over steps (1947)."""
    steps: dict[Role, list[float]] = {"A": [], "B": []}
    for block in blocks:
        steps[block.role] += timed_block(block, _latency(plan)).busy_us.tolist()
    means = {role: float(np.mean(us)) for role, us in steps.items()}
    parts = {role: float(np.var(us, ddof=1)) / len(us) for role, us in steps.items()}
    df = sum(parts.values()) ** 2 / sum(part**2 / (len(steps[role]) - 1) for role, part in parts.items())
    half = -float(stdtrit(df, NAIVE_ALPHA / 2)) * math.sqrt(sum(parts.values()))
    low, high = ((means["B"] - means["A"] + sign * half) / means["A"] for sign in (-1, 1))
    if high < 0:
        return "faster"
    if low > 0:
        return "slower"
    return "equivalent" if low > -MARGIN and high < MARGIN else "inconclusive"


def _latency(plan: Plan) -> LatencyPlan:
    if plan.latency is None:
        raise ValueError("the plan has no latency half")
    return plan.latency


def cost_table(tallies: Mapping[str, Mapping[str, Tally]]) -> list[str]:
    """Markdown lines: a row a cell and design, and how many times cheaper it is than the reference."""
    head = ("world", "design", "runs", "right word", "false verdicts", "launch pairs", "device seconds", "of 10 + 10")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for cell, by_design in tallies.items():
        reference_s = by_design[REFERENCE].mean_s
        for name, tally in by_design.items():
            row = (
                cell,
                name,
                f"{tally.runs}",
                f"{tally.right / tally.runs:.1%}",
                f"{tally.wrong / tally.runs:.2%}",
                f"{tally.pairs / tally.runs:.2f}",
                f"{tally.mean_s:.0f} ± {tally.error_s:.0f}",
                f"1/{reference_s / tally.mean_s:.2f}",
            )
            lines.append(f"| {' | '.join(row)} |")
    return lines
