"""An effect over time, with marks where what was measured changed."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from equipoise_service.charts.canvas import Canvas
from equipoise_service.charts.scale import Scale, tick_text

WIDTH, HEIGHT = 720.0, 260.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 700.0, 30.0, 216.0
LABELS = 8


class TrendPoint(NamedTuple):
    """One comparison; ``mark`` numbers the change before it, None where nothing changed.

    One that was not ``judged`` is drawn hollow and beside the line: its numbers prove nothing.
    """

    label: str
    estimate: float
    interval: tuple[float, float] | None
    mark: int | None
    judged: bool = True


def trend_chart(
    name: str, title: str, points: Sequence[TrendPoint], *, unit: str, margin: tuple[float, float | None]
) -> Markup:
    """Estimates with intervals from left to right; at least one.

    Args:
        name: Unique on the page.
        title: What is shown.
        points: In the order of time.
        unit: Of estimates, intervals and margin.
        margin: Least and largest value inside the margin; None as the largest where it has no upper end.
    """
    low, high = margin
    values = [value for point in points for value in (point.estimate, *(point.interval or ()))]
    ys = Scale.around([0.0, low, *([] if high is None else [high]), *values], BOTTOM, TOP)
    xs = Scale(0, len(points), LEFT, RIGHT)
    changes = sum(point.mark is not None for point in points)
    said = f"{len(points)} comparisons from {points[0].label} to {points[-1].label}, {changes} changes marked."
    canvas = Canvas(name, title, said, width=WIDTH, height=HEIGHT)
    top = TOP if high is None else ys(high)
    canvas.rect((LEFT, top), RIGHT - LEFT, ys(low) - top, "band")
    ticks = ys.ticks(5)
    for tick in ticks:
        canvas.line((LEFT, ys(tick)), (RIGHT, ys(tick)), "zero" if tick == 0 else "grid")
        canvas.text((LEFT - 8, ys(tick) + 4), tick_text(tick, ticks), anchor="end")
    canvas.text((LEFT - 8, 16), unit, "label soft", anchor="end")
    every = -(-len(points) // LABELS)
    thread = [(xs(place + 0.5), ys(point.estimate)) for place, point in enumerate(points) if point.judged]
    if thread:
        canvas.path(thread, "estimate thread")
    for place, point in enumerate(points):
        x = xs(place + 0.5)
        if point.mark is not None:
            canvas.line((xs(place), TOP), (xs(place), BOTTOM), "level")
            canvas.text((xs(place) + 3, TOP - 4), str(point.mark), "label soft tiny")
        css = "estimate" if point.judged else "estimate beside"
        if point.interval is not None:
            canvas.line((x, ys(point.interval[0])), (x, ys(point.interval[1])), f"{css} whisker")
        canvas.circle((x, ys(point.estimate)), 4, css)
        if place % every == 0:
            canvas.text((x, BOTTOM + 18), point.label, "label soft tiny", anchor="middle")
    return canvas.svg()
