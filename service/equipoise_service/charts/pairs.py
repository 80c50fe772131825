"""The effect in each launch pair: the unit of replication, so the spread between these points is what counts."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from equipoise_service.charts.canvas import Canvas
from equipoise_service.charts.scale import Scale, tick_text

WIDTH, HEIGHT = 720.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 700.0, 34.0, 204.0


class PairSeries(NamedTuple):
    """One clock: the effect of each launch pair in percent, in order, and the effect over all of them."""

    label: str
    effects: Sequence[float]
    mean: float


def pairs_chart(name: str, title: str, series: Sequence[PairSeries], margin: float) -> Markup:
    """Points over launch pairs, a shape a clock.

    Args:
        name: Unique on the page.
        title: What is shown.
        series: At most three, at least one, each of at least one pair.
        margin: Half width of the margin, in percent.
    """
    values = [effect for one in series for effect in (*one.effects, one.mean)]
    scale = Scale.around([0.0, margin, -margin, *values], BOTTOM, TOP)
    pairs = max(len(one.effects) for one in series)
    step = (RIGHT - LEFT) / pairs
    said = "; ".join(f"{one.label}: {', '.join(f'{effect:+.2f}' for effect in one.effects)} %" for one in series)
    canvas = Canvas(name, title, f"Effect of each launch pair. {said}.", width=WIDTH, height=HEIGHT)
    canvas.rect((LEFT, scale(margin)), RIGHT - LEFT, scale(-margin) - scale(margin), "band")
    ticks = scale.ticks(5)
    for tick in ticks:
        canvas.line((LEFT, scale(tick)), (RIGHT, scale(tick)), "zero" if tick == 0 else "grid")
        canvas.text((LEFT - 8, scale(tick) + 4), f"{tick_text(tick, ticks)} %", anchor="end")
    for pair in range(pairs):
        canvas.text((LEFT + step * (pair + 0.5), BOTTOM + 18), str(pair + 1), anchor="middle")
    canvas.text(((LEFT + RIGHT) / 2, BOTTOM + 38), "launch pair", "label soft", anchor="middle")
    shapes = (canvas.circle, canvas.square, canvas.diamond)
    for place, (one, shape) in enumerate(zip(series, shapes, strict=False)):
        css = f"clock-{place}"
        canvas.line((LEFT, scale(one.mean)), (RIGHT, scale(one.mean)), f"{css} mean")
        for pair, effect in enumerate(one.effects):
            shape((LEFT + step * (pair + 0.35 + 0.15 * place), scale(effect)), 5, css)
        shape((LEFT + 8 + 150 * place, 14), 5, css)
        canvas.text((LEFT + 20 + 150 * place, 18), one.label)
    return canvas.svg()
