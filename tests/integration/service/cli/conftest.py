"""Commands over a data folder of a test's own, and over one that holds a finished comparison."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.service.cli.command import QUICK, Blocked, Command, command_in, id_in
from tests.integration.service.served import clean_environment, variables_of


@pytest.fixture
def equipoise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command over a data folder of this test's own, in its folder: a gate leaves documents where it runs."""
    monkeypatch.chdir(tmp_path)
    return command_in(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def blocked(tmp_path_factory: pytest.TempPathFactory) -> Blocked:
    folder = tmp_path_factory.mktemp("blocked")
    environment = clean_environment() | variables_of(folder, effect={"persistent": 0.05})
    command = [sys.executable, "-m", "equipoise_service", "compare", "m", *QUICK, "--pairs-max", "3"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    return Blocked(id_in(done.stderr), done.stdout, folder)


@pytest.fixture
def beside(blocked: Blocked, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command over the data folder of the finished comparison."""
    monkeypatch.chdir(blocked.folder)
    return command_in(blocked.folder, monkeypatch)
