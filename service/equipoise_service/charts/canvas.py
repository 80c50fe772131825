"""A drawing: SVG elements with classes, a title and a description for who cannot see it.

Elements are those of the standard library, which escapes every text and attribute: names of models and arms come from
outside.
"""

from collections.abc import Iterable
from typing import Literal
from xml.etree import ElementTree as ET

from markupsafe import Markup

Anchor = Literal["start", "middle", "end"]
Point = tuple[float, float]


class Canvas:
    """One drawing in units of its own, scaled to the width that the page gives it.

    Args:
        name: Unique on its page; letters, digits and hyphens.
        title: What it shows.
        description: What a reader of it sees, in a sentence or two.
        width: Of the drawing, in its units; ``height`` likewise.
    """

    def __init__(self, name: str, title: str, description: str, *, width: float, height: float) -> None:
        self._root = ET.Element(
            "svg",
            {
                "viewBox": f"0 0 {_number(width)} {_number(height)}",
                "role": "img",
                "class": "chart",
                "aria-labelledby": f"{name}-title {name}-desc",
                "width": _number(width),
                "height": _number(height),
            },
        )
        ET.SubElement(self._root, "title", {"id": f"{name}-title"}).text = title
        ET.SubElement(self._root, "desc", {"id": f"{name}-desc"}).text = description

    def line(self, start: Point, end: Point, css: str) -> None:
        """A straight line."""
        self._add("line", css, x1=start[0], y1=start[1], x2=end[0], y2=end[1])

    def rect(self, corner: Point, width: float, height: float, css: str) -> None:
        """A rectangle by its upper left corner; none where it has no area."""
        if width > 0 and height > 0:
            self._add("rect", css, x=corner[0], y=corner[1], width=width, height=height)

    def circle(self, centre: Point, radius: float, css: str) -> None:
        """A circle."""
        self._add("circle", css, cx=centre[0], cy=centre[1], r=radius)

    def square(self, centre: Point, radius: float, css: str) -> None:
        """A square as large as the circle of this radius looks."""
        side = 1.8 * radius
        self.rect((centre[0] - side / 2, centre[1] - side / 2), side, side, css)

    def diamond(self, centre: Point, radius: float, css: str) -> None:
        """A square on its corner."""
        x, y = centre
        self.path([(x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y)], css, close=True)

    def path(self, points: Iterable[Point], css: str, *, close: bool = False) -> None:
        """A line through points, closed to an area if asked."""
        drawn = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        if drawn:
            ET.SubElement(self._root, "polygon" if close else "polyline", {"class": css, "points": drawn})

    def text(self, at: Point, text: str, css: str = "label", anchor: Anchor = "start") -> None:
        """A text on its base line."""
        self._add("text", css, x=at[0], y=at[1]).text = text
        if anchor != "start":
            self._root[-1].set("text-anchor", anchor)

    def svg(self) -> Markup:
        """The drawing, for a page or a file."""
        # ElementTree escapes all that was put in.
        return Markup(ET.tostring(self._root, encoding="unicode"))  # noqa: S704

    def _add(self, tag: str, css: str, **numbers: float) -> ET.Element:
        values = {name: _number(value) for name, value in numbers.items()}
        return ET.SubElement(self._root, tag, {"class": css, **values})


def _number(value: float) -> str:
    """A tenth of a unit is finer than any screen shows."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text
