"""Engine environments, and the command line and variables that make one arm's engine out of one of them.

Nothing is started here; the result is data that goes into the launch record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from equipoise_evals.model import ArmSpec, ModelRef
from equipoise_service.engine_processes import STEP_LOG
from equipoise_service.engines.ports import EnginePorts

Device = Literal["cuda", "cpu", "simulated"]

PLATFORM_PLUGIN = "equipoise-cpu"
"""The plugin's name in the entry-point group ``sglang.srt.platforms``; ``SGLANG_PLATFORM`` selects it on a CPU."""

MEMORY_FRACTIONS: Mapping[Device, tuple[float, float]] = {
    "cuda": (0.3, 0.5),
    "cpu": (0.4, 0.4),
    "simulated": (0.2, 0.2),
}
"""``--mem-fraction-static`` of the first and the second engine on one device. On a GPU the fraction counts what the
first engine already took, so the second needs a larger one for a pool of the same size. It follows the order of the
start, never the arm, and either order comes as often. An engine that has a GPU to itself gets none:
SGLang's own rule then leaves room for graphs by the size of the device."""

INHERITED = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "USER", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES",
    "HF_HOME", "HF_HUB_OFFLINE", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "SSL_CERT_FILE",
    "NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS", "NCCL_SOCKET_IFNAME",
)  # fmt: skip
"""Variables of the service that its engines see. A closed list: tokens and passwords never reach an engine's log.

Those of NCCL and its like say what a host's GPUs must not do with each other."""


@dataclass(frozen=True)
class EngineEnvironment:
    """A Python environment that can start engines.

    Attributes:
        name: The name by which an ``ArmSpec`` asks for it.
        python: Its interpreter.
        module: What is run with ``-m``.
        plugin_path: Folder put first on ``PYTHONPATH``, for a plugin that is not installed; the same for both arms.
        device: What the engine computes on.
        variables: Variables that every engine of this environment gets.
        overlaps: Whether an engine on a GPU imports beside one that starts before it, and waits at the plugin's gate.
    """

    name: str
    python: Path
    module: str = "sglang.launch_server"
    plugin_path: Path | None = None
    device: Device = "cuda"
    variables: Mapping[str, str] | None = None
    overlaps: bool = False


class EngineFiles(NamedTuple):
    """Where one engine writes: its log, its step log and its traces; and its start gate.

    ``gate`` is what it waits for before it takes memory; where there is nothing to wait for, a folder that is there.
    """

    log: Path
    steps: Path
    traces: Path
    gate: Path


class EngineCommand(NamedTuple):
    """What is executed: the whole argument list, and the variables that Equipoise sets on top of the inherited ones."""

    argv: tuple[str, ...]
    variables: dict[str, str]


class Start(NamedTuple):
    """What distinguishes one start from another of the same arm.

    Attributes:
        launch_id: Unique mark of this start.
        ports: Its ports.
        files: Its files.
        position: 0 for the first engine of the pair, 1 for the second.
        alone: Whether it shares its devices with no other engine.
        devices: Its GPUs, as ``CUDA_VISIBLE_DEVICES`` names them; empty leaves that to the service's own variable.
    """

    launch_id: str
    ports: EnginePorts
    files: EngineFiles
    position: int
    alone: bool = False
    devices: tuple[str, ...] = ()


def kernel_caches(folder: Path) -> dict[str, str]:
    """Variables that keep compiled kernels of all engines of a host in one folder, whatever becomes of their home."""
    names = {
        "TRITON_CACHE_DIR": "triton",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "FLASHINFER_WORKSPACE_BASE": "flashinfer",
        "CUDA_CACHE_PATH": "cuda",
    }
    return {name: str(folder / cache) for name, cache in names.items()}


def engine_command(environment: EngineEnvironment, arm: ArmSpec, model: ModelRef, start: Start) -> EngineCommand:
    """The command line and variables of one arm's engine.

    The arm's own flags come last, so that an explicit ``--mem-fraction-static`` wins over the default by position.
    """
    fraction = MEMORY_FRACTIONS[environment.device][0 if start.alone else start.position]
    memory = () if start.alone and environment.device == "cuda" else ("--mem-fraction-static", str(fraction))
    argv = (
        str(environment.python), "-m", environment.module,
        "--model-path", model.path,
        "--host", "127.0.0.1",
        "--port", str(start.ports.http),
        "--nccl-port", str(start.ports.nccl),
        *memory,
        *arm.flags,
    )  # fmt: skip
    variables = {
        **(environment.variables or {}),
        **arm.environment,
        "EQUIPOISE_ARM": arm.scratch,
        STEP_LOG: str(start.files.steps),
        "EQUIPOISE_LAUNCH_ID": start.launch_id,
        "PYTHONUNBUFFERED": "1",
    }
    if start.devices:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(start.devices)
    if environment.overlaps:
        variables["EQUIPOISE_START_GATE"] = str(start.files.gate)
    if environment.device == "cpu":
        variables["SGLANG_PLATFORM"] = PLATFORM_PLUGIN
    if environment.plugin_path is not None:
        variables["PYTHONPATH"] = str(environment.plugin_path)
    return EngineCommand(argv, variables)


def process_environment(command: EngineCommand, inherited: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of the process: the listed variables of the service, then the command's own."""
    return {name: inherited[name] for name in INHERITED if name in inherited} | command.variables
