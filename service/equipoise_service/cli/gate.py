"""``equipoise gate``: compare, hold the verdict against a policy, and leave documents that a pipeline reads."""

from pathlib import Path
from typing import Annotated

import typer

from equipoise_service.cli.options import Url


def gate(
    model: Annotated[
        str | None,
        typer.Argument(help="Hub id, folder, or `embedded` (the default); of a finished comparison its own."),
    ] = None,
    policy: Annotated[Path | None, typer.Option(help="YAML file; every check is required without one.")] = None,
    comparison: Annotated[
        str | None, typer.Option(metavar="ID", help="Hold this finished comparison against the policy; run nothing.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for gate.json and gate.xml.")] = Path(),
    url: Url = None,
) -> int:
    """Say whether a release may go: 0 pass, 1 block, 2 undecided, 3 error, 64 usage.

    Writes gate.json (exit code, policy, waivers, checks) and gate.xml (JUnit). On GitHub it adds annotations and a
    summary to the job.
    """
    from equipoise_service.cli.gating import Gate

    return Gate(model, policy, output, url).run(comparison)
