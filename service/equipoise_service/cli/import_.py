"""``equipoise import``: comparisons out of an export, with their ids."""

from pathlib import Path
from typing import Annotated

import typer

from equipoise_service.cli.exit_codes import CommandError, ExitCode


def import_(
    source: Annotated[Path, typer.Argument(metavar="PATH", help="A folder or an archive that `export` wrote.")],
    check: Annotated[
        bool, typer.Option("--check", help="Also refuse a verdict that does not follow from its records.")
    ] = False,
) -> int:
    """Store the comparisons of an export in this machine's database. Ids stay; what is there already stays as it is.

    Nothing is stored where a digest differs, or where another comparison has one of the ids.
    """
    from equipoise_service.cli.exchanging import import_comparisons
    from equipoise_service.exchange.archive import ExportRefused

    try:
        return import_comparisons(source, check=check)
    except ExportRefused as refused:
        raise CommandError(f"nothing was imported: {refused}", ExitCode.USAGE) from refused
