"""Prepared comparisons for every word that a verdict can have: records of stated truths, and their plans."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from equipoise_evals.model import ArmPair, ArmSpec, BlockRecord, LaunchRecord, Plan, Record, Records, Role
from tests.support import records as make

BASELINE = ArmSpec(name="baseline", scratch="baseline")


class World(NamedTuple):
    """A plan and what was observed."""

    plan: Plan
    records: Records


def observed(
    plan: Plan,
    *,
    effect: float = -0.0164,
    pairs: int = 3,
    launch_sd: float = 0.0005,
    fills: tuple[float, float] = (60.0, 0.0),
    passes: Iterable[Record] | None = None,
) -> World:
    """Both halves over some launch pairs."""
    blocks = make.blocks(plan, pairs, np.random.default_rng(11), effect=effect, launch_sd=launch_sd)
    return World(
        plan,
        make.together(
            [make.questions()],
            make.launches(plan, pairs),
            make.treatment(*fills),
            make.equal_passes() if passes is None else passes,
            [with_telemetry(block) if isinstance(block, BlockRecord) else block for block in blocks],
        ),
    )


def with_telemetry(block: BlockRecord) -> BlockRecord:
    """What a GPU says of itself: it warms up over the launch pairs."""
    warm = 40.0 + 2 * block.pair + block.sequence
    telemetry: dict[str, Any] = {
        "sm_clock_mhz": {"min": 1950, "median": 1980.0, "max": 1980, "samples": 4},
        "temperature_c": {"min": warm - 1, "median": warm, "max": warm + 1, "samples": 4},
        "throttle_reasons": ["power_cap"] if block.sequence == 3 else [],
    }
    return block.model_copy(update={"telemetry": telemetry})


def parted_passes(text: str = "so many ") -> list[Record]:
    """Passes in which the candidate answers question 5 wrongly and words question 3 otherwise."""
    right: dict[Role, list[bool]] = {"A": [i < 6 for i in range(16)], "B": [i < 5 for i in range(16)]}
    return [
        make.one_pass(pair, role, right[role], style={3: text} if role == "B" else None)
        for pair in (1, 2)
        for role in right
    ]


def every_word(**changes: Any) -> dict[str, World]:
    """One world a verdict word; ``changes`` are of their plans."""
    plan = make.plan(**changes)
    short = make.plan(2, **changes)
    lost = [
        make.one_pass(pair, role, [i < 6 for i in range(16)], failed=range(4) if role == "B" else ())
        for pair in (1, 2)
        for role in ("A", "B")
    ]
    return {
        "ship": observed(plan),
        "neutral": observed(plan, effect=0.0, pairs=10, launch_sd=0.0003),
        "block": observed(plan, effect=0.03, passes=parted_passes()),
        "inconclusive": observed(short, effect=-0.05, pairs=2),
        "treatment_inactive": observed(plan, fills=(60.0, 60.0)),
        "invalid": observed(plan, passes=lost),
    }


def declared_aa(effect: float = 0.0) -> World:
    """Two equal arms, meant to be equal."""
    plan = make.plan(declared_aa=True, arms=ArmPair(baseline=BASELINE, candidate=BASELINE))
    return attested(observed(plan, effect=effect, fills=(60.0, 60.0)), "0.5.17")


def attested(world: World, sglang: str, device: str = "NVIDIA H200") -> World:
    """The same world, whose engines say their version and their device."""
    said = {"versions": {"sglang": sglang}, "device": {"type": "cuda", "name": device}}
    records = tuple(
        one.model_copy(update={"attestation": one.attestation | said}) if isinstance(one, LaunchRecord) else one
        for one in world.records.records
    )
    return World(world.plan, Records(records=records))
