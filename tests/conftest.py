"""For every test: the tokens that it makes are noted, and after the run nothing that was written may hold one.

With ``TEST_POSTGRES_URL``, as ``make test-postgres`` sets it, every database of the tests is one on that server: what
would be a SQLite file is a database of its own there, and tests about SQLite's files are skipped.
"""

import logging
import os
import subprocess
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from equipoise_service import store
from equipoise_service.access.secrets import NewToken, new_token
from equipoise_service.settings import Settings
from equipoise_service.store.database import Database, open_database
from tests.support import postgres

SQLITE = "sqlite:///"
POSTGRES = postgres.VARIABLE in os.environ


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is about SQLite's files where there are none."""
    for item in items:
        if POSTGRES and item.get_closest_marker("sqlite"):
            item.add_marker(pytest.mark.skip(reason="about SQLite's own files"))


@pytest.fixture(scope="session", autouse=True)
def databases_on_postgres() -> Iterator[None]:
    """Put every database that a test opens on the server, if there is one."""
    if not POSTGRES:
        yield
        return
    url_of = vars(Settings)["url_of_database"].fget

    def there(url: str) -> str:
        return postgres.database_for(url.removeprefix(SQLITE)) if url.startswith(SQLITE) else url

    def opened(url: str, *, migrated: bool = True) -> Database:
        database = open_database(there(url), migrated=migrated)
        weakref.finalize(database, database.engine.dispose)  # the driver warns of what nobody closed
        return database

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "open_database", opened)
        patch.setattr(Settings, "url_of_database", property(lambda settings: there(url_of(settings))))
        yield


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
    """Files below a folder that hold the secret part of any of these tokens, by grep: it seeks all at once.

    Files of a gibibyte and more are left out: tests make them sparse, of nothing but zeros, and grep would take all of
    one for a line and hold it in memory.
    """
    secrets = [token.split("_", 2)[2] for token in tokens]
    if not secrets:
        return []
    files = [path for path in folder.rglob("*") if path.is_file() and size_of(path) < 2**30]
    found: list[Path] = []
    for start in range(0, len(files), 500):
        some = files[start : start + 500]
        grep = subprocess.run(
            ["grep", "--no-messages", "--files-with-matches", "--text", "--fixed-strings", "--file=-", "--", *some],
            input="\n".join(secrets), capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        gone = not all(path.exists() for path in some)  # which grep calls an error
        assert grep.returncode in (0, 1) or gone, f"grep ended with {grep.returncode}"
        found += map(Path, grep.stdout.splitlines())
    return found


def size_of(path: Path) -> int:
    """Its bytes; none once it has gone."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
