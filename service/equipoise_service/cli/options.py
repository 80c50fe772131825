"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Url = Annotated[str | None, typer.Option(help="Use the service at this address instead of this machine's.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file instead of standard output.")]


def write(text: str, output: Path | None) -> None:
    """Write a document to a file, or to standard output."""
    if output is None:
        typer.echo(text, nl=not text.endswith("\n"))
    else:
        output.write_text(text)
