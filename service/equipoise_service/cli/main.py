"""Where ``equipoise`` begins and ends: commands by name, and every end as a documented exit code."""

import asyncio
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version as package_version
from typing import Annotated

import typer

from equipoise_service.cli import (
    backup,
    calibrate,
    compare,
    diff,
    doctor,
    env,
    export,
    gate,
    import_,
    judge,
    judge_results,
    plan,
    presets,
    prune,
    report,
    resume,
    serve,
    setup,
    tokens,
    webhooks,
)
from equipoise_service.cli.exit_codes import CommandError, ExitCode, code_of
from equipoise_service.errors import EquipoiseError

app = typer.Typer(
    name="equipoise",
    help="Is the changed LLM serving engine faster, and is it no less accurate?",
    epilog="Exit codes: 0 ship or neutral, 1 block, 2 not decided (inconclusive, treatment inactive, invalid), "
    "3 run error, 64 usage.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"equipoise {package_version('equipoise-service')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options that belong to no command."""


app.command()(serve.serve)
app.command()(compare.compare)
app.command()(resume.resume)
app.command()(gate.gate)
app.command()(judge.judge)
app.command("judge-results")(judge_results.judge_results)
app.command()(report.report)
app.command()(diff.diff)
app.command()(doctor.doctor)
app.command()(plan.plan)
app.command()(calibrate.calibrate)
app.command()(setup.setup)
app.command()(presets.presets)
app.add_typer(env.app, name="env")
app.command()(backup.backup)
app.command()(prune.prune)
app.command()(export.export)
app.command("import")(import_.import_)
app.add_typer(tokens.app, name="token")
app.add_typer(webhooks.app, name="webhook")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        code = app(args=arguments, prog_name="equipoise", standalone_mode=False)
    except typer.TyperException as wrong_use:
        said = wrong_use.format_message()
        if said:  # Without a command the help itself was shown.
            print(f"equipoise: {said}\nTry 'equipoise --help'.", file=sys.stderr)  # noqa: T201
            given = sys.argv[1:] if arguments is None else arguments
            if given and given[0] == "gate":
                from equipoise_service.cli.gating import leave_misused

                leave_misused(given, said)
        return ExitCode.USAGE
    except (CommandError, EquipoiseError) as refused:
        print(f"equipoise: {refused}", file=sys.stderr)  # noqa: T201
        return refused.code if isinstance(refused, CommandError) else code_of(refused)
    except asyncio.CancelledError:  # SIGTERM, as a pipeline sends it at its time limit: never 1, which means "block"
        print("equipoise: ended by a signal before there was a verdict", file=sys.stderr)  # noqa: T201
        return ExitCode.ERROR
    except (Exception, SystemExit) as crash:  # noqa: BLE001 - Python's own status for a crash is 1, here "block"
        if isinstance(crash, BrokenPipeError) or isinstance(crash.__context__, BrokenPipeError):
            # Whoever read our output has gone, as `head` does; nor must Python complain when it flushes at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        else:
            traceback.print_exc()
        return ExitCode.ERROR
    return code if isinstance(code, int) else ExitCode.PASS
