"""The real launcher over simulated engines, and the check that nothing of a launch is left."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from equipoise_service.engines import SGLangLauncher
from equipoise_service.engines.environment import Device
from equipoise_service.engines.leftovers import Leftovers
from equipoise_service.engines.ports import EnginePorts, PortChooser, is_free
from tests.fakes.launching import QUICK, ListRecorder, simulated_environment


def processes_writing_below(folder: Path) -> list[psutil.Process]:
    """Every process that was told to keep its step log below ``folder``: an engine of this test, or its descendant."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("EQUIPOISE_STEP_LOG", "").startswith(f"{folder}/"):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


class RememberedPorts(PortChooser):
    """Remembers what it handed out."""

    def __init__(self) -> None:
        super().__init__()
        self.handed: list[int] = []

    def choose(self) -> EnginePorts:
        """Two free, distinct ports."""
        ports = super().choose()
        self.handed += ports
        return ports


class LauncherOf:
    """Makes launchers whose engines have the given knobs."""

    def __init__(self, work_dir: Path, recorder: ListRecorder) -> None:
        self.work_dir = work_dir
        self.recorder = recorder
        self.ports = RememberedPorts()
        self.limits = QUICK
        self.leftovers = Leftovers()

    def __call__(
        self, device: Device = "simulated", *, overlaps: bool = False, imports_ahead: int = 0, **knobs: object
    ) -> SGLangLauncher:
        """A launcher of simulated engines, which it takes to be on ``device``."""
        environment = replace(simulated_environment(knobs), device=device, overlaps=overlaps)
        launcher = SGLangLauncher(
            {"default": environment},
            self.recorder,
            self.work_dir,
            self.limits,
            leftovers=self.leftovers,
            imports_ahead=imports_ahead,
        )
        launcher.ports = self.ports
        return launcher


@pytest.fixture
def recorder() -> ListRecorder:
    return ListRecorder()


@pytest.fixture
def launcher_of(tmp_path: Path, recorder: ListRecorder) -> Iterator[LauncherOf]:
    """Makes launchers; fails the test if a process or a port of their engines remains."""
    launcher_of = LauncherOf(tmp_path, recorder)
    yield launcher_of
    assert processes_writing_below(tmp_path) == []
    assert still_taken(launcher_of.ports.handed) == []


def still_taken(ports: Iterable[int], within_s: float = 20.0) -> list[int]:
    """Ports that are still in use; a killed process gives its port back a moment after it is gone."""
    deadline = time.monotonic() + within_s
    while (taken := [port for port in ports if not is_free(port)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return taken
