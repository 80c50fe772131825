"""Blocks in the order in which they ran, so that ABBA, drift and a disturbed block are seen; the GPU's state below."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from equipoise_service.charts.canvas import Canvas
from equipoise_service.charts.scale import Scale, tick_text

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 720.0, 76.0, 700.0, 34.0, 210.0
STRIP, GAP = 44.0, 30.0
LETTERS_UP_TO = 60
"""More blocks leave no room for a letter under each; colour and shape still tell the arms apart."""


class Block(NamedTuple):
    """One block: mean and spread of its steps, and what the GPU said of itself meanwhile, None where it said nothing.

    Attributes:
        baseline: Whether it is the baseline's.
        low_us: Tenth percentile of its steps; ``high_us`` the ninetieth.
    """

    pair: int
    baseline: bool
    mean_us: float
    low_us: float
    high_us: float
    clock_mhz: float | None = None
    temperature_c: float | None = None


def blocks_chart(name: str, title: str, blocks: Sequence[Block]) -> Markup:
    """Means with bars from the tenth to the ninetieth percentile; at least one block, in the order run."""
    strips = [
        (label, read)
        for label, read in (("clock, MHz", _clock), ("temperature, °C", _temperature))
        if any(read(block) is not None for block in blocks)
    ]
    height = BOTTOM + 36 + len(strips) * (STRIP + GAP)
    means = {who: [b.mean_us for b in blocks if b.baseline == who] for who in (True, False)}
    said = " ".join(
        f"{label}: {len(us)} blocks, means {min(us):.1f} to {max(us):.1f} us."
        for label, us in (("Baseline", means[True]), ("Candidate", means[False]))
        if us
    )
    canvas = Canvas(name, title, f"{said} Order run: {_letters(blocks)}.", width=WIDTH, height=height)
    xs = Scale(0, len(blocks), LEFT, RIGHT)
    _pairs(canvas, xs, blocks, height - 18)
    _means(canvas, xs, blocks)
    for place, (label, read) in enumerate(strips):
        _strip(canvas, xs, BOTTOM + 40 + place * (STRIP + GAP), label, [read(block) for block in blocks])
    return canvas.svg()


def _means(canvas: Canvas, xs: Scale, blocks: Sequence[Block]) -> None:
    ys = Scale.around([us for block in blocks for us in (block.low_us, block.high_us)], BOTTOM, TOP)
    ticks = ys.ticks(5)
    for tick in ticks:
        canvas.line((LEFT, ys(tick)), (RIGHT, ys(tick)), "grid")
        canvas.text((LEFT - 8, ys(tick) + 4), tick_text(tick, ticks), anchor="end")
    canvas.text((LEFT - 8, 16), "µs", "label soft", anchor="end")
    for place, block in enumerate(blocks):
        x, css = xs(place + 0.5), "arm-a" if block.baseline else "arm-b"
        canvas.line((x, ys(block.low_us)), (x, ys(block.high_us)), f"{css} whisker")
        (canvas.circle if block.baseline else canvas.square)((x, ys(block.mean_us)), 3.5, css)
        if len(blocks) <= LETTERS_UP_TO:
            canvas.text((x, BOTTOM + 14), "A" if block.baseline else "B", "label tiny", anchor="middle")
    canvas.circle((LEFT + 10, 12), 4, "arm-a")
    canvas.text((LEFT + 20, 16), "baseline (A)")
    canvas.square((LEFT + 130, 12), 4, "arm-b")
    canvas.text((LEFT + 140, 16), "candidate (B)")


def _pairs(canvas: Canvas, xs: Scale, blocks: Sequence[Block], bottom: float) -> None:
    """Lines between launch pairs, and their numbers."""
    begins = [place for place, block in enumerate(blocks) if place == 0 or blocks[place - 1].pair != block.pair]
    for begin, end in zip(begins, [*begins[1:], len(blocks)], strict=True):
        if begin:
            canvas.line((xs(begin), TOP), (xs(begin), bottom), "pair")
        canvas.text((xs((begin + end) / 2), BOTTOM + 28), f"pair {blocks[begin].pair}", "label soft tiny", "middle")


def _strip(canvas: Canvas, xs: Scale, top: float, label: str, values: Sequence[float | None]) -> None:
    known = [value for value in values if value is not None]
    ys = Scale.around(known, top + STRIP, top)
    canvas.text((LEFT, top - 2), label, "label soft tiny")
    canvas.line((LEFT, top + STRIP), (RIGHT, top + STRIP), "axis")
    for value in sorted({min(known), max(known)}):
        canvas.text((LEFT - 8, ys(value) + 4), f"{value:,.0f}", "label tiny", anchor="end")
    points = [(xs(place + 0.5), ys(value)) for place, value in enumerate(values) if value is not None]
    canvas.path(points, "telemetry")
    for point in points:
        canvas.circle(point, 1.5, "telemetry dot")


def _letters(blocks: Sequence[Block]) -> str:
    return "".join("A" if block.baseline else "B" for block in blocks[:LETTERS_UP_TO]) + (
        "…" if len(blocks) > LETTERS_UP_TO else ""
    )


def _clock(block: Block) -> float | None:
    return block.clock_mhz


def _temperature(block: Block) -> float | None:
    return block.temperature_c
