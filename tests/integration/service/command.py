"""The command line in this process, over a data folder of a test's own."""

import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from equipoise_service.cli import main
from tests.integration.service.served import variables_of

QUICK = [
    "--parts", "latency", "--pairs-max", "1", "--quads", "1", "--steps-per-block", "16", "--batch-sizes", "1,4",
    "--primary-batch", "4",
]  # fmt: skip


Command = Callable[..., int]


def command_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command in this process over a data folder and returns its exit code."""

    def run(*arguments: str, **knobs: object) -> int:
        for name in [name for name in os.environ if name.startswith("EQUIPOISE_")]:
            monkeypatch.delenv(name)
        for name, value in variables_of(folder, **knobs).items():
            monkeypatch.setenv(name, value)
        return main(arguments)

    return run


def engines_below(folder: Path) -> list[int]:
    """Engine processes of the service whose data lies below this folder; others on this machine are not ours."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("EQUIPOISE_STEP_LOG", "").startswith(f"{folder}/"):
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def id_in(text: str) -> str:
    return text.split("comparison ", 1)[1][:36]
