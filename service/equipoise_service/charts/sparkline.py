"""An interval in a table cell: where an effect lies against its margin, at a glance."""

from functools import lru_cache

from markupsafe import Markup

from equipoise_service.charts.canvas import Canvas
from equipoise_service.charts.scale import Scale

WIDTH, HEIGHT = 120.0, 20.0
REACH = 4.0
"""Margins to each side of 0 that are shown; what lies beyond them is an arrow's head at the edge."""


@lru_cache(maxsize=10_000)  # a list shows the same rows again and again, and drawing them is most of what it costs
def sparkline(
    name: str,
    effect: float,
    interval: tuple[float, float] | None,
    bounds: tuple[float, float | None],
    unit: str,
    *,
    judged: bool = True,
) -> Markup:
    """One interval on a scale of ``REACH`` margins to each side; the same scale in every row of a list.

    Args:
        name: Unique on the page.
        effect: The estimate.
        interval: Its interval, None where there is none.
        bounds: Least and largest value inside the margin; None as the largest where it has no upper end.
        unit: Of all of them.
        judged: False draws it hollow and says so: the run could not be judged, so its numbers prove nothing.
    """
    least, most = bounds
    reach = REACH * -least
    scale = Scale(-reach, reach, 4, WIDTH - 4)
    between = "no interval" if interval is None else f"{interval[0]:+.2f} to {interval[1]:+.2f} {unit}"
    canvas = Canvas(
        name,
        f"{effect:+.2f} {unit} ({between}){'' if judged else ', not judged'}",
        f"Margin {least:+g} {unit}." if most is None else f"Margin ±{most:g} {unit}.",
        width=WIDTH,
        height=HEIGHT,
    )
    css = "estimate" if judged else "estimate beside"
    middle = HEIGHT / 2
    right = WIDTH if most is None else scale(most)
    canvas.rect((scale(least), 2), right - scale(least), HEIGHT - 4, "band")
    canvas.line((scale(0), 2), (scale(0), HEIGHT - 2), "zero")
    if interval is not None:
        canvas.line((scale(interval[0]), middle), (scale(interval[1]), middle), f"{css} whisker")
    low, high = interval or (effect, effect)
    if low < -reach:
        canvas.path([(0, middle), (6, middle - 5), (6, middle + 5)], css, close=True)
    if high > reach:
        canvas.path([(WIDTH, middle), (WIDTH - 6, middle - 5), (WIDTH - 6, middle + 5)], css, close=True)
    if abs(effect) <= reach:
        canvas.circle((scale(effect), middle), 3.5, css)
    return canvas.svg()
