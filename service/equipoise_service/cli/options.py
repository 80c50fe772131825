"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from equipoise_service.cli.exit_codes import CommandError, ExitCode

Url = Annotated[str | None, typer.Option(help="Use the service at this address instead of this machine's.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file instead of standard output.")]


def read(file: Path) -> bytes:
    """The content of a file that a command was given.

    Raises:
        CommandError: It cannot be read; wrong use.
    """
    try:
        return file.read_bytes()
    except OSError as unreadable:
        raise CommandError(f"{file} cannot be read: {unreadable.strerror}", ExitCode.USAGE) from unreadable


def write(text: str, output: Path | None) -> None:
    """Write a document to a file, or to standard output.

    Raises:
        CommandError: The file cannot be written; wrong use.
    """
    if output is None:
        typer.echo(text, nl=not text.endswith("\n"))
        return
    try:
        output.write_text(text)
    except OSError as unwritable:
        raise CommandError(f"{output} cannot be written: {unwritable.strerror}", ExitCode.USAGE) from unwritable


def share(text: str, option: str, example: str, *, least: float, most: float) -> float:
    """A share out of ``1.64%`` or ``0.0164``.

    Raises:
        CommandError: No number, or one outside ``least`` to ``most``; it gives an example.
    """
    stripped = text.strip().replace(" ", "")
    divisor = 100.0 if stripped.endswith("%") else 1.0
    try:
        value = float(stripped.removesuffix("%")) / divisor
    except ValueError as wrong:
        raise CommandError(f"{option} needs a share such as {example}, not {text!r}", ExitCode.USAGE) from wrong
    if not least <= value <= most:
        raise CommandError(
            f"{option} needs a share between {least:.4%} and {most:.0%}, such as {example}; {text!r} is {value:.0%}",
            ExitCode.USAGE,
        )
    return value


def points(text: str, option: str) -> float:
    """Percentage points out of ``1pp`` or ``1``.

    Raises:
        CommandError: No number, or one that is no margin of a score.
    """
    stripped = text.strip().lower().replace(" ", "")
    try:
        value = float(stripped.removesuffix("pp"))
    except ValueError as wrong:
        raise CommandError(f"{option} needs percentage points such as 1pp, not {text!r}", ExitCode.USAGE) from wrong
    if not 1e-4 <= value <= 90:
        raise CommandError(f"{option} needs 0.0001 to 90 points, such as 1pp; not {text!r}", ExitCode.USAGE)
    return value
