"""``equipoise prune``: remove ended comparisons that are no longer kept; without --apply only say which."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, TypeVar

import typer

from equipoise_service.cli.exit_codes import CommandError, ExitCode

T = TypeVar("T")


class Word(StrEnum):
    """Verdicts."""

    SHIP = "ship"
    NEUTRAL = "neutral"
    BLOCK = "block"
    INCONCLUSIVE = "inconclusive"
    TREATMENT_INACTIVE = "treatment_inactive"
    INVALID = "invalid"


class Ended(StrEnum):
    """Statuses of comparisons that have ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


def prune(  # noqa: PLR0917 - one parameter an option
    older_than: Annotated[str | None, typer.Option(metavar="TIME", help="Ended longer ago, as 12h, 90d, 2w.")] = None,
    verdict: Annotated[list[Word] | None, typer.Option(help="Has this verdict; may be given repeatedly.")] = None,
    status: Annotated[list[Ended] | None, typer.Option(help="Ended so; may be given repeatedly.")] = None,
    larger_than: Annotated[str | None, typer.Option(metavar="SIZE", help="Takes up more, as 500MB, 1.5GB.")] = None,
    down_to: Annotated[
        str | None, typer.Option(metavar="SIZE", help="The oldest, until all that ended take up at most this.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Remove them; otherwise they are only listed.")] = False,
) -> int:
    """List ended comparisons that meet every option given, and with --apply remove them with records and engine logs.

    What is queued or running is never removed. There is no way back but a backup or an export.
    """
    from equipoise_service.cli.pruning import prune_by
    from equipoise_service.retention import Rule, size_of, time_of
    from equipoise_service.store import Status

    rule = Rule(
        older_than=_read(time_of, older_than, "--older-than"),
        verdicts=tuple(word.value for word in verdict or ()),
        statuses=tuple(Status(one.value) for one in status or ()),
        larger_than=_read(size_of, larger_than, "--larger-than"),
        down_to=_read(size_of, down_to, "--down-to"),
    )
    if not rule.says_something:
        raise CommandError("say which: --older-than, --verdict, --status, --larger-than or --down-to", ExitCode.USAGE)
    return prune_by(rule, apply=apply)


def _read(reader: Callable[[str], T], text: str | None, option: str) -> T | None:
    try:
        return None if text is None else reader(text)
    except ValueError as wrong:
        raise CommandError(f"{option}: {wrong}", ExitCode.USAGE) from wrong
