"""``make gallery`` as it is run: each simulated world ends in the word that it stands for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from equipoise_service.store import ListFilter, Store
from tests.fakes.demo import ROOT
from tests.fakes.gallery import PICTURES


@pytest.mark.sqlite
def test_each_picture_of_the_gallery_gets_exactly_its_word(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EQUIPOISE_")}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.fakes.gallery"],
        cwd=ROOT,
        env=environment | {"EQUIPOISE_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    store = Store.open(f"sqlite:///{tmp_path / 'demo' / 'equipoise.db'}")
    found = store.comparisons.page(ListFilter(), 20).items
    store.database.close()
    assert [one.verdict_word for one in reversed(found)] == [picture.word for picture in PICTURES]
