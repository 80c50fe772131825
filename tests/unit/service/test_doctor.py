import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import psutil
import pynvml
import pytest

from equipoise_service import doctor
from equipoise_service.access.scopes import Scope
from equipoise_service.doctor import findings
from equipoise_service.doctor_gpu import gpu_findings
from equipoise_service.findings import Finding
from equipoise_service.folder import holding
from equipoise_service.machine import Machine
from equipoise_service.server import Listening, bind
from equipoise_service.settings import Settings
from equipoise_service.store import Store


def machine(tmp_path: Path, **fields: object) -> Machine:
    values = {"data": tmp_path / "data", "cache": tmp_path / "cache", "device": "simulated", "port": 0} | fields
    return Machine(Settings.model_validate(values))


def found(here: Machine, name: str) -> Finding:
    return next(finding for finding in findings(here) if finding.name == name)


def test_a_sound_machine_has_no_problem(tmp_path: Path) -> None:
    every = list(findings(machine(tmp_path)))
    assert [finding for finding in every if finding.state == "problem"] == []
    assert "sqlalchemy" in found(machine(tmp_path), "versions").detail
    assert len({finding.name for finding in every}) == len(every)


def test_a_missing_interpreter_is_a_problem(tmp_path: Path) -> None:
    finding = found(machine(tmp_path, device="cpu", engine_python=tmp_path / "none"), "engine environment")
    assert finding.state == "problem"
    assert "make setup" in finding.remedy


