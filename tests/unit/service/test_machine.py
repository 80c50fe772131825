"""What settings and cache make of this machine; nothing is built or started."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from equipoise_evals.gsm8k import load
from equipoise_evals.model import ModelRef
from equipoise_service import errors, machine, questions
from equipoise_service.engines.embedded import Converter
from equipoise_service.engines.models import ModelPlaces
from equipoise_service.engines.provision import engine_environment_path, plugin_path
from equipoise_service.machine import Machine
from equipoise_service.settings import Settings

ROOT = Path(__file__).resolve().parents[3]


def on(tmp_path: Path, **fields: object) -> Machine:
    values = {"data": tmp_path / "data", "cache": tmp_path / "cache", "device": "cpu"} | fields
    return Machine(Settings.model_validate(values))


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_what_the_settings_name_is_used(tmp_path: Path) -> None:
    python = program(tmp_path / "python")
    here = on(
        tmp_path, engine_python=python, plugin_path=tmp_path, engine_module="a.b", engine_variables={"X": "1"}
    ).environments()["default"]
    assert (here.python, here.plugin_path, here.module) == (python, tmp_path, "a.b")
    assert (here.device, here.variables) == ("cpu", {"X": "1"})


def test_what_was_built_in_the_cache_is_found(tmp_path: Path) -> None:
    backends = ROOT / "backends"
    cache = tmp_path / "cache"
    plugin_path(cache, backends).mkdir(parents=True)
    python = program(engine_environment_path(cache, backends / "engine.lock") / "bin" / "python")
    here = on(tmp_path).environments()["default"]
    assert (here.python, here.plugin_path) == (python, plugin_path(cache, backends))


def test_a_plugin_that_is_not_built_from_this_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.NoEngine, match="make setup"):
        on(tmp_path).environments()


def test_outside_a_checkout_the_variable_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_backends", lambda: None)
    with pytest.raises(errors.NoEngine, match="EQUIPOISE_ENGINE_PYTHON"):
        on(tmp_path).environments()


def test_a_model_is_looked_for_in_this_machines_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def resolve(name: str, places: object) -> ModelRef:
        seen.append(places)
        return ModelRef(name=name, source="hub", path="p", revision="r")

    monkeypatch.setattr(machine, "resolve_model", resolve)
    python = program(tmp_path / "python")
    for device, dtype in (("cpu", "float32"), ("cuda", "bfloat16")):
        assert on(tmp_path, device=device, engine_python=python).model("o/n").source == "hub"
        places = ModelPlaces(tmp_path / "cache", Converter(python, None, dtype))
        assert seen.pop() == places


def test_a_hub_that_cannot_be_reached_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> None:
        raise load.HubUnavailable("openai/gsm8k", "0", "the hub cannot be reached")

    monkeypatch.setattr(load, "load_hub", unavailable)
    with pytest.raises(errors.QuestionsUnavailable, match="cannot be reached") as refused:
        questions.load_questions(on(tmp_path, gsm8k="hub"))
    assert refused.value.status == 503


@pytest.mark.parametrize(
    ("fields", "host", "engines"),
    [
        ({}, (32, 250), 7),
        ({}, (16, 128), 3),
        ({}, (256, 2_000), 12),
        ({}, (32, 30), 2),
        ({}, (2, 250), 0),
        ({}, (32, 4), 0),
        ({"imports_ahead": 5}, (2, 4), 5),
        ({"imports_ahead": 0}, (32, 250), 0),
        ({"fast_starts": False, "imports_ahead": 5}, (32, 250), 0),
        ({"executor": "ray", "imports_ahead": 5}, (32, 250), 0),
        ({"device": "cpu", "imports_ahead": 5}, (32, 250), 0),
    ],
)
def test_as_many_engines_import_ahead_as_the_host_has_cores_and_memory_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, object], host: tuple[int, int], engines: int
) -> None:
    cores, available_gb = host
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(cores)))
    memory = SimpleNamespace(available=available_gb * 1024**3)
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
    assert on(tmp_path, **({"device": "cuda"} | fields)).imports_ahead() == engines
