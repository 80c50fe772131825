"""Every refusal by name with the exit code of a command that meets it: DESIGN section 5, as docs/operations.md says it.

64 where whoever asked has to change something, 3 where something failed.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from equipoise_service import errors
from equipoise_service.cli import main
from equipoise_service.cli.client import refusal
from equipoise_service.cli.exit_codes import code_of

OPERATIONS = Path(__file__).resolve().parents[3] / "docs" / "operations.md"
ROW = re.compile(r"^\| `([a-z0-9-]+)` \| (\d{3}) \| (\d+) \| .* \|$", re.M)
NEVER_RAISED = {errors.Refusal, errors.ModelRefused, errors.QuestionsRefused, errors.AccessRefused}
"""Families; what is raised are their members."""

EXPECTED: dict[type[errors.EquipoiseError], int] = {
    errors.EquipoiseError: 3,
    errors.SettingsError: 64,
    errors.NoTokens: 64,
    errors.PresetError: 64,
    errors.DataInUse: 3,
    errors.ServerError: 3,
    errors.RequestInvalid: 64,
    errors.UnknownPreset: 64,
    errors.BatchBeyondEngine: 64,
    errors.BatchBeyondPool: 64,
    errors.BackendUnsupported: 64,
    errors.TooFewDevices: 64,
    errors.UnknownModel: 64,
    errors.ModelNotAllowed: 64,
    errors.GatedModel: 64,
    errors.ModelUnavailable: 3,
    errors.MissingFolder: 64,
    errors.CorruptLine: 64,
    errors.EmptyQuestionSet: 64,
    errors.TooFewQuestions: 64,
    errors.QuestionsChanged: 64,
    errors.QuestionsUnavailable: 3,
    errors.NoEngine: 3,
    errors.UnknownEngine: 64,
    errors.EmptyIdempotencyKey: 64,
    errors.IdempotencyConflict: 64,
    errors.InvalidCursor: 64,
    errors.ComparisonNotFound: 64,
    errors.Unauthenticated: 64,
    errors.Forbidden: 64,
    errors.AdminByCommand: 64,
    errors.CrossSite: 64,
    errors.WrongHost: 64,
    errors.BodyTooLarge: 64,
    errors.BodyTooSlow: 64,
    errors.TooManyRequests: 64,
    errors.QueueFull: 64,
    errors.TokenNotFound: 64,
    errors.WebhookNotFound: 64,
    errors.LogNotKept: 64,
    errors.NotFinished: 64,
    errors.AlreadyFinished: 64,
    errors.NotResumable: 64,
    errors.NotEnded: 64,
    errors.NotComparable: 64,
    errors.StorageUnavailable: 3,
}


def kinds(root: type[errors.EquipoiseError] = errors.EquipoiseError) -> Iterator[type[errors.EquipoiseError]]:
    if root not in NEVER_RAISED:
        yield root
    for child in root.__subclasses__():
        yield from kinds(child)


def test_every_kind_has_its_exit_code() -> None:
    assert {kind: code_of(made(kind)) for kind in kinds()} == EXPECTED


def made(kind: type[errors.EquipoiseError]) -> errors.EquipoiseError:
    """An error of this kind, whatever facts its own constructor would want."""
    error = kind.__new__(kind)
    errors.EquipoiseError.__init__(error, "what happened")
    return error


@pytest.mark.parametrize("kind", [kind for kind in EXPECTED if not issubclass(kind, errors.SettingsError)])
def test_a_service_far_away_makes_no_difference(kind: type[errors.EquipoiseError]) -> None:
    request = httpx.Request("GET", "http://127.0.0.1/")
    problem = {"title": kind.title, "detail": "what happened"}
    told = refusal(httpx.Response(kind.status, json=problem, request=request))
    assert told.code == EXPECTED[kind]
    assert str(told) == f"{kind.title}: what happened"


@pytest.mark.parametrize("kind", EXPECTED)
def test_the_command_that_meets_it_ends_with_it(
    kind: type[errors.EquipoiseError], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise made(kind)

    monkeypatch.setattr("equipoise_service.cli.documents.latest", refuse)
    assert main(["report"]) == EXPECTED[kind]
    assert "what happened" in capsys.readouterr().err


def test_the_documented_table_is_this_one() -> None:
    documented = {(kind, int(status), int(code)) for kind, status, code in ROW.findall(OPERATIONS.read_text())}
    assert documented == {(kind.type, kind.status, code) for kind, code in EXPECTED.items()}
