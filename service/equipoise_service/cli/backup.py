"""``equipoise backup``: a verified copy of the database while a service works with it."""

from pathlib import Path
from typing import Annotated

import typer

from equipoise_service.cli.exit_codes import CommandError, ExitCode


def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="Where the copy goes; must not exist.")],
) -> int:
    """Copy the database of the data folder into FILE, also while a service works, and verify the copy.

    Engine logs are not in the database; `equipoise export` takes them along.
    """
    from equipoise_service.cli.documents import sqlite_file
    from equipoise_service.store.backup import BackupFailed, back_up

    try:
        made = back_up(sqlite_file(), target)
    except FileExistsError as taken:
        raise CommandError(f"{taken}; a backup never takes the place of another file", ExitCode.USAGE) from taken
    except BackupFailed as failed:
        raise CommandError(str(failed)) from failed
    typer.echo(
        f"{target}: {made.comparisons} comparisons, {made.size} bytes, schema {made.schema}, integrity ok, "
        f"SHA-256 {made.sha256}"
    )
    return 0
