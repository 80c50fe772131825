"""A comparison that runs: what is known after each launch pair, what that cost and what more may be spent."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from equipoise_evals.model import Plan
from equipoise_service.api.halves import HALVES, UNITS, Half, shown
from equipoise_service.charts import ForestRow, forest_chart

TITLES: dict[Half, tuple[str, tuple[str, str]]] = {
    "latency": ("Effect on busy time so far", ("faster", "slower")),
    "accuracy": ("Difference of right answers so far", ("worse", "better")),
}
"""With what values below and above 0 mean."""


class Running(NamedTuple):
    """What is known so far.

    Attributes:
        pairs: Launch pairs finished.
        spent_s: Seconds in which engines held the device.
        next_look: Launch pairs at the next look; None where the last one is done.
        next_s: Seconds expected until that look, from the start; ``most_s`` until the last pair.
        expected: Launch pairs at which both halves are likely to be decided; None where nobody can tell yet.
        charts: Intervals after each launch pair, a chart a half.
        headline: What the judge says now.
    """

    pairs: int
    spent_s: float
    next_look: int | None
    next_s: float | None
    most_s: float
    expected: int | None
    charts: tuple[Markup, ...]
    headline: str


def running_of(looks: Sequence[Mapping[str, Any]], plan: Plan) -> Running:
    """From the ``look`` events of a comparison, at least one, in order; expected is what pairs cost until now."""
    last = looks[-1]
    pair_s = last["device_s"] / last["pair"]
    following = next((look for look in plan.looks if look > last["pair"]), None)
    return Running(
        pairs=last["pair"],
        spent_s=last["device_s"],
        next_look=following,
        next_s=None if following is None else following * pair_s,
        most_s=plan.pairs_max * pair_s,
        expected=last.get("expected"),
        charts=tuple(chart for chart in (_chart(half, looks) for half in HALVES) if chart),
        headline=last["headline"],
    )


def _chart(half: Half, looks: Sequence[Mapping[str, Any]]) -> Markup | None:
    found = [(look["pair"], shown(half, look["intervals"][half])) for look in looks if half in look["intervals"]]
    known = [(pair, one) for pair, one in found if one is not None]
    if not known:
        return None
    title, sides = TITLES[half]
    rows = [
        ForestRow(
            f"after {pair} launch pair{'s' if pair > 1 else ''}",
            one.effect,
            one.interval,
            decides=(pair, one) == known[-1],
        )
        for pair, one in known
    ]
    bounds = known[-1][1].bounds
    return forest_chart(f"so-far-{half}", title, rows, unit=UNITS[half][1], margin=bounds, sides=sides)
