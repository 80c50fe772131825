"""Exit codes of ``equipoise``. 0, 1 and 2 are verdicts and come from ``compare`` (and ``gate``) alone."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a pipeline reads."""

    PASS = 0
    BLOCK = 1
    UNDECIDED = 2
    ERROR = 3
    USAGE = 64


OF_VERDICT: dict[str, ExitCode] = {
    "ship": ExitCode.PASS,
    "neutral": ExitCode.PASS,
    "block": ExitCode.BLOCK,
    "inconclusive": ExitCode.UNDECIDED,
    "treatment_inactive": ExitCode.UNDECIDED,
    "invalid": ExitCode.UNDECIDED,
}
"""By the overall word."""


SERVER_ERROR = 500
"""Statuses from here on say that something failed; those below, that the request has to change."""


def code_of_status(status: int) -> ExitCode:
    """How a command ends that met an error of this HTTP status, whether a service answered it or this process did."""
    return ExitCode.USAGE if status < SERVER_ERROR else ExitCode.ERROR


class CommandError(Exception):
    """A command could not do what it was called for; ``code`` is how it ends."""

    def __init__(self, message: str, code: ExitCode = ExitCode.ERROR) -> None:
        super().__init__(message)
        self.code = code