def interpreter(tmp_path: Path, says: str) -> Path:
    """A program that answers as an interpreter of another environment would."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("says", "state", "detail"),
    [
        ('echo \'{"sglang": "1", "torch": "2", "equipoise-backends": "3"}\'', "ok", "sglang 1"),
        ('echo \'{"sglang": "1", "torch": null, "equipoise-backends": "3"}\'', "problem", "torch missing"),
        ("exit 1", "problem", "sglang missing"),
    ],
)
def test_an_engine_environment_is_asked_for_its_packages(tmp_path: Path, says: str, state: str, detail: str) -> None:
    here = machine(tmp_path, device="cpu", engine_python=interpreter(tmp_path, says), plugin_path=tmp_path)
    finding = found(here, "engine environment")
    assert (finding.state, detail in finding.detail) == (state, True)
    assert (finding.remedy != "") == (state != "ok")


def test_our_own_interpreter_lacks_an_engine(tmp_path: Path) -> None:
    finding = found(machine(tmp_path, device="cpu", engine_python=sys.executable), "engine environment")
    assert finding.state == "problem"
    assert "sglang missing" in finding.detail


def test_a_faulty_question_set_is_a_problem(tmp_path: Path) -> None:
    finding = found(machine(tmp_path, gsm8k=str(tmp_path / "none")), "questions")
    assert (finding.state, "is no folder" in finding.detail) == ("problem", True)
    assert "shipped: " in found(machine(tmp_path), "questions").detail
    assert "hub" in found(machine(tmp_path, gsm8k="hub"), "questions").detail


class Usage(NamedTuple):
    free: int


def test_a_full_disk_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(free=1 << 29))
    finding = found(machine(tmp_path), "disk, data")
    assert (finding.state, "EQUIPOISE_DATA" in finding.remedy) == ("problem", True)
    assert "0.5 GiB free" in finding.detail


class Memory(NamedTuple):
    available: int


def test_little_memory_is_a_warning_for_cpu_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(available=4 << 30))
    assert found(machine(tmp_path, device="cpu", engine_python=sys.executable), "memory").state == "warning"
    assert found(machine(tmp_path), "memory").state == "ok"


@pytest.fixture
def taken() -> Iterator[Listening]:
    listening = bind("127.0.0.1", 0)
    listening.socket.listen()
    yield listening
    listening.socket.close()


def test_a_taken_port_is_a_problem_unless_it_is_ours(tmp_path: Path, taken: Listening) -> None:
    here = machine(tmp_path, port=taken.port)
    finding = found(here, f"port {taken.port}")
    assert (finding.state, f"process {os.getpid()}" in finding.detail) == ("problem", True)
    with holding(here.settings.data, taken.url):
        assert found(here, f"port {taken.port}").detail == "used by our own service"
        assert found(here, "service").detail == f"process {os.getpid()} at {taken.url}"
    assert "none runs" in found(here, "service").detail


def test_no_free_engine_port_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "is_free", lambda _: False)
    finding = next(finding for finding in findings(machine(tmp_path)) if finding.name.startswith("engine ports"))
    assert finding.state == "problem"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[int]:
    """A process with the mark of an engine of this data folder."""
    environment = dict(os.environ) | {"EQUIPOISE_STEP_LOG": str(tmp_path / "data" / "engines" / "x" / "steps.jsonl")}
    script = "print('ready', flush=True)\nimport time\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_an_engine_without_its_service_is_left_over(tmp_path: Path, engine: int) -> None:
    here = machine(tmp_path)
    finding = found(here, "engine processes")
    assert (finding.state, finding.remedy.endswith(f"kill {engine}")) == ("warning", True)
    with holding(here.settings.data, None):
        assert found(here, "engine processes").state == "ok"
    (tmp_path / "other").mkdir()
    other = found(machine(tmp_path, data=tmp_path / "other"), "other engine processes")
    assert other.state == "warning"


def test_a_finding_is_json(tmp_path: Path) -> None:
    for finding in findings(machine(tmp_path)):
        assert json.loads(finding.model_dump_json())["name"] == finding.name


def test_a_data_folder_that_others_can_read_is_a_warning(tmp_path: Path) -> None:
    here = machine(tmp_path)
    assert "not made yet" in found(here, "data folder's rights").detail
    here.settings.data.mkdir(mode=0o755)
    here.settings.data.chmod(0o755)
    finding = found(here, "data folder's rights")
    assert (finding.state, finding.remedy) == ("warning", f"chmod 700 {here.settings.data}")
    here.settings.data.chmod(0o700)
    assert found(here, "data folder's rights").state == "ok"


def test_a_service_that_asks_for_tokens_needs_one(tmp_path: Path) -> None:
    assert found(machine(tmp_path), "tokens").state == "ok"
    here = machine(tmp_path, host="192.0.2.1")
    assert found(here, "tokens").state == "problem"
    here = machine(tmp_path, host="192.0.2.1", database_url=here.settings.url_of_database)
    store = Store.open(here.settings.url_of_database)
    store.tokens.add("x", Scope.READ)
    assert found(here, "tokens").detail == "asked for; 1 valid"
    webhook = store.webhooks.add("https://example.com", "whsec_x")
    assert found(here, f"webhook {webhook.id}").state == "ok"
    store.database.close()


@pytest.mark.sqlite
def test_a_database_of_an_older_version_is_left_as_it_is(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.settings.data.mkdir()
    (here.settings.data / "equipoise.db").touch()
    assert found(here, "database").state == "warning"
    with closing(sqlite3.connect(here.settings.data / "equipoise.db")) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []


class Nvml:
    """A driver with one GPU that says what it is told to."""

    def __init__(self, **says: object) -> None:
        self.says: dict[str, object] = {
            "PersistenceMode": 1, "ClockInfo": 1980, "MaxClockInfo": 1980, "ApplicationsClock": 1980, "Temperature": 40,
            "CurrentClocksThrottleReasons": 0, "ComputeRunningProcesses": [], "HandleByIndex": object(), "Count": 1,
        } | says  # fmt: skip

    def install(self, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
        monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
        monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "580.1")
        for name, value in self.says.items():
            monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", lambda *_, value=value: self.answer(value))
        return list(gpu_findings())

    @staticmethod
    def answer(value: object) -> object:
        if isinstance(value, Exception):
            raise value
        return value


class Process(NamedTuple):
    pid: int
    usedGpuMemory: int | None


def test_a_sound_gpu_has_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    every = Nvml().install(monkeypatch)
    assert [finding.state for finding in every] == ["ok"] * 5
    assert every[0].detail == "NVIDIA 580.1, 1 GPU"


@pytest.mark.parametrize(
    ("says", "name", "detail", "remedy"),
    [
        ({"PersistenceMode": 0}, "persistence", "off", "-pm 1"),
        ({"ApplicationsClock": 1200}, "clocks", "1200 MHz", "-rac"),
        ({"CurrentClocksThrottleReasons": 0x20}, "throttling", "software_thermal", "cooling"),
        ({"Temperature": 90}, "throttling", "90 degrees", "cooling"),
        ({"ComputeRunningProcesses": [Process(7, 1 << 30), Process(8, None)]}, "users", "7 (1024 MiB)", "end them"),
    ],
)
def test_what_disturbs_on_a_gpu_has_its_remedy(
    monkeypatch: pytest.MonkeyPatch, says: dict[str, object], name: str, detail: str, remedy: str
) -> None:
    bad = [finding for finding in Nvml(**says).install(monkeypatch) if finding.state != "ok"]
    assert [finding.name for finding in bad] == [f"GPU 0, {name}"]
    assert detail in bad[0].detail
    assert remedy in bad[0].remedy


def test_what_a_driver_does_not_tell_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    every = Nvml(ApplicationsClock=unknown).install(monkeypatch)
    assert "not told by the driver" in next(finding.detail for finding in every if finding.name == "GPU 0, clocks")


def test_a_driver_that_does_not_answer_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    finding = found(machine(tmp_path, device="cuda", engine_python=sys.executable), "driver")
    assert (finding.state, "driver" in finding.remedy) == ("problem", True)
