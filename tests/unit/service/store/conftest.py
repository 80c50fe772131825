"""An empty database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from equipoise_service.store import (
    Store,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'deep' / 'equipoise.db'}")
    yield opened
    opened.database.close()
