"""Engine environments by name: resolved, locked, built and registered; a whole one from a folder of source."""

import sys
from pathlib import Path

import pytest

from equipoise_service import errors
from equipoise_service import machine as module
from equipoise_service.cli.main import main
from equipoise_service.engines.provision import ProvisionError, find_backends, plugin_path
from equipoise_service.engines.registry import (
    DESCRIPTION,
    LOCK,
    add_environment,
    registered_environments,
    remove_environment,
)
from equipoise_service.machine import Machine
from equipoise_service.requests import CompareRequest
from equipoise_service.resolve import resolve_arms
from equipoise_service.settings import Settings
from tests.fakes import environments

BACKEND = '[build-system]\nrequires = ["uv_build"]\nbuild-backend = "uv_build"\n'


def source(folder: Path, name: str = "sglang") -> Path:
    """A repository whose Python project lies in ``python``, as SGLang's does."""
    package = folder / "python" / "src" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    project = f'[project]\nname = "{name}"\nversion = "9.9.9"\nrequires-python = ">=3.11"\n'
    (folder / "python" / "pyproject.toml").write_text(project + BACKEND)
    return folder


def settings(tmp_path: Path) -> Settings:
    return Settings(
        data=tmp_path / "data", cache=tmp_path / "cache", device="simulated", engine_python=Path(sys.executable)
    )


def test_an_environment_from_a_folder_is_built_locked_registered_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = settings(tmp_path)
    for name in ("data", "cache", "engine_python", "device"):
        monkeypatch.setenv(f"EQUIPOISE_{name.upper()}", str(getattr(here, name)))
    assert main(["env", "add", "mine", "--from", str(source(tmp_path / "repository"))]) == 0
    assert "mine: SGLang 9.9.9, lock " in capsys.readouterr().out
    (added,) = registered_environments(here.environments)
    assert (added.name, added.sglang) == ("mine", "9.9.9")
    lock = here.environments / "mine" / LOCK
    assert "--hash=sha256:" in lock.read_text()
    (wheel,) = [Path(word.removeprefix("file://")) for word in lock.read_text().split() if word.startswith("file://")]
    assert wheel.is_file(), "what the lock names can be installed again"
    assert wheel.is_relative_to(here.cache)
    assert added.python.is_file()
    assert added.python.is_relative_to(here.cache)
    machine = Machine(here)
    assert set(machine.environments()) == {"default", "mine"}
    asked = CompareRequest.model_validate({"model": "m", "preset": "sglang-version", "candidate": {"engine": "mine"}})
    assert resolve_arms(asked, machine).candidate.engine == "mine"
    assert main(["env", "list"]) == 0
    assert f"mine: SGLang 9.9.9, lock {added.lock_sha256[:16]}" in capsys.readouterr().out
    assert main(["env", "add", "mine", "--sglang", "0.5.23"]) == 3
    assert "there is an environment 'mine' already" in capsys.readouterr().err
    assert main(["env", "remove", "mine"]) == 0
    assert registered_environments(here.environments) == ()
    assert main(["env", "remove", "mine"]) == 64


def test_a_version_is_asked_for_with_pins_and_keeps_what_an_earlier_lock_had(tmp_path: Path) -> None:
    """``iniconfig`` stands for SGLang's packages: small, pure and without dependencies."""
    earlier = tmp_path / "earlier.lock"
    earlier.write_text("packaging==24.0\n")
    seen: list[str] = []

    def install(cache: Path, lock: Path, say: object) -> Path:
        seen.append(lock.read_text())
        return environments.environment(tmp_path / "built", sglang="0.5.17")

    built = source(tmp_path / "repository")
    project = built / "python" / "pyproject.toml"
    project.write_text(
        project.read_text().replace('">=3.11"\n', '">=3.11"\ndependencies = ["packaging", "iniconfig<2"]\n')
    )
    add_environment(
        tmp_path / "e", tmp_path / "c", "one", built, print, pins=["iniconfig==2.1.0"], like=earlier, install=install
    )
    assert "packaging==24.0 " in seen[0]  # the newest would be later
    assert "iniconfig==2.1.0 " in seen[0]  # SGLang would want an older one
    assert (tmp_path / "e" / "one" / DESCRIPTION).is_file()


@pytest.mark.parametrize("name", ["default", "../x", "", "A", "a/b", "x" * 65])
def test_a_name_that_could_be_a_path_or_is_taken_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProvisionError, match="cannot name one"):
        add_environment(tmp_path, tmp_path, name, "0.5.23", print)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_built_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "environments"
    with pytest.raises(ProvisionError, match="holds no pyproject"):
        add_environment(folder, tmp_path, "mine", tmp_path, print)
    with pytest.raises(ProvisionError, match="holds no SGLang"):
        add_environment(
            folder, tmp_path, "mine", source(tmp_path / "r"), print,
            install=lambda *_: environments.environment(tmp_path / "built"),
        )  # fmt: skip
    (source(tmp_path / "broken") / "python" / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(ProvisionError, match="uv build"):
        add_environment(folder, tmp_path, "mine", tmp_path / "broken", print)
    assert list(folder.iterdir()) == []


def test_a_broken_description_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / DESCRIPTION).write_text("{}")
    with pytest.raises(ProvisionError, match=r"mine/environment\.json describes no engine environment"):
        registered_environments(tmp_path)


def test_either_a_version_or_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "add", "mine"]) == 64
    assert main(["env", "add", "mine", "--sglang", "1", "--from", "."]) == 64


def test_an_unknown_name_is_refused_with_those_there_are(tmp_path: Path) -> None:
    here = settings(tmp_path)
    environments.register(here.environments, "old", Path(sys.executable), "0.5.17")
    asked = CompareRequest.model_validate({"model": "m", "candidate": {"engine": "other"}})
    with pytest.raises(errors.UnknownEngine, match="there are: default, old"):
        resolve_arms(asked, Machine(here))
    remove_environment(here.environments, "old")
    assert set(Machine(here).environments()) == {"default"}


def test_a_registered_environment_gets_the_built_plugin_where_an_operators_own_interpreter_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``EQUIPOISE_ENGINE_PYTHON`` alone means an interpreter that has the plugin; what was registered has none."""
    here = settings(tmp_path).model_copy(update={"device": "cpu"})
    environments.register(here.environments, "old", Path(sys.executable), "0.5.17")
    machine = Machine(here)
    asked = CompareRequest.model_validate({"model": "m", "candidate": {"engine": "old"}})
    with pytest.raises(errors.NoEngine, match="'old' needs the plugin, which is not built here"):
        resolve_arms(asked, machine)
    assert resolve_arms(CompareRequest(model="m"), machine).candidate.engine == "default"
    backends = find_backends()
    assert backends is not None
    built = plugin_path(here.cache, backends)
    built.mkdir(parents=True)
    assert {name: one.plugin_path for name, one in machine.environments().items()} == {"default": None, "old": built}
    assert resolve_arms(asked, machine).candidate.engine == "old"
    given = Machine(here.model_copy(update={"plugin_path": tmp_path}))
    assert {one.plugin_path for one in given.environments().values()} == {tmp_path}
    monkeypatch.setattr(module, "find_backends", lambda: None)  # no checkout, as in an image
    assert machine.environments()["old"].plugin_path is None
