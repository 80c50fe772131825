"""``equipoise report``: the report of a finished comparison, or the latest comparisons to choose from."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from equipoise_service.cli.exit_codes import CommandError, ExitCode
from equipoise_service.cli.options import Output, Url, write

if TYPE_CHECKING:
    from equipoise_service.api.views import ComparisonList

LATEST = 20


class Format(StrEnum):
    """Formats of a report."""

    MARKDOWN = "md"
    JSON = "json"
    CSV = "csv"
    HTML = "html"
    RECORDS = "records"


def report(
    comparison_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The comparison's id; without it the latest are listed.")
    ] = None,
    format_: Annotated[
        Format | None,
        typer.Option(
            "--format",
            "-f",
            help="Markdown (the default), JSON, CSV, HTML in one file, or the raw records for `judge`.",
        ),
    ] = None,
    url: Url = None,
    output: Output = None,
) -> int:
    """Print the report of a finished comparison; without an ID list the latest: id, date, verdict, model."""
    from equipoise_service.cli.documents import latest, report_of

    if comparison_id is not None:
        write(report_of(comparison_id, (format_ or Format.MARKDOWN).value, url), output)
        return 0
    if format_ is not None:
        raise CommandError(f"--format {format_.value} needs the ID of a comparison", ExitCode.USAGE)
    listed = latest(url, LATEST)
    if listed.items:
        write(_lines(listed), output)
    else:
        typer.echo("no comparisons here yet; `equipoise compare` makes one, EQUIPOISE_DATA names the folder", err=True)
    return 0


def _lines(listed: "ComparisonList") -> str:
    """One line a comparison; where there is no verdict, in its place the status."""
    head = f"{'id':36}  {'submitted (UTC)':16}  {'verdict':18}  model"
    lines = [
        f"{item.id:36}  {item.created_at:%Y-%m-%d %H:%M}  {item.verdict or f'({item.status})':18}  {item.model_name}"
        for item in listed.items
    ]
    more = [f"… the latest {LATEST}; the pages show all (`equipoise serve`)"] if listed.next_cursor else []
    return "\n".join([head, *lines, *more])
