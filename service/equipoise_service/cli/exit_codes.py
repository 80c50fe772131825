"""Exit codes of ``equipoise``. 0, 1 and 2 are verdicts and come from ``compare`` (and ``gate``) alone."""

from enum import IntEnum

from equipoise_service.errors import EquipoiseError, SettingsError


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


def code_of(error: EquipoiseError) -> ExitCode:
    """How a command ends that met this error. A setting is the operator's to change, though no client's."""
    return ExitCode.USAGE if isinstance(error, SettingsError) else code_of_status(error.status)


def code_of_status(status: int) -> ExitCode:
    """How a command ends that a service answered with this HTTP status."""
    return ExitCode.USAGE if status < SERVER_ERROR else ExitCode.ERROR


class CommandError(Exception):
    """A command could not do what it was called for; ``code`` is how it ends."""

    def __init__(self, message: str, code: ExitCode = ExitCode.ERROR) -> None:
        super().__init__(message)
        self.code = code
