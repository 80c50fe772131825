"""Builds what engines need and nobody commits: the engine environment and the plugin's folder, both in the cache.

Each is keyed by a digest of what it is made from, built under a file lock beside its place and renamed when complete,
so that clones share it and a half-built one is never used. Nothing here starts an engine.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock

Say = Callable[[str], None]
"""Hears what is being built, one line at a time."""


class ProvisionError(RuntimeError):
    """An environment or the plugin could not be built; the message ends with what the installer said last."""


def find_backends() -> Path | None:
    """The plugin's source with its lock, in a checkout; None where the service was installed alone."""
    backends = Path(__file__).resolve().parents[3] / "backends"
    return backends if (backends / "engine.lock").is_file() else None


def engine_environment_path(cache: Path, lock: Path) -> Path:
    """Where the environment made from ``lock`` lives, whether or not it is there yet."""
    return cache / "engines" / f"{_digest([lock])}-py{sys.version_info.major}.{sys.version_info.minor}"


def ensure_engine_environment(cache: Path, lock: Path, say: Say) -> Path:
    """The interpreter of the engine environment of ``lock``; builds the environment if the cache has none.

    pip installs it, by hash and without resolving: the lock was resolved once.
    """
    place = engine_environment_path(cache, lock)

    def build(partial: Path) -> None:
        say(f"building the engine environment once (about 5 minutes, 11 GB): {place}")
        _run([sys.executable, "-m", "venv", str(partial)])
        python = str(partial / "bin" / "python")
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        _run([*pip, "install", "-q", "--no-deps", "--no-compile", "--require-hashes", "-r", str(lock)])

    _ensure(place, build)
    return place / "bin" / "python"


def plugin_path(cache: Path, backends: Path) -> Path:
    """Where the plugin built from this source lives, whether or not it is there yet."""
    sources = sorted([backends / "pyproject.toml", *(backends / "equipoise_backends").rglob("*.py")])
    return cache / "plugins" / _digest(sources)


def ensure_plugin(cache: Path, backends: Path, say: Say) -> Path:
    """A folder for ``PYTHONPATH`` that holds the plugin with its entry points; built from ``backends`` if needed.

    It is never installed into the engine environment, which is shared by clones whose plugins differ.
    """
    place = plugin_path(cache, backends)

    def build(partial: Path) -> None:
        say(f"building the plugin: {place}")
        _run([_uv(), "pip", "install", "-q", "--no-deps", "--no-cache", "--target", str(partial), str(backends)])

    _ensure(place, build)
    return place


def _ensure(place: Path, build: Callable[[Path], None]) -> None:
    if place.is_dir():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(place.with_name(f"{place.name}.lock")):
        if place.is_dir():
            return
        partial = place.with_name(f"{place.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        build(partial)
        partial.rename(place)


def _digest(files: Sequence[Path]) -> str:
    """First 16 hex digits of SHA-256 over names and contents."""
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _uv() -> str:
    """Uv beside our own interpreter, where the service's dependency put it."""
    return str(Path(sys.executable).with_name("uv"))


def _run(command: Sequence[str]) -> None:
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        said = "\n".join((result.stdout + result.stderr).strip().splitlines()[-12:])
        raise ProvisionError(f"{' '.join(command[:4])} … ended with {result.returncode}:\n{said}")
