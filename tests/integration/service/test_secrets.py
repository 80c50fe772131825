"""A whole service at its most talkative, with tokens and a webhook: no secret in any log, record, page or file."""

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from equipoise_service.access.scopes import Scope
from equipoise_service.settings import Settings
from equipoise_service.store import Store
from tests.conftest import POSTGRES, holding_any
from tests.integration.service.conftest import LATENCY_ONLY
from tests.integration.service.served import served


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_secret_is_ever_written(settings: Settings, tmp_path: Path, form: str) -> None:
    store = Store.open(settings.url_of_database)
    tokens = {scope: store.tokens.add(scope, scope)[1] for scope in Scope}
    store.database.close()
    log = tmp_path / "service.log"
    variables = {
        "EQUIPOISE_REQUIRE_TOKENS": "true", "EQUIPOISE_LOG_LEVEL": "debug", "EQUIPOISE_LOG_FORMAT": form,
        "EQUIPOISE_TOKEN": tokens[Scope.READ],
    }  # fmt: skip
    shown: list[str] = []
    with (
        log.open("wb") as stream,
        served(settings, stream, **variables) as service,
        httpx.Client(base_url=service.url, timeout=300, trust_env=False) as client,
    ):

        def ask(method: str, path: str, token: str, **arguments: Any) -> httpx.Response:
            headers = {"Authorization": f"Bearer {token}", "Accept": "text/html"}
            answer = client.request(method, path, headers=headers, **arguments)
            shown.append(answer.text)
            return answer

        secret = ask("POST", "/webhooks", tokens[Scope.ADMIN], json={"url": "http://127.0.0.1:9/x"}).json()["secret"]
        shown.clear()  # the one answer that shows it
        made = ask("POST", "/compare", tokens[Scope.SUBMIT], json=LATENCY_ONLY)
        assert made.status_code == 202, made.text
        path = made.headers["location"]
        until = time.monotonic() + 60
        while ask("GET", path, tokens[Scope.READ]).json()["status"] in {"queued", "running", "judging"}:
            assert time.monotonic() < until
            time.sleep(0.1)
        for below in ("", "/page", "/records", "/events", "/report.json", "/cancel"):
            for token in (*tokens.values(), f"{tokens[Scope.READ][:-1]}~"):
                ask("GET", f"{path}{below}", token)
        for address in ("/", "/comparisons", "/metrics", "/tokens", "/webhooks", "/openapi.json", "/nowhere"):
            ask("GET", address, tokens[Scope.ADMIN])
    written = log.read_text()
    assert path.rpartition("/")[2] in written
    assert len(shown) > 20
    for token in tokens.values():
        hidden = token.split("_", 2)[2]
        assert hidden not in written
        assert not any(hidden in text for text in shown)
    assert holding_any(tmp_path, list(tokens.values())) == []
    kept_in = [file for file in tmp_path.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]
    # In the database, to sign with, and nowhere else.
    assert {file.name.removesuffix("-wal") for file in kept_in} == (set() if POSTGRES else {"equipoise.db"})
    assert not any(secret in text for text in shown)


def test_the_search_finds_what_it_searches_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * ((1 << 22) - 10) + b"SECRET-SECRET-SECRET")
    (tmp_path / "b").write_text("nothing")
    assert holding_any(tmp_path, ["eqp_0_SECRET-SECRET-SECRET"]) == [tmp_path / "a"]
    assert holding_any(tmp_path, []) == []
