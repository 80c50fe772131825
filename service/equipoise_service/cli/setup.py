"""``equipoise setup``: build what engines need, once, in the cache that clones share."""

import sys
from typing import Annotated, Literal

import typer

from equipoise_service.cli.exit_codes import CommandError


def setup(
    show: Annotated[
        Literal["engine-python", "plugin-path"] | None, typer.Option("--print", help="Print one path when done.")
    ] = None,
) -> int:
    """Build the engine environment, the plugin's folder and the embedded model, if the cache has none."""
    from equipoise_service.engines.provision import (
        ProvisionError,
        ensure_engine_environment,
        ensure_plugin,
        find_backends,
    )
    from equipoise_service.machine import Machine
    from equipoise_service.settings import Settings

    settings = Settings.from_env()
    backends = find_backends()
    if settings.engine_python is None and backends is None:
        raise CommandError("this is no checkout: set EQUIPOISE_ENGINE_PYTHON to an interpreter that has SGLang")
    try:
        if settings.engine_python is None and backends is not None:
            ensure_engine_environment(settings.cache, backends / "engine.lock", _say)
            ensure_plugin(settings.cache, backends, _say)
    except ProvisionError as failed:
        raise CommandError(str(failed)) from failed
    machine = Machine(settings)
    machine.model("embedded")
    engine = machine.environments()["default"]
    match show:
        case "engine-python":
            typer.echo(engine.python)
        case "plugin-path":
            typer.echo(engine.plugin_path or "")
        case None:
            _say(f"ready: engine {engine.python}")
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - what is being built, for who waits
