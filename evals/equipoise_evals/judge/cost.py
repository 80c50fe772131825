"""What launch pairs cost: seconds in which their engines held devices."""

from collections.abc import Iterable

from equipoise_evals.model import BlockRecord, Layout, Role, StopRecord


def device_seconds(stops: Iterable[StopRecord], layout: Layout) -> dict[int, float]:
    """By launch pair, seconds in which at least one engine held a device set, summed over device sets.

    Engines side by side on one set hold it together; one after the other, or on a set each, their seconds add up. Of a
    pair that was launched again its longest launch counts.
    """
    held: dict[tuple[int, Role | None], float] = {}
    for stop in stops:
        shared = (stop.pair, None if layout == "co_resident" else stop.role)
        held[shared] = max(held.get(shared, 0.0), stop.held_s)
    by_pair: dict[int, float] = {}
    for (pair, _), seconds in held.items():
        by_pair[pair] = by_pair.get(pair, 0.0) + seconds
    return by_pair


def timed_pairs_seconds(stops: Iterable[StopRecord], blocks: Iterable[BlockRecord], layout: Layout) -> dict[int, float]:
    """The same of pairs with blocks: once a look has decided the speed, later pairs have none and cost less."""
    timed = {block.pair for block in blocks}
    return {pair: seconds for pair, seconds in device_seconds(stops, layout).items() if pair in timed}
