"""Where ``equipoise`` begins and ends: commands by name, and every end as a documented exit code."""

import sys
import traceback
from collections.abc import Sequence

import typer

from equipoise_service.cli import (
    backup,
    calibrate,
    compare,
    diff,
    doctor,
    export,
    gate,
    import_,
    judge,
    plan,
    prune,
    report,
    resume,
    serve,
    setup,
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
app.command()(serve.serve)
app.command()(compare.compare)
app.command()(resume.resume)
app.command()(gate.gate)
app.command()(judge.judge)
app.command()(report.report)
app.command()(diff.diff)
app.command()(doctor.doctor)
app.command()(plan.plan)
app.command()(calibrate.calibrate)
app.command()(setup.setup)
app.command()(backup.backup)
app.command()(prune.prune)
app.command()(export.export)
app.command("import")(import_.import_)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        code = app(args=arguments, prog_name="equipoise", standalone_mode=False)
    except typer.TyperException as wrong_use:
        print(f"equipoise: {wrong_use.format_message()}\nTry 'equipoise --help'.", file=sys.stderr)  # noqa: T201
        return ExitCode.USAGE
    except (CommandError, EquipoiseError) as refused:
        print(f"equipoise: {refused}", file=sys.stderr)  # noqa: T201
        return refused.code if isinstance(refused, CommandError) else code_of(refused)
    except (Exception, SystemExit):  # noqa: BLE001 - Python's own status for a crash is 1, which here means "block"
        traceback.print_exc()
        return ExitCode.ERROR
    return code if isinstance(code, int) else ExitCode.PASS
