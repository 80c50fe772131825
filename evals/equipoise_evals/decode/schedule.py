"""The order of launches and of decode blocks: balanced by design, decided before anything runs."""

from collections.abc import Iterator
from random import Random

from equipoise_evals.model import ROLES, Frozen, LatencyPlan, Plan, Role

ABBA: tuple[Role, ...] = ("A", "B", "B", "A")
BAAB: tuple[Role, ...] = ("B", "A", "A", "B")


class PlannedBlock(Frozen):
    """One block to run; the numbers are 1-based, as in ``BlockRecord``."""

    role: Role
    batch: int
    quad: int
    position: int
    sequence: int


def launch_order(plan: Plan, pair: int) -> tuple[Role, Role]:
    """Which engine of a launch pair starts first; the same for the same seed and pair.

    Drawn for every other pair where both run at once on one device set, and turned round in the next: by the order
    alone equal engines differed by 0 to 1.2 % on H200s, and over an even number of pairs that cancels. ``alternating``
    launches in ABBA order, so that a drift from launch to launch cancels over two pairs. ``crossover`` changes the
    order every second pair, so that over four pairs each arm was first on each device set once.
    """
    if plan.layout == "co_resident":
        return _order(plan, f"launch/{(pair - 1) // 2}", turns=pair - 1)
    return _order(plan, "launch", turns=pair - 1 if plan.layout == "alternating" else (pair - 1) // 2)


def device_sets(plan: Plan, pair: int) -> dict[Role, int]:
    """The device set of each engine of a launch pair, 0 or 1: both 0, or in ``crossover`` swapped from pair to pair."""
    if plan.layout != "crossover":
        return {"A": 0, "B": 0}
    first, second = _order(plan, "devices", turns=pair - 1)
    return {first: 0, second: 1}


def launches(plan: Plan, pair: int) -> tuple[tuple[Role, ...], ...]:
    """The engines of a launch pair that run at once, group after group, each in the order of its start."""
    first, second = launch_order(plan, pair)
    return ((first,), (second,)) if plan.layout == "alternating" else ((first, second),)


def _order(plan: Plan, what: str, turns: int) -> tuple[Role, Role]:
    """One of both orders, drawn by the plan's seed, and turned round so often."""
    first_is_baseline = Random(f"{plan.seed}/{what}").random() < 0.5  # noqa: S311 - a design, not a secret
    return ROLES if first_is_baseline == (turns % 2 == 0) else (ROLES[1], ROLES[0])


def pair_blocks(plan: Plan, pair: int) -> list[PlannedBlock]:
    """The blocks of one launch pair in the order in which they run; none without a latency half."""
    if plan.latency is None:
        return []
    if plan.layout == "alternating":
        return list(alternating_blocks(plan.latency, launch_order(plan, pair)))
    return list(planned_blocks(plan.latency, pair))


def alternating_blocks(latency: LatencyPlan, order: tuple[Role, Role]) -> Iterator[PlannedBlock]:
    """All blocks of the first engine, then all of the second; half a quad is one engine's."""
    sequence = 0
    for half, role in enumerate(order):
        for batch in latency.batch_sizes:
            for quad in range(1, latency.quads_per_pair + 1):
                for position in (1, 2):
                    sequence += 1
                    yield PlannedBlock(
                        role=role, batch=batch, quad=quad, position=2 * half + position, sequence=sequence
                    )


def planned_blocks(latency: LatencyPlan, pair: int) -> Iterator[PlannedBlock]:
    """The blocks of one launch pair whose engines run at once, in the order in which they run.

    Quads alternate ABBA and BAAB, and so do launch pairs, so that a drift that is linear in time cancels within a
    quad and its sign cancels between quads.
    """
    sequence = 0
    for batch in latency.batch_sizes:
        for quad in range(1, latency.quads_per_pair + 1):
            order = ABBA if (pair + quad) % 2 == 0 else BAAB
            for position, role in enumerate(order, start=1):
                sequence += 1
                yield PlannedBlock(role=role, batch=batch, quad=quad, position=position, sequence=sequence)
