"""Markdown's marks: texts from outside, made harmless, and tables."""

import re
from collections.abc import Iterable, Sequence


def escaped(text: str) -> str:
    """A text from outside that Markdown shows as it is: no markup, no HTML, one line."""
    one_line = " ".join(text.split())
    without_html = one_line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]#|~!])", r"\\\1", without_html)


def code(text: str) -> str:
    """A text from outside as inline code, also where it holds backquotes or, in a table, bars."""
    one_line = " ".join(text.split()).replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", one_line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{one_line or ' '}{pad}{fence}"


def table(header: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    """A table; its cells are escaped already."""
    return [_line(header), _line(["---"] * len(header)), *map(_line, body)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
