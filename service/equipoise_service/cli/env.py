"""``equipoise env``: engine environments that arms can ask for by name."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from equipoise_service.cli.exit_codes import CommandError, ExitCode

app = typer.Typer(help="Engine environments that arms ask for by name.", no_args_is_help=True)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="The name by which an arm asks for it.")],
    sglang: Annotated[str | None, typer.Option(metavar="VERSION", help="Install this version of SGLang.")] = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Build SGLang from the source in this folder.")
    ] = None,
    pin: Annotated[
        list[str] | None,
        typer.Option(metavar="PACKAGE==VERSION", help="Take this version whatever SGLang asks for; may be repeated."),
    ] = None,
) -> int:
    """Resolve, lock, build and register an engine environment (minutes, about 10 GB).

    Versions of the default environment are kept wherever this SGLang allows, so that the two differ in little else.
    """
    from equipoise_service.engines.provision import ProvisionError, find_backends
    from equipoise_service.engines.registry import add_environment
    from equipoise_service.settings import Settings

    requirement = sglang if source is None else source
    if requirement is None or (sglang is not None and source is not None):
        raise CommandError("give either --sglang VERSION or --from DIR", ExitCode.USAGE)
    settings = Settings.from_env()
    backends = find_backends()
    try:
        added = add_environment(
            settings.environments,
            settings.cache,
            name,
            requirement,
            _say,
            pins=pin or (),
            like=backends / "engine.lock" if backends else None,
        )
    except ProvisionError as failed:
        raise CommandError(str(failed)) from failed
    typer.echo(f"{added.name}: SGLang {added.sglang}, lock {added.lock_sha256[:16]}")
    return 0


@app.command("list")
def show() -> int:
    """Show the engine environments of this machine."""
    from equipoise_service.machine import Machine, installed_sglang
    from equipoise_service.settings import Settings

    machine = Machine(Settings.from_env())
    locks = {one.name: f", lock {one.lock_sha256[:16]}, from {one.source}" for one in machine.registered()}
    for name, environment in sorted(machine.environments().items()):
        version = installed_sglang(environment.python) or "of a version that cannot be told"
        typer.echo(f"{name}: SGLang {version}{locks.get(name, '')}")
    return 0


@app.command()
def remove(name: Annotated[str, typer.Argument(help="The environment to forget.")]) -> int:
    """Forget an engine environment; what was built stays in the cache."""
    from equipoise_service.engines.provision import ProvisionError
    from equipoise_service.engines.registry import remove_environment
    from equipoise_service.settings import Settings

    try:
        remove_environment(Settings.from_env().environments, name)
    except ProvisionError as unknown:
        raise CommandError(str(unknown), ExitCode.USAGE) from unknown
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - what is being built, for who waits
