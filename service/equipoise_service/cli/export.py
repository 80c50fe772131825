"""``equipoise export``: comparisons as a folder or an archive with digests, or their samples as Parquet."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from equipoise_service.cli.exit_codes import CommandError, ExitCode


class Format(StrEnum):
    """What an export is."""

    COMPARISONS = "comparisons"
    PARQUET = "parquet"


def export(
    target: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="NAME.tar.zst for an archive, any other for a folder; must not exist."),
    ],
    comparison_id: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Comparisons; all that have ended without one.")
    ] = None,
    format_: Annotated[
        Format,
        typer.Option("--format", "-f", help="Whole comparisons for `import`, or their samples as Parquet tables."),
    ] = Format.COMPARISONS,
    logs: Annotated[bool, typer.Option("--logs/--no-logs", help="Take engine logs along.")] = True,
) -> int:
    """Write comparisons of this machine's database to PATH: facts, raw records, events, reports, engine logs.

    Every file's digest is in the manifest. With `--format parquet`: answers, requests and decode steps as tables.
    """
    from equipoise_service.cli.exchanging import export_comparisons, export_samples

    chosen = tuple(comparison_id or ())
    try:
        return export_samples(target, chosen) if format_ is Format.PARQUET else export_comparisons(target, chosen, logs)
    except FileExistsError as taken:
        raise CommandError(f"{taken}; an export never takes the place of anything", ExitCode.USAGE) from taken
    except OSError as unwritable:
        raise CommandError(f"{target} cannot be written: {unwritable.strerror}", ExitCode.USAGE) from unwritable
