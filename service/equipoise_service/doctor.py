"""What stands between this machine and a comparison: each finding with its remedy. It changes nothing."""

import json
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil
from sqlalchemy.exc import SQLAlchemyError

from equipoise_service.doctor_gpu import gpu_findings
from equipoise_service.engine_processes import engine_processes
from equipoise_service.engines.ports import HIGHEST, LOWEST, is_free, listeners
from equipoise_service.errors import EquipoiseError, StorageUnavailable
from equipoise_service.findings import Finding
from equipoise_service.folder import holder_of
from equipoise_service.machine import Machine
from equipoise_service.questions import HUB, load_questions, source_of
from equipoise_service.settings import Settings
from equipoise_service.store import Store

GIB = 1 << 30
DATA_GIB, ENGINE_GIB = 1, 12
"""Free disk needed for records and logs, and for an engine environment that is still to be built."""
ENGINE_MEMORY_GIB = 4
"""Of one CPU engine with the embedded model (DESIGN, facts about SGLang on a CPU)."""
PROBE_LIMIT_S = 30.0
OWN = ("equipoise-service", "equipoise-evals", "fastapi", "sqlalchemy", "pydantic", "numpy", "scipy")
ENGINE = ("sglang", "torch", "flashinfer-python", "equipoise-backends")


def findings(machine: Machine) -> Iterator[Finding]:
    """Everything looked at, in the order in which it matters."""
    yield _versions()
    yield _device(machine)
    if machine.device == "cuda":
        yield from gpu_findings()
    yield _engine(machine)
    yield _questions(machine)
    yield from _disk(machine)
    yield _memory(machine)
    yield _service(machine)
    yield _privacy(machine)
    yield from _access(machine)
    yield _port(machine)
    yield _engine_ports()
    yield from _leftovers(machine)


def _versions() -> Finding:
    own = ", ".join(f"{name} {version(name)}" for name in OWN)
    return Finding(name="versions", state="ok", detail=f"Python {platform.python_version()}, {own}")


def _device(machine: Machine) -> Finding:
    can = {
        "cuda": "the TRTLLM MHA arms on a CUDA device",
        "cpu": "the CPU reference arms of real SGLang engines",
        "simulated": "simulated engines only: no result of theirs says anything about an engine",
    }
    host = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores"
    return Finding(name="device", state="ok", detail=f"{machine.device}: can run {can[machine.device]}; {host}")


def _engine(machine: Machine) -> Finding:
    name = "engine environment"
    try:
        environment = machine.environments()["default"]
    except EquipoiseError as missing:
        return Finding(
            name=name, state="problem", detail=missing.detail, remedy="run `make setup`, or set the variable"
        )
    if machine.device == "simulated":
        return Finding(name=name, state="ok", detail=f"{environment.python} -m {environment.module}")
    found = _installed(environment.python, environment.plugin_path)
    absent = [package for package in ENGINE if found.get(package) is None and package != "flashinfer-python"]
    detail = f"{environment.python}: " + ", ".join(f"{key} {value or 'missing'}" for key, value in found.items())
    if absent:
        remedy = f"install {', '.join(absent)} there, or run `make setup`"
        return Finding(name=name, state="problem", detail=detail, remedy=remedy)
    return Finding(name=name, state="ok", detail=detail)


