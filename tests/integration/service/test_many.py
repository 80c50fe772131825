"""Many comparisons, and a long one: pages stay small, and ask the database for little.

How long they take is measured by ``make bench-pages``, since a time that a test asserts fails on a busy machine.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event

from equipoise_service.api import create_app
from equipoise_service.settings import Settings
from equipoise_service.store import Store
from tests.support import stored as keep
from tests.support.large import long_plan, long_records
from tests.support.stored import fill

PAGE_BYTES = 3_000_000
LISTS = ("", "?verdict=ship&sort=fastest", "?model=model-7", "?machine=none&since=2026-01-01")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data=tmp_path / "data", cache=tmp_path / "cache", device="simulated")


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    opened = Store.open(settings.url_of_database)
    yield opened
    opened.database.close()


@pytest.mark.parametrize("query", LISTS)
def test_a_list_asks_as_few_statements_of_many_as_of_few(settings: Settings, store: Store, query: str) -> None:
    # Nobody takes what the test itself brings to its end.
    idle = settings.model_copy(update={"worker": False})
    with TestClient(create_app(idle), base_url="http://127.0.0.1") as client:
        running = client.app.state.service.store.database.engine  # type: ignore[attr-defined] # FastAPI's
        asked: list[str] = []
        event.listen(running, "after_cursor_execute", lambda *said: asked.append(said[2]))

        def statements() -> int:
            asked.clear()
            assert client.get(f"/{query}").status_code == 200
            return sum(one.startswith("SELECT") for one in asked)

        fill(store, 20)
        few = statements()
        fill(store, 400)
        assert 0 < statements() <= few < 20


def test_a_long_comparisons_page_and_reports_are_small(settings: Settings, store: Store) -> None:
    plan = long_plan()
    stored = keep.finish(store, plan, long_records(plan))
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        for kind in ("page", "report.html"):
            answer = client.get(f"/comparisons/{stored.id}/{kind}")
            assert answer.status_code == 200
            assert len(answer.content) <= PAGE_BYTES
