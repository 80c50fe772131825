"""``equipoise presets``: which presets there are, and whether files of presets hold."""

from pathlib import Path
from typing import Annotated

import typer


def presets(
    files: Annotated[list[Path] | None, typer.Argument(help="Preset files to check; without, all are listed.")] = None,
) -> int:
    """List the presets with what each compares, or check preset files: a mistake is named with its file and line."""
    from equipoise_service.engines.presets import load_presets, read_preset
    from equipoise_service.settings import Settings

    settings = Settings.from_env()
    allowed = settings.allow_flags, settings.allow_variables
    found = [read_preset(file, *allowed) for file in files or ()]
    for preset in found or load_presets(settings.presets, *allowed).values():
        asked = f" Needs {', '.join(preset.asks)}." if preset.asks else ""
        typer.echo(f"{preset.name}: {preset.summary}{asked}")
    return 0
