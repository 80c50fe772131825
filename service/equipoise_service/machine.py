"""This machine as the service sees it: its device, its engine environments, its models and question sets.

Here settings meet the engines. Nothing is started from here; the launcher that is made does that.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import psutil
import pynvml

from equipoise_evals.model import ArmSpec, ModelRef, Plan
from equipoise_evals.ports import Launcher, Recorder
from equipoise_service.engines import EngineEnvironment, SGLangLauncher
from equipoise_service.engines.attached import AttachedLauncher
from equipoise_service.engines.backends import unsupported
from equipoise_service.engines.device import NvmlDevice
from equipoise_service.engines.embedded import Converter
from equipoise_service.engines.environment import Device, kernel_caches
from equipoise_service.engines.leftovers import Leftovers
from equipoise_service.engines.models import ModelPlaces, resolve_model, simulated_model
from equipoise_service.engines.placing import Place, gpus_needed
from equipoise_service.engines.presets import Preset, load_presets
from equipoise_service.engines.provision import engine_environment_path, find_backends, plugin_path
from equipoise_service.engines.registry import RegisteredEnvironment, registered_environments
from equipoise_service.errors import NoEngine
from equipoise_service.profiles import PROFILES, DeviceProfile
from equipoise_service.settings import Settings

log = logging.getLogger(__name__)

CORES_PER_IMPORT, BYTES_PER_IMPORT, MOST_IMPORTS = 4, 8 * 1024**3, 12
LauncherFactory = Callable[[str, Plan, Recorder], Launcher]
"""Makes the launcher of one comparison, from its id, its plan and its recorder."""


class Machine:
    """What requests are resolved against and engines are started on.

    Args:
        settings: The operator's decisions.
        node: Its name among the machines of a cluster; empty for the service's own.
        leftovers: Which engines of an earlier service are ended before any is started; all of this data folder if None.
    """

    def __init__(self, settings: Settings, node: str = "", leftovers: Leftovers | None = None) -> None:
        self.settings = settings
        self.node = node
        self.device: Device = find_device() if settings.device == "auto" else settings.device
        _ = self.presets  # A mistake in a preset stops the service at its start, not a request hours later.
        self.leftovers = leftovers or Leftovers(settings.engine_logs.resolve())

    @property
    def profile(self) -> DeviceProfile:
        """What this kind of device can do in reasonable time."""
        return PROFILES[self.device]

    def environments(self) -> Mapping[str, EngineEnvironment]:
        """Engine environments by the name that an arm uses.

        Raises:
            NoEngine: There is no interpreter to start engines with.
        """
        settings = self.settings
        python, plugin = self._interpreter_and_plugin()
        if not os.access(python, os.X_OK):
            raise NoEngine(f"there is no engine to start: {python} is not a program; `make setup` builds one")
        default = EngineEnvironment(
            name="default",
            python=python,
            module=settings.engine_module,
            plugin_path=plugin,
            device=self.device,
            variables=self._variables(),
            overlaps=self._starts_fast,
        )
        # What an operator built has SGLang and no plugin, whatever his own interpreter brings along.
        plugin = plugin or self._built_plugin()
        registered = {
            one.name: replace(default, name=one.name, python=one.python, plugin_path=plugin)
            for one in self.registered()
        }
        return registered | {default.name: default}

    def unplugged(self, arm: ArmSpec) -> str | None:
        """Why an arm's registered environment cannot be started for want of the plugin; None if it can."""
        if self.device == "simulated" or arm.engine == "default":
            return None
        if self.environments()[arm.engine].plugin_path is not None:
            return None
        return (
            f"the engine environment {arm.engine!r} needs the plugin, which is not built here; set "
            "EQUIPOISE_PLUGIN_PATH, or build it with `make setup`"
        )

    def registered(self) -> tuple[RegisteredEnvironment, ...]:
        """Engine environments that an operator added, by `equipoise env add`."""
        return registered_environments(self.settings.environments)

    @cached_property
    def presets(self) -> Mapping[str, Preset]:
        """Presets by name.

        Raises:
            PresetError: A file of the operator's has a mistake.
        """
        settings = self.settings
        return load_presets(settings.presets, settings.allow_flags, settings.allow_variables)

    @property
    def _starts_fast(self) -> bool:
        return self.device == "cuda" and self.settings.fast_starts

    def _variables(self) -> dict[str, str]:
        """What every engine gets, in both arms alike; the operator's own variables win."""
        caches = kernel_caches(self.settings.cache.expanduser() / "kernels") if self._starts_fast else {}
        return caches | self.settings.engine_variables

    def _interpreter_and_plugin(self) -> tuple[Path, Path | None]:
        """What the settings name, else our own interpreter for simulated engines, else what was built in the cache."""
        settings = self.settings
        if settings.engine_python is not None:
            return settings.engine_python, settings.plugin_path
        if self.device == "simulated":
            return Path(sys.executable), settings.plugin_path
        backends = find_backends()
        if backends is None:
            raise NoEngine("EQUIPOISE_ENGINE_PYTHON is not set and this is no checkout, so there is no engine to start")
        built = engine_environment_path(settings.cache, backends / "engine.lock") / "bin" / "python"
        plugin = settings.plugin_path or plugin_path(settings.cache, backends)
        if not plugin.is_dir():
            raise NoEngine(f"the plugin is not built from the source as it is now ({plugin}); `make setup` builds it")
        return built, plugin

    def _built_plugin(self) -> Path | None:
        """The plugin in the cache, as it is now in this checkout; None where it is not built."""
        backends = find_backends()
        built = None if backends is None else plugin_path(self.settings.cache, backends)
        return built if built is not None and built.is_dir() else None

    def sglang(self) -> str | None:
        """The version of SGLang that engines run; None where it cannot be told."""
        return installed_sglang(self.environments()["default"].python)

    def unsupported(self, arm: ArmSpec) -> str | None:
        """Why this machine's GPU and SGLang cannot run an arm; None if they can, or if there is nobody to ask."""
        gpu = self._first_gpu()
        version = installed_sglang(self.environments()[arm.engine].python)
        return None if gpu is None or version is None else unsupported(arm.flags, version, gpu.capability())

    def gpu(self) -> str | None:
        """UUID of the first GPU of the pool; None where there is none, or nobody to ask."""
        gpu = self._first_gpu()
        return None if gpu is None else gpu.uuid()

    def _first_gpu(self) -> NvmlDevice | None:
        here = self.device == "cuda" and self.settings.executor == "local"  # a cluster's nodes have GPUs of their own
        return _nvml(",".join(self.devices()), 1) if here else None

    def model(self, name: str) -> ModelRef:
        """The model with its files on this machine; blocks while it downloads.

        Raises:
            ModelRefused: It is unknown, gated or cannot be had.
        """
        engine = self.environments()["default"]
        dtype = "float32" if self.device == "cpu" else "bfloat16"
        converter = Converter(engine.python, engine.plugin_path, dtype)
        places = ModelPlaces(self.settings.cache, converter, self._model_roots(), self.settings.models)
        return simulated_model(name, places) if self.device == "simulated" else resolve_model(name, places)

    def _model_roots(self) -> tuple[Path, ...] | None:
        """Folders from which a model may be taken; None for any."""
        nowhere = () if self.settings.asks_for_tokens else None
        return nowhere if self.settings.model_roots is None else self.settings.model_roots

    def launcher(self, comparison_id: str, plan: Plan, recorder: Recorder) -> Launcher:
        """The launcher of a comparison's engines, whose logs go below the data folder, or of those that run already."""
        if plan.arms.attached:
            return AttachedLauncher(recorder)
        work = self.settings.engine_logs / comparison_id
        pool = self.devices()
        gpu = _nvml(",".join(pool), gpus_needed(plan.arms, plan.layout)) if self.device == "cuda" else None
        place = Place(pool, self.node)
        return SGLangLauncher(
            self.environments(),
            recorder,
            work,
            device=gpu,
            leftovers=self.leftovers,
            place=place,
            imports_ahead=self.imports_ahead(),
        )

    def imports_ahead(self) -> int:
        """Engines of later launches that import beside the first start; on a cluster a node may run a single pair."""
        if not self._starts_fast or self.settings.executor != "local":
            return 0
        if self.settings.imports_ahead is not None:
            return self.settings.imports_ahead
        cores, available = len(os.sched_getaffinity(0)), psutil.virtual_memory().available
        return max(0, min(cores // CORES_PER_IMPORT, available // BYTES_PER_IMPORT, MOST_IMPORTS + 1) - 1)

    def devices(self) -> tuple[str, ...]:
        """The pool of GPUs, as ``CUDA_VISIBLE_DEVICES`` names them; empty where engines use none."""
        if self.settings.devices or self.device != "cuda":
            return self.settings.devices
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible:
            return tuple(name.strip() for name in visible.split(","))
        return tuple(str(index) for index in range(len(list(Path("/dev").glob("nvidia[0-9]*")))))

    def device_bytes(self) -> int | None:
        """Memory of the first GPU of the pool; None where there is none, or nobody to ask."""
        gpu = _nvml(",".join(self.devices()), 1) if self.device == "cuda" else None
        return None if gpu is None else gpu.total_bytes()


def _nvml(visible: str | None = None, gpus: int = 1) -> NvmlDevice | None:
    """The GPUs' memory, where the driver can be asked for it; engines run without, only less watched."""
    try:
        return NvmlDevice(visible, gpus)
    except pynvml.NVMLError as error:
        log.warning("NVML cannot be asked, so nobody checks that engines give their device memory back: %s", error)
        return None


def installed_sglang(python: Path) -> str | None:
    """The version of SGLang beside an interpreter, by its metadata alone; None where it cannot be told."""
    found = sorted(python.parent.parent.glob("lib/python3*/site-packages/sglang-*.dist-info"))
    return found[-1].name.removeprefix("sglang-").removesuffix(".dist-info") if found else None


def find_device(devices: Path = Path("/dev")) -> Device:
    """``cuda`` where the driver shows a device, else ``cpu``; torch is not asked, it is not in this environment."""
    return "cuda" if any(devices.glob("nvidia[0-9]*")) else "cpu"
