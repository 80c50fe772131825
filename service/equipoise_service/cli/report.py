"""``equipoise report``: the report of a finished comparison."""

from enum import StrEnum
from typing import Annotated

import typer

from equipoise_service.cli.options import Output, Url, write


class Format(StrEnum):
    """Formats of a report."""

    MARKDOWN = "md"
    JSON = "json"
    CSV = "csv"
    RECORDS = "records"


def report(
    comparison_id: Annotated[str, typer.Argument(metavar="ID", help="The comparison's id.")],
    format_: Annotated[
        Format, typer.Option("--format", "-f", help="Markdown, JSON, CSV, or the raw records for `judge`.")
    ] = Format.MARKDOWN,
    url: Url = None,
    output: Output = None,
) -> int:
    """Print the report of a finished comparison."""
    from equipoise_service.cli.documents import report_of

    write(report_of(comparison_id, format_.value, url), output)
    return 0
