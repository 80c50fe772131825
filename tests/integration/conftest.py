"""Real engines for tests marked ``engine``: one pair for the module that uses it, since each start takes half a minute.

It ends with that module: later ones assert that no engine and no port is left on the machine.

They need an interpreter with SGLang: ``EQUIPOISE_ENGINE_PYTHON``, or the environment that ``make`` builds in the cache.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from equipoise_evals.model import ArmPair, ArmSpec, Plan, Role
from equipoise_service.engines import EngineEnvironment, SGLangLauncher, persistent_buffer
from equipoise_service.engines.embedded import Converter
from equipoise_service.engines.engine import SGLangEngine
from equipoise_service.engines.models import ModelPlaces, resolve_model
from equipoise_service.engines.provision import engine_environment_path, ensure_plugin
from equipoise_service.settings import Settings
from tests.fakes.launching import ListRecorder, latency_plan

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def real_environment() -> EngineEnvironment:
    """The engine environment with the plugin of this checkout; skips where there is no SGLang."""
    settings = Settings.from_env()
    lock = ROOT / "backends" / "engine.lock"
    python = settings.engine_python
    if python is None and lock.is_file():
        python = engine_environment_path(settings.cache, lock) / "bin" / "python"
    if python is None or not python.is_file():
        pytest.skip("no engine environment: set EQUIPOISE_ENGINE_PYTHON or run make setup")
    plugin = ensure_plugin(settings.cache, ROOT / "backends", say=lambda line: None)
    return EngineEnvironment("default", python, plugin_path=plugin, device="cpu")


@pytest.fixture(scope="session")
def real_plan(real_environment: EngineEnvironment) -> Plan:
    """The preset's CPU arms on the embedded model, their prefills clocked too."""
    converter = Converter(real_environment.python, real_environment.plugin_path)
    model = resolve_model(None, ModelPlaces(Settings.from_env().cache, converter))
    arms = persistent_buffer("cpu")
    return latency_plan(
        ArmPair(baseline=clocking_prefills(arms.baseline), candidate=clocking_prefills(arms.candidate)), model=model
    )


def clocking_prefills(arm: ArmSpec) -> ArmSpec:
    """The arm as the preset for prefills would start it."""
    return arm.model_copy(update={"environment": {**arm.environment, "EQUIPOISE_STEP_CLOCK_PREFILL": "1"}})


class RealPair(NamedTuple):
    """Two running engines."""

    engines: dict[Role, SGLangEngine]
    plan: Plan


@pytest.fixture(scope="module")
async def real_pair(
    real_environment: EngineEnvironment, real_plan: Plan, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RealPair]:
    """One launch pair of real engines, baseline first."""
    launcher = SGLangLauncher({"default": real_environment}, ListRecorder(), tmp_path_factory.mktemp("real"))
    async with launcher.launch_pair(real_plan, 1, ("A", "B")) as engines:
        running = {role: engine for role, engine in engines.items() if isinstance(engine, SGLangEngine)}
        assert list(running) == ["A", "B"]
        yield RealPair(running, real_plan)