def _installed(python: Path, plugin_path: Path | None) -> dict[str, str | None]:
    """Versions in another environment, asked of its own interpreter; nothing of it is imported here or there."""
    script = (
        "import importlib.metadata as m, json, sys\n"
        "def v(n):\n"
        "    try: return m.version(n)\n"
        "    except m.PackageNotFoundError: return None\n"
        "print(json.dumps({n: v(n) for n in sys.argv[1:]}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(plugin_path)} if plugin_path else dict(os.environ)
    try:
        answer = subprocess.run(
            [str(python), "-c", script, *ENGINE],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
            timeout=PROBE_LIMIT_S,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return dict.fromkeys(ENGINE)
    found: dict[str, str | None] = json.loads(answer.stdout)
    return found


def _questions(machine: Machine) -> Finding:
    if source_of(machine) == HUB:
        return Finding(
            name="questions", state="ok", detail="openai/gsm8k from the hub, fetched with the first comparison"
        )
    try:
        questions = load_questions(machine)
    except EquipoiseError as refused:
        return Finding(
            name="questions", state="problem", detail=refused.detail, remedy="mend the files, or unset EQUIPOISE_GSM8K"
        )
    return Finding(name="questions", state="ok", detail=f"{questions.name}: {len(questions.test)} questions")


def _disk(machine: Machine) -> Iterator[Finding]:
    built = machine.settings.engine_python is not None or machine.device == "simulated"
    for name, folder, needed_gib, variable in (
        ("disk, data", machine.settings.data, DATA_GIB, "EQUIPOISE_DATA"),
        ("disk, cache", machine.settings.cache, DATA_GIB if built else ENGINE_GIB, "EQUIPOISE_CACHE"),
    ):
        free_gib = shutil.disk_usage(_existing(folder)).free / GIB
        enough = free_gib >= needed_gib
        yield Finding(
            name=name,
            state="ok" if enough else "problem",
            detail=f"{free_gib:.1f} GiB free at {folder}, {needed_gib} needed",
            remedy="" if enough else f"free some space, or set {variable} to a folder on another disk",
        )


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists: that is where its files would go."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())


def _memory(machine: Machine) -> Finding:
    free_gib = psutil.virtual_memory().available / GIB
    detail = f"{free_gib:.1f} GiB available"
    if machine.device == "cpu" and free_gib < 2 * ENGINE_MEMORY_GIB:
        remedy = f"two CPU engines take about {2 * ENGINE_MEMORY_GIB} GiB; end other programs"
        return Finding(name="memory", state="warning", detail=detail, remedy=remedy)
    return Finding(name="memory", state="ok", detail=detail)


def _service(machine: Machine) -> Finding:
    holder = holder_of(machine.settings.data)
    if holder is None:
        return Finding(name="service", state="ok", detail=f"none runs in {machine.settings.data}")
    return Finding(name="service", state="ok", detail=f"process {holder.pid} at {holder.url or 'a private address'}")


def _privacy(machine: Machine) -> Finding:
    """The folder holds everybody's results, and the secrets with which webhooks are signed."""
    folder = machine.settings.data
    name = "data folder's rights"
    if not folder.is_dir():
        return Finding(name=name, state="ok", detail="not made yet; it will be its owner's alone")
    mode = folder.stat().st_mode & 0o777
    if mode & 0o077:
        detail = f"{folder} is open to others ({mode:03o})"
        return Finding(name=name, state="warning", detail=detail, remedy=f"chmod 700 {shlex.quote(str(folder))}")
    return Finding(name=name, state="ok", detail=f"its owner's alone ({mode:03o})")


def _access(machine: Machine) -> Iterator[Finding]:
    """Whether those who should can enter, and whether webhooks arrive."""
    settings = machine.settings
    if not settings.asks_for_tokens:
        yield Finding(name="tokens", state="ok", detail=f"not asked for at {settings.host}, this machine's own address")
    if settings.database_url is None and not (settings.data / "equipoise.db").is_file():
        yield from _tokens(settings, 0)
        return
    store = Store.open(settings.url_of_database, migrated=False)
    try:
        now = datetime.now(UTC)
        yield from _tokens(settings, sum(token.valid_at(now) for token in store.tokens.every()))
        yield from _webhooks(store)
    except (StorageUnavailable, SQLAlchemyError) as error:
        remedy = "start the service once, which brings an older database up to date; its log says what else is wrong"
        detail = f"cannot be read ({type(error).__name__})"
        yield Finding(name="database", state="warning", detail=detail, remedy=remedy)
    finally:
        store.database.close()


def _tokens(settings: Settings, valid: int) -> Iterator[Finding]:
    if settings.asks_for_tokens and valid == 0:
        remedy = "equipoise token create NAME --scope admin"
        yield Finding(name="tokens", state="problem", detail="asked for, and none is valid", remedy=remedy)
    elif settings.asks_for_tokens:
        yield Finding(name="tokens", state="ok", detail=f"asked for; {valid} valid")


def _webhooks(store: Store) -> Iterator[Finding]:
    for webhook in store.webhooks.every():
        last = store.webhooks.last_delivery(webhook.id)
        name = f"webhook {webhook.id}"
        if last is None or last.attempts == 0 or last.delivered_at is not None:
            yield Finding(name=name, state="ok", detail=f"{webhook.url}: nothing is overdue")
            continue
        remedy = f"mend the receiver; `equipoise webhook remove {webhook.id}` ends it"
        detail = f"{webhook.url}: failed {last.attempts} times, last with {last.last_error}"
        yield Finding(name=name, state="warning", detail=detail, remedy=remedy)


def _port(machine: Machine) -> Finding:
    port = machine.settings.port
    name = f"port {port}"
    if port == 0 or is_free(port):
        return Finding(name=name, state="ok", detail="free")
    holder = holder_of(machine.settings.data)
    owners = listeners(port)
    if holder is not None and holder.pid in owners:
        return Finding(name=name, state="ok", detail="used by our own service")
    owner = ", ".join("another user's process" if pid is None else f"process {pid}" for pid in owners)
    remedy = "end that program, or set EQUIPOISE_PORT"
    return Finding(name=name, state="problem", detail=f"used by {owner or 'an unknown process'}", remedy=remedy)


def _engine_ports() -> Finding:
    free = sum(is_free(port) for port in range(LOWEST, LOWEST + 100))
    name = f"engine ports {LOWEST} to {HIGHEST}"
    if free == 0:
        return Finding(name=name, state="problem", detail="the first 100 are all in use", remedy="end what uses them")
    return Finding(name=name, state="ok", detail=f"{free} of the first 100 are free")


def _leftovers(machine: Machine) -> Iterator[Finding]:
    """Engine processes, told apart by the step log that each was told to write."""
    mine: list[int] = []
    others: list[int] = []
    for process, step_log in engine_processes():
        (mine if step_log.is_relative_to(machine.settings.data) else others).append(process.pid)
    name = "engine processes"
    if mine and holder_of(machine.settings.data) is None:
        pids = " ".join(map(str, sorted(mine)))
        remedy = f"no service of this data folder runs, so end them: kill {pids}"
        yield Finding(name=name, state="warning", detail=f"left over: {pids}", remedy=remedy)
    else:
        yield Finding(name=name, state="ok", detail=f"{len(mine)} of this data folder's service")
    if others:
        remedy = "they share this machine's cores and memory; a comparison beside them measures both"
        detail = f"{len(others)} of another data folder's service"
        yield Finding(name="other engine processes", state="warning", detail=detail, remedy=remedy)
