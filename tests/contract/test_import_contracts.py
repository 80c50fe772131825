"""The import contracts are executed: breaking any one of them fails ``make check``."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {
    "equipoise_evals": ROOT / "evals" / "equipoise_evals",
    "equipoise_service": ROOT / "service" / "equipoise_service",
    "equipoise_backends": ROOT / "backends" / "equipoise_backends",
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The three packages and the contracts, to be broken."""
    for name, source in ROOMS.items():
        shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "data"))
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """What ``make check`` runs, over the copy."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_make_check_runs_the_linter() -> None:
    makefile = (ROOT / "Makefile").read_text()
    check = makefile[makefile.index("\ncheck:") : makefile.index("\n.PHONY: test\n")]
    assert "lint-imports" in check


def test_the_rooms_as_they_are_keep_every_contract(copy: Path) -> None:
    result = lint(copy)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("equipoise_evals/experiment.py", "import equipoise_service"),
        ("equipoise_backends/scratch.py", "import equipoise_evals"),
        ("equipoise_service/settings.py", "import equipoise_backends"),
        ("equipoise_service/settings.py", "import torch"),
        ("equipoise_evals/model/plan.py", "import equipoise_evals.judge"),
        ("equipoise_evals/stats/paired.py", "import equipoise_evals.gsm8k.grade"),
        ("equipoise_evals/judge/words.py", "import time"),
        ("equipoise_evals/stats/latency.py", "from pathlib import Path"),
    ],
)
def test_a_broken_contract_fails(copy: Path, module: str, forbidden: str) -> None:
    with (copy / module).open("a") as file:
        file.write(f"\n{forbidden}\n")
    result = lint(copy)
    assert result.returncode != 0
    assert "BROKEN" in result.stdout
