"""For every test: the tokens that it makes are noted, and after the run nothing that was written may hold one."""

import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from equipoise_service.access.secrets import NewToken, new_token


@pytest.fixture(autouse=True)
def no_log_handler_stays() -> Iterator[None]:
    """`equipoise serve` within a test sets up the logging of its process; its handler must not outlive the test."""
    root = logging.getLogger()
    before, level = set(root.handlers), root.level
    yield
    for handler in set(root.handlers) - before:
        if type(handler) is logging.StreamHandler:
            root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def no_token_is_written_down(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Search the output folder of this process's tests: databases, logs, records, reports, whatever there is."""
    made: list[str] = []

    def noted() -> NewToken:
        token = new_token()
        made.append(token.text)
        return token

    with pytest.MonkeyPatch.context() as patch:
        for module in ("equipoise_service.store.tokens", "equipoise_service.cli.comparing"):
            patch.setattr(f"{module}.new_token", noted)
        yield
    found = holding_any(tmp_path_factory.getbasetemp(), made)
    assert found == [], "these files hold a token's secret"


def holding_any(folder: Path, tokens: list[str]) -> list[Path]:
    """Files below a folder that hold the secret part of any of these tokens, by grep: it seeks all at once."""
    secrets = [token.split("_", 2)[2] for token in tokens]
    if not secrets:
        return []
    found = subprocess.run(
        ["grep", "--recursive", "--devices=skip", "--files-with-matches", "--text", "--fixed-strings", "--file=-",
         "--", str(folder)],
        input="\n".join(secrets), capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    assert found.returncode in (0, 1), found.stderr
    return [Path(line) for line in found.stdout.splitlines()]
