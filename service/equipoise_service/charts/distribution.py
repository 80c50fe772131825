"""How step times of both arms are distributed: baseline above the line, candidate below it."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from equipoise_service.charts.canvas import Canvas, Point
from equipoise_service.charts.scale import Scale, tick_text

WIDTH, HEIGHT = 720.0, 240.0
LEFT, RIGHT, TOP, MIDDLE, BOTTOM = 20.0, 700.0, 30.0, 110.0, 190.0


class Histogram(NamedTuple):
    """Steps by time: both arms over the same bins of equal width.

    Attributes:
        low_us: Where the first bin begins; ``high_us`` where the last one ends.
        baseline: Steps in each bin; ``candidate`` likewise.
    """

    low_us: float
    high_us: float
    baseline: Sequence[int]
    candidate: Sequence[int]


def distribution_chart(
    name: str,
    title: str,
    steps: Histogram,
    means_us: tuple[float, float],
    levels_us: Sequence[float] = (),
    *,
    step: str = "decode step",
) -> Markup:
    """Two histograms back to back, each scaled to its own number of steps.

    Args:
        name: Unique on the page.
        title: What is shown.
        steps: At least one bin.
        means_us: Mean of the baseline's and the candidate's steps.
        levels_us: Two levels between which steps jump, where they were found.
        step: What was timed, one of it.
    """
    scale = Scale(steps.low_us, steps.high_us, LEFT, RIGHT)
    levels = f" Steps jump between about {' and '.join(f'{us:.0f}' for us in levels_us)} us." if levels_us else ""
    said = f"Baseline mean {means_us[0]:.1f} us, candidate mean {means_us[1]:.1f} us.{levels}"
    canvas = Canvas(name, title, said, width=WIDTH, height=HEIGHT)
    arms = (
        ("baseline (above)", "arm-a", steps.baseline, means_us[0], TOP),
        ("candidate (below)", "arm-b", steps.candidate, means_us[1], BOTTOM),
    )
    for _, css, counts, mean_us, far in arms:
        canvas.path(_outline(counts, far), f"{css} area", close=True)
        canvas.line((scale(mean_us), MIDDLE), (scale(mean_us), far), f"{css} mean")
    for us in levels_us:
        canvas.line((scale(us), TOP - 8), (scale(us), BOTTOM), "level")
        canvas.text((scale(us), TOP - 14), f"level {us:,.0f} µs", "label soft", anchor="middle")
    canvas.line((LEFT, MIDDLE), (RIGHT, MIDDLE), "axis")
    ticks = scale.ticks()
    for tick in ticks:
        canvas.line((scale(tick), BOTTOM), (scale(tick), BOTTOM + 4), "axis")
        canvas.text((scale(tick), BOTTOM + 18), tick_text(tick, ticks), anchor="middle")
    for place, (label, css, _, mean_us, _) in enumerate(arms):
        x = LEFT + 270 * place  # a mean may have six digits before the point
        canvas.rect((x, BOTTOM + 29), 10, 10, css)
        canvas.text((x + 16, BOTTOM + 38), f"{label}, mean {mean_us:,.1f} µs")
    canvas.text((RIGHT, BOTTOM + 38), f"µs per {step}", "label soft", anchor="end")
    return canvas.svg()


def _outline(counts: Sequence[int], far: float) -> list[Point]:
    """Stairs from the middle towards ``far``, which the fullest bin reaches."""
    most = max(*counts, 1)
    width = (RIGHT - LEFT) / len(counts)
    points: list[Point] = [(LEFT, MIDDLE)]
    for place, count in enumerate(counts):
        y = MIDDLE + (far - MIDDLE) * count / most
        points += [(LEFT + width * place, y), (LEFT + width * (place + 1), y)]
    return [*points, (RIGHT, MIDDLE)]
