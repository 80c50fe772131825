"""The published schemas are committed, so that a change of one shows in a review."""

import json
from pathlib import Path

import pytest

from equipoise_service.api import create_app
from equipoise_service.api.openapi import text_of
from equipoise_service.schemas import PUBLISHED, schema_of, write_all
from equipoise_service.settings import Settings

COMMITTED = Path(__file__).resolve().parents[3] / "docs" / "schemas"


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_the_committed_schema_is_the_published_one(name: str) -> None:
    assert json.loads((COMMITTED / f"{name}.json").read_text()) == schema_of(name), "run `make schemas`"


def test_nothing_else_is_committed_as_a_schema() -> None:
    assert {path.stem for path in COMMITTED.glob("*.json")} == {*PUBLISHED, "openapi"}


def test_the_committed_openapi_document_is_the_served_one() -> None:
    served = create_app(Settings(device="simulated")).openapi()
    assert (COMMITTED / "openapi.json").read_text() == text_of(served), "run `make schemas`, and look at what changed"


def test_writing_is_stable(tmp_path: Path) -> None:
    write_all(tmp_path / "a")
    write_all(tmp_path / "b")
    for name in PUBLISHED:
        first = (tmp_path / "a" / f"{name}.json").read_bytes()
        assert first == (tmp_path / "b" / f"{name}.json").read_bytes() == (COMMITTED / f"{name}.json").read_bytes()
