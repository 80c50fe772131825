"""``equipoise doctor``: what stands between this machine and a comparison."""

from typing import Annotated

import typer


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False) -> int:
    """Look at versions, disk, ports, leftover processes and what this machine can run. Changes nothing."""
    import json

    from rich.console import Console
    from rich.markup import escape

    from equipoise_service.doctor import findings
    from equipoise_service.machine import Machine
    from equipoise_service.settings import Settings

    found = list(findings(Machine(Settings.from_env())))
    if as_json:
        typer.echo(json.dumps([finding.model_dump() for finding in found], indent=2))
    else:
        console = Console(highlight=False)
        colours = {"ok": "green", "warning": "yellow", "problem": "red"}
        for finding in found:
            console.print(f"[{colours[finding.state]}]{finding.state:8}[/] {finding.name}: {escape(finding.detail)}")
            if finding.remedy:
                console.print(f"         → {escape(finding.remedy)}")
    return 3 if any(finding.state == "problem" for finding in found) else 0
