"""Estimates with their intervals, one row each, against a margin."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from equipoise_service.charts.canvas import Canvas
from equipoise_service.charts.scale import Scale, tick_text

WIDTH, ROW, TOP, BOTTOM = 720.0, 30.0, 26.0, 40.0
LEFT, RIGHT = 210.0, 700.0


class ForestRow(NamedTuple):
    """One estimate; ``interval`` is None where there is none. What decides is drawn filled."""

    label: str
    estimate: float
    interval: tuple[float, float] | None
    decides: bool


def forest_chart(
    name: str,
    title: str,
    rows: Sequence[ForestRow],
    *,
    unit: str,
    margin: tuple[float | None, float | None],
    sides: tuple[str, str],
) -> Markup:
    """Intervals below each other.

    Args:
        name: Unique on the page.
        title: What is estimated.
        rows: From top to bottom; at least one.
        unit: Of estimates, intervals and margins.
        margin: Least and largest value inside the margin, None on a side that has none.
        sides: What values below and above 0 mean.
    """
    bounds = [bound for bound in margin if bound is not None]
    values = [0.0, *bounds, *(row.estimate for row in rows), *(end for row in rows for end in row.interval or ())]
    scale = Scale.around(values, LEFT, RIGHT)
    bottom = TOP + ROW * len(rows)
    said = "; ".join(_said(row, unit) for row in rows)
    canvas = Canvas(name, title, f"{said}. {_margin_said(margin, unit)}", width=WIDTH, height=bottom + BOTTOM)
    low = LEFT if margin[0] is None else scale(margin[0])
    high = RIGHT if margin[1] is None else scale(margin[1])
    canvas.rect((low, TOP), high - low, bottom - TOP, "band")
    for bound in bounds:
        canvas.line((scale(bound), TOP), (scale(bound), bottom), "margin")
    canvas.line((scale(0), TOP), (scale(0), bottom), "zero")
    ticks = scale.ticks()
    for tick in ticks:
        canvas.line((scale(tick), bottom), (scale(tick), bottom + 4), "axis")
        canvas.text((scale(tick), bottom + 18), tick_text(tick, ticks), anchor="middle")
    canvas.line((LEFT, bottom), (RIGHT, bottom), "axis")
    canvas.text((LEFT, 16), f"← {sides[0]}", "label soft")
    canvas.text((RIGHT, 16), f"{sides[1]} →", "label soft", anchor="end")
    canvas.text((RIGHT, bottom + 34), unit, "label soft", anchor="end")
    for place, row in enumerate(rows):
        _draw(canvas, scale, TOP + ROW * (place + 0.5), row)
    return canvas.svg()


def _draw(canvas: Canvas, scale: Scale, y: float, row: ForestRow) -> None:
    css = "estimate" if row.decides else "estimate beside"
    canvas.text((LEFT - 10, y + 4), row.label, "label" if row.decides else "label soft", anchor="end")
    if row.interval is not None:
        low, high = scale(row.interval[0]), scale(row.interval[1])
        canvas.line((low, y), (high, y), f"{css} whisker")
        for end in (low, high):
            canvas.line((end, y - 5), (end, y + 5), f"{css} whisker")
    canvas.circle((scale(row.estimate), y), 5, css)


def _said(row: ForestRow, unit: str) -> str:
    interval = row.interval
    between = "no interval" if interval is None else f"{interval[0]:+.2f} to {interval[1]:+.2f}"
    return f"{row.label}: {row.estimate:+.2f} {unit} ({between})"


def _margin_said(margin: tuple[float | None, float | None], unit: str) -> str:
    ends = [f"{end:+g}" for end in margin if end is not None]
    return f"Margin: {' to '.join(ends)} {unit}." if ends else ""
