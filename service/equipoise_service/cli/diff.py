"""``equipoise diff``: what differs between two finished comparisons."""

from enum import StrEnum
from typing import Annotated

import typer

from equipoise_service.cli.options import Output, Url, write


class Format(StrEnum):
    """Formats of a difference."""

    MARKDOWN = "md"
    JSON = "json"


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="A comparison's id.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another's.")],
    format_: Annotated[Format, typer.Option("--format", "-f", help="Markdown or JSON.")] = Format.MARKDOWN,
    url: Url = None,
    output: Output = None,
) -> int:
    """Say what differs between two finished comparisons, in set-up and in result, or why that cannot be said."""
    from equipoise_service.cli.documents import difference_between
    from equipoise_service.difference import to_markdown

    found = difference_between(first, second, url)
    text = found.model_dump_json(indent=2) + "\n" if format_ is Format.JSON else to_markdown(found)
    write(text, output)
    return 0
