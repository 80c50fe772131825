"""Whether blocks and starts came in the orders that cancel a drift, as the schedule makes them.

The schedule draws which of two orders comes first, so both count. Blocks in an order that is none of them are no
measurement, for a drift would count as the candidate's; starts that stay where they were to be turned round are told.
"""

from collections.abc import Iterable, Mapping, Sequence

from equipoise_evals.decode.schedule import ABBA, BAAB
from equipoise_evals.model import (
    ROLE_NAMES,
    ROLES,
    BlockRecord,
    Invalid,
    LatencyPlan,
    LaunchRecord,
    Layout,
    Plan,
    Records,
    Role,
)

IN_TURN: tuple[tuple[Role, ...], ...] = (ABBA, BAAB)
ONE_BY_ONE: tuple[tuple[Role, ...], ...] = (("A", "A", "B", "B"), ("B", "B", "A", "A"))
"""Where one engine runs at a time, half of each quad is one engine's."""
TURNED_AFTER: dict[Layout, int] = {"co_resident": 1, "alternating": 1, "crossover": 2}
"""Launch pairs after which the order of starts is turned round (``decode.schedule.launch_order``)."""


def judge_order(records: Records, plan: Plan) -> Invalid | None:
    """The first quad in an order that the schedule does not have, or None."""
    if plan.latency is None:
        return None
    return _misplaced(records.current_blocks(), plan.latency, plan.layout)


def unturned_note(records: Records, plan: Plan) -> str | None:
    """What a reader must know where a pair's engines started in the order in which they were to be turned round."""
    blocks = records.current_blocks()
    first = _first_started(records.of(LaunchRecord))
    if plan.layout == "alternating":
        first |= _first_measured(blocks)
    return _not_turned(first, {block.pair for block in blocks}, TURNED_AFTER[plan.layout])


def _misplaced(blocks: Sequence[BlockRecord], latency: LatencyPlan, layout: Layout) -> Invalid | None:
    quads: dict[tuple[int, int, int], list[BlockRecord]] = {}
    for block in blocks:
        quads.setdefault((block.pair, block.batch, block.quad), []).append(block)
    orders = ONE_BY_ONE if layout == "alternating" else IN_TURN
    for (pair, batch, number), quad in quads.items():
        called = f"pair {pair}, batch {batch}, quad {number}"
        if batch not in latency.batch_sizes or number > latency.quads_per_pair:
            return _invalid(f"{called}: the plan has no such quad")
        if not any(all(order[block.position - 1] == block.role for block in quad) for order in orders):
            ran = " ".join(f"{block.position}:{block.role}" for block in sorted(quad, key=lambda b: b.position))
            wanted = " or ".join("".join(order) for order in orders)
            return _invalid(f"{called}: the blocks ran as {ran} and not as {wanted}")
    return None


def _first_started(launches: Iterable[LaunchRecord]) -> dict[int, Role]:
    """By pair the engine that was started first, where the last records of both say so of one alone."""
    first: dict[int, dict[Role, bool]] = {}
    for launch in launches:
        if not launch.attached:
            first.setdefault(launch.pair, {})[launch.role] = launch.started_first
    return {
        pair: next(role for role in ROLES if of_pair.get(role))
        for pair, of_pair in first.items()
        if sorted(of_pair.values()) == [False, True]
    }


def _first_measured(blocks: Iterable[BlockRecord]) -> dict[int, Role]:
    return {block.pair: block.role for block in blocks if block.position == 1}


def _not_turned(first: Mapping[int, Role], timed: Iterable[int], after: int) -> str | None:
    for pair in sorted(timed):
        before = pair - after
        is_second = (pair - 1) % (2 * after) >= after
        if is_second and pair in first and first[pair] == first.get(before):
            return (
                f"The {ROLE_NAMES[first[pair]]} came first in launch pair {pair} as in pair {before}, of which one "
                "turns the other's order round: what an order adds does not cancel here."
            )
    return None


def _invalid(detail: str) -> Invalid:
    return Invalid(reason="order_differs", detail=f"{detail}; what the order adds would count as the candidate's")
