"""One simulated latency comparison after another through the production judge, looks and stopping included."""

from dataclasses import replace

import numpy as np

from equipoise_evals.calibrate.worlds import LatencyWorld, pair_blocks
from equipoise_evals.judge import Measured, conclude, measure
from equipoise_evals.model import (
    ArmPair,
    ArmSpec,
    Frozen,
    LatencyPlan,
    LatencyVerdict,
    Layout,
    ModelRef,
    Plan,
    Records,
    looks_up_to,
)
from equipoise_evals.stats.latency import ratio_interval

FIXED_PAIRS = (3, 5)
"""Numbers of pairs at which the coverage of a fixed 95 % interval is read; measured whether or not a look stopped."""


class LatencyOutcome(Frozen):
    """How one simulated comparison ended.

    Attributes:
        word: The word on latency, or the overall word where a run was set aside (``invalid``).
        pairs: Launch pairs at the end.
        covered: Whether the interval at the look's level held the true effect; None without an interval.
        fixed_covered: Whether the fixed 95 % interval at each of ``FIXED_PAIRS`` held it.
    """

    word: str
    pairs: int
    covered: bool | None
    fixed_covered: tuple[bool, ...]


def latency_plan(
    margin: float = 0.005, steps_per_block: int = 32, pairs_max: int = 10, layout: Layout = "co_resident"
) -> Plan:
    """A latency-only plan of one batch size and one quad per pair, the smallest that the product runs."""
    arm = ArmSpec(name="simulated", scratch="baseline")
    return Plan(
        preset="simulated",
        model=ModelRef(name="simulated", source="simulated", path="simulated", revision="0"),
        arms=ArmPair(baseline=arm, candidate=arm),
        declared_aa=True,
        pairs_max=pairs_max,
        layout=layout,
        looks=looks_up_to(pairs_max, layout=layout),
        seed=0,
        accuracy=None,
        latency=LatencyPlan(
            batch_sizes=(16,),
            primary_batch=16,
            quads_per_pair=1,
            prompt_tokens=32,
            steps_per_block=steps_per_block,
            warmup_steps=8,
            margin=margin,
        ),
    )


def simulate_latency(world: LatencyWorld, plan: Plan, rng: np.random.Generator) -> LatencyOutcome:
    """Run one comparison in ``world`` as ``run_comparison`` would, and read how it ended.

    Launch pairs are measured once each, by the production ``measure``; each look is the production ``conclude`` over
    the pairs so far.
    """
    assert plan.latency is not None  # noqa: S101 - the plan is ours
    seen: Measured | None = None
    ended: tuple[LatencyVerdict | None, str, int] | None = None
    logs: list[float] = []
    for pair in range(1, plan.pairs_max + 1):
        measured = measure(Records(records=tuple(pair_blocks(world, plan, pair, rng))), plan)
        seen = measured if seen is None else joined(seen, measured)
        logs.append(measured.contrasts["busy", plan.latency.primary_batch][0].log_ratio)
        if ended is None and pair in plan.looks:
            verdict = conclude(seen, plan)
            word: str = verdict.latency.word if verdict.latency else verdict.overall.word
            if word != "inconclusive" or pair == plan.pairs_max:
                ended = (verdict.latency, word, pair)
        if ended is not None and pair >= max(FIXED_PAIRS):
            break
    if ended is None:
        raise ValueError("the plan has no look")
    latency, word, pairs = ended
    return LatencyOutcome(
        word=word,
        pairs=pairs,
        covered=_covers(latency, world.effect),
        fixed_covered=tuple(_fixed_covers(logs[:fixed], world.effect) for fixed in FIXED_PAIRS if fixed <= len(logs)),
    )


def joined(seen: Measured, pair: Measured) -> Measured:
    """What was measured so far with one more pair: what ``measure`` says of the records of both, latency only."""
    return replace(
        seen,
        invalid=seen.invalid or pair.invalid,
        contrasts={key: [*contrasts, *pair.contrasts[key]] for key, contrasts in seen.contrasts.items()},
        levels=(*seen.levels, *pair.levels),
        load=seen.load.plus(pair.load),
        timed=max(seen.timed, pair.timed),
    )


def _covers(latency: LatencyVerdict | None, effect: float) -> bool | None:
    interval = latency.evidence.busy.interval if latency else None
    return None if interval is None else interval.low <= effect <= interval.high


def _fixed_covers(logs: list[float], effect: float) -> bool:
    fixed = ratio_interval(logs, confidence=0.95)
    return fixed.low <= 1 + effect <= fixed.high
