"""The order of launches and of decode blocks: balanced by design, decided before anything runs."""

from collections.abc import Iterator
from random import Random

from equipoise_evals.model import Frozen, LatencyPlan, Plan, Role

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
    """Which engine of a launch pair starts first: random, and the same for the same seed and pair."""
    first_is_baseline = Random(f"{plan.seed}/launch/{pair}").random() < 0.5  # noqa: S311 - a design, not a secret
    return ("A", "B") if first_is_baseline else ("B", "A")


def planned_blocks(latency: LatencyPlan, pair: int) -> Iterator[PlannedBlock]:
    """The blocks of one launch pair, in the order in which they run.

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
