import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from equipoise_service import doctor
from equipoise_service.doctor import Finding, findings
from equipoise_service.folder import holding
from equipoise_service.machine import Machine
from equipoise_service.server import Listening, bind
from equipoise_service.settings import Settings


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
