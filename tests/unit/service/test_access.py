from pathlib import Path

import pytest
from pydantic import ValidationError

from equipoise_service.access.door import CALLERS_KEPT, Pace
from equipoise_service.access.names import usable_name
from equipoise_service.access.scopes import Scope, required_scope
from equipoise_service.access.secrets import is_right, new_token, redacted, token_id_of
from equipoise_service.api.tokens import TokenRequest
from equipoise_service.cli import main
from equipoise_service.engines.logs import without_secrets


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("GET", "/", Scope.READ),
        ("HEAD", "/comparisons", Scope.READ),
        ("GET", "/metrics", Scope.READ),
        ("GET", "/of/the/future", Scope.READ),
        ("POST", "/compare", Scope.SUBMIT),
        ("POST", "/comparisons/x/cancel", Scope.SUBMIT),
        ("DELETE", "/of/the/future", Scope.SUBMIT),
        ("POST", "/livez", Scope.SUBMIT),
        ("GET", "/tokens", Scope.ADMIN),
        ("DELETE", "/tokens/x", Scope.ADMIN),
        ("POST", "/webhooks", Scope.ADMIN),
        ("GET", "/livez", None),
        ("GET", "/readyz", None),
        ("GET", "/static/live.js", None),
        ("GET", "/livezz", Scope.READ),
    ],
)
def test_every_route_needs_a_scope_unless_it_is_listed(method: str, path: str, needed: Scope | None) -> None:
    assert required_scope(method, path) is needed


def test_each_scope_allows_what_the_one_before_does() -> None:
    allowed = {scope: [needed for needed in Scope if scope.allows(needed)] for scope in Scope}
    assert allowed == {
        Scope.READ: [Scope.READ],
        Scope.SUBMIT: [Scope.READ, Scope.SUBMIT],
        Scope.ADMIN: [Scope.READ, Scope.SUBMIT, Scope.ADMIN],
    }


def test_a_token_is_its_own_and_nobody_elses() -> None:
    one, other = new_token(), new_token()
    assert token_id_of(one.text) == one.id
    assert is_right(one.text, one.sha256)
    assert not is_right(one.text, other.sha256)
    assert not is_right(one.text, None)
    assert token_id_of(f"{one.text} ") is None


def test_secrets_are_taken_out_of_texts() -> None:
    token = new_token()
    for text in (f"Authorization: Bearer {token.text}", f"x {token.text} y", "whsec_" + "A" * 32, "hf_" + "b" * 34):
        assert "[redacted]" in redacted(text)
        for secret in (token.text[17:], "A" * 32, "b" * 34):
            assert secret not in redacted(text)
    assert token.id in redacted(token.text)
    assert redacted("the bearer of bad news, hf_home and eqp_x") == "the bearer of bad news, hf_home and eqp_x"


@pytest.mark.parametrize("kind", ["hf_", "hf_oauth_", "sk-", "ghp_", "glpat-", "Bearer ", "Basic ", "eqp_", "whsec_"])
def test_the_service_and_engine_logs_take_out_the_same_forms(kind: str) -> None:
    secret = "aB3" * 8
    # As a text, and as a line of a traceback inside JSON.
    for text in (f"{kind}{secret} x", rf'"one\n{kind}{secret}"'):
        assert secret not in redacted(text)
        assert f"{kind}[redacted]" in redacted(text)
        assert without_secrets(text, ()) == redacted(text)


def test_a_short_password_of_a_header_is_taken_out() -> None:
    assert redacted("Authorization: Basic dTpwYXNz") == "Authorization: Basic [redacted]"


def test_a_pace_lets_a_burst_pass_and_then_the_rate() -> None:
    now = [0.0]
    pace = Pace(2.0, lambda: now[0])
    assert [pace.wait_s("a") for _ in range(5)] == [0, 0, 0, 0, 0.5]
    assert pace.wait_s("b") == 0
    now[0] = 0.5
    assert pace.wait_s("a") == 0
    assert pace.wait_s("a") > 0
    now[0] = 100.0
    assert [pace.wait_s("a") for _ in range(5)] == [0, 0, 0, 0, 0.5]


def test_a_slow_rate_still_lets_one_pass() -> None:
    assert Pace(0.1, lambda: 0.0).wait_s("a") == 0


def test_only_so_many_callers_are_remembered() -> None:
    pace = Pace(0.5, lambda: 0.0)
    assert pace.wait_s("first") == 0
    assert pace.wait_s("first") > 0
    for number in range(CALLERS_KEPT):
        pace.wait_s(str(number))
    assert pace.wait_s("first") == 0


@pytest.mark.parametrize("name", ["", "  ", "x" * 81, "two\nlines", "\x1b[31mred", "\x7f"])
def test_no_token_has_a_name_that_a_list_cannot_show(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EQUIPOISE_DATA", str(tmp_path / "data"))
    assert not usable_name(name)
    assert main(["token", "create", "--scope", "read", "--", name]) == 64
    assert "a name has 1 to 80 characters and no control characters" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
    with pytest.raises(ValidationError):
        TokenRequest(name=name, scope=Scope.READ)


def test_a_token_may_have_any_name_of_one_line() -> None:
    assert all(map(usable_name, ["ci", "x" * 80, " two words ", "für Ärzte"]))
