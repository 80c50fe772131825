"""A comparison that runs: what is known after each launch pair, what that cost and what more may be spent."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from equipoise_evals.model import Plan
from equipoise_service.charts import ForestRow, forest_chart

HALVES = (
    ("latency", 100.0, "%", "Effect on busy time so far", ("faster", "slower")),
    ("accuracy", 1.0, "pp", "Difference of right answers so far", ("worse", "better")),
)


class Running(NamedTuple):
    """What is known so far.

    Attributes:
        pairs: Launch pairs finished.
        spent_s: Seconds in which engines held the device.
        next_look: Launch pairs at the next look; None where the last one is done.
        next_s: Seconds expected until that look, from the start; ``most_s`` until the last pair.
        charts: Intervals after each launch pair, a chart a half.
        headline: What the judge says now.
    """

    pairs: int
    spent_s: float
    next_look: int | None
    next_s: float | None
    most_s: float
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
        charts=tuple(chart for chart in (_chart(half, looks) for half in HALVES) if chart),
        headline=last["headline"],
    )


def _chart(half: tuple[str, float, str, str, tuple[str, str]], looks: Sequence[Mapping[str, Any]]) -> Markup | None:
    name, scale, unit, title, sides = half
    known = [(look["pair"], look["intervals"][name]) for look in looks if name in look["intervals"]]
    if not known:
        return None
    rows = [
        ForestRow(
            f"after {pair} launch pair{'s' if pair > 1 else ''}",
            scale * effect,
            None if low is None else (scale * low, scale * high),
            decides=(pair, limits) == known[-1],
        )
        for pair, limits in known
        for effect, low, high, _ in [limits]
    ]
    margin = scale * known[-1][1][3]
    upper = margin if name == "latency" else None
    return forest_chart(f"so-far-{name}", title, rows, unit=unit, margin=(-margin, upper), sides=sides)
