"""Engine environments that an operator added: each a folder with its lock and a description, by name.

A request names an environment; the path behind the name is only ever written by `equipoise env add`, on this machine.
"""

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path

from pydantic import ValidationError

from equipoise_evals.model import Frozen
from equipoise_service.engines.provision import ProvisionError, Say, ensure_engine_environment

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
DESCRIPTION, LOCK = "environment.json", "engine.lock"
PLATFORM = ("--python-version", f"{sys.version_info.major}.{sys.version_info.minor}",
            "--python-platform", "x86_64-manylinux_2_36")  # fmt: skip


class RegisteredEnvironment(Frozen):
    """One environment.

    Attributes:
        name: By which an arm asks for it.
        python: Its interpreter.
        sglang: The version of SGLang that is in it.
        source: What it was made from: ``sglang==VERSION``, or a folder.
        lock_sha256: Digest of the lock that it was installed from, hash by hash.
        created_at: When it was registered.
    """

    name: str
    python: Path
    sglang: str
    source: str
    lock_sha256: str
    created_at: datetime


Install = Callable[[Path, Path, Say], Path]
"""From the cache and a lock to an interpreter."""


def registered_environments(folder: Path) -> tuple[RegisteredEnvironment, ...]:
    """All of them by name, none where there is no folder.

    Raises:
        ProvisionError: A description cannot be read; names the file.
    """
    found = []
    for file in sorted(folder.glob(f"*/{DESCRIPTION}")):
        try:
            found.append(RegisteredEnvironment.model_validate_json(file.read_bytes()))
        except ValidationError as broken:
            raise ProvisionError(f"{file} describes no engine environment: {broken.errors()[0]['msg']}") from broken
    return tuple(found)


def add_environment(
    folder: Path,
    cache: Path,
    name: str,
    requirement: str | Path,
    say: Say,
    *,
    pins: Sequence[str] = (),
    like: Path | None = None,
    install: Install = ensure_engine_environment,
) -> RegisteredEnvironment:
    """Resolve, lock, build and register an engine environment.

    Args:
        folder: Where environments are registered.
        cache: Where they are built, keyed by their locks' digests.
        name: Its name.
        requirement: A version of SGLang, or a folder with its source.
        say: Hears what is being done.
        pins: ``PACKAGE==VERSION`` each, which win over what SGLang asks for.
        like: A lock whose versions are kept wherever SGLang allows, so that environments differ in little else.
        install: Builds an environment from a lock; tests pass their own.

    Raises:
        ProvisionError: The name is taken or none, or nothing can be resolved, built or found to be SGLang.
    """
    if not NAME.fullmatch(name) or name == "default":
        raise ProvisionError(f"{name!r} cannot name one: small letters, digits, '.', '_', '-', and not 'default'")
    place, partial = folder / name, folder / f".{name}.partial"
    if place.exists():
        raise ProvisionError(f"there is an environment {name!r} already; `equipoise env remove {name}` forgets it")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        lock = _locked(partial, cache, requirement, pins, like)
        python = install(cache, lock, say)
        described = RegisteredEnvironment(
            name=name,
            python=python,
            sglang=_sglang_in(python),
            source=f"sglang=={requirement}" if isinstance(requirement, str) else str(requirement),
            lock_sha256=hashlib.sha256(lock.read_bytes()).hexdigest(),
            created_at=datetime.now(UTC),
        )
        (partial / DESCRIPTION).write_text(described.model_dump_json(indent=1) + "\n")
        partial.rename(place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return described


def remove_environment(folder: Path, name: str) -> None:
    """Forget an environment; what was built stays in the cache, where others may use it.

    Raises:
        ProvisionError: There is none of this name.
    """
    if name not in {one.name for one in registered_environments(folder)}:
        raise ProvisionError(f"no environment is called {name!r}")
    shutil.rmtree(folder / name)


def _locked(partial: Path, cache: Path, requirement: str | Path, pins: Sequence[str], like: Path | None) -> Path:
    """Every package with its hashes, resolved once; wheels only, so that nothing is compiled at an install.

    A wheel that is built from a folder goes into the cache, where the lock finds it for as long as the lock is kept.
    """
    asked, overrides, lock = partial / "engine.in", partial / "overrides.txt", partial / LOCK
    if isinstance(requirement, Path):
        asked.write_text(f"sglang @ {_wheel(partial, cache, requirement).as_uri()}\n")
    else:
        asked.write_text(f"sglang=={requirement}\n")
    overrides.write_text("".join(f"{pin}\n" for pin in pins))
    if like is not None:
        shutil.copyfile(like, lock)  # uv keeps what an existing lock has, as far as it can
    _uv(
        "pip", "compile", "-q", "--only-binary", ":all:", "--generate-hashes", "--no-header", "--no-annotate",
        *PLATFORM, "--override", str(overrides), str(asked), "-o", str(lock),
    )  # fmt: skip
    return lock


def _wheel(partial: Path, cache: Path, source: Path) -> Path:
    """The wheel of a folder with source, in the cache under its own digest."""
    _uv("build", "--wheel", "-q", "-o", str(partial / "wheel"), str(_source(source)))
    built = next((partial / "wheel").glob("*.whl"))
    kept = cache.expanduser().resolve() / "wheels" / hashlib.sha256(built.read_bytes()).hexdigest()[:16] / built.name
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(built, kept)
    return kept


def _source(folder: Path) -> Path:
    """The Python project in a folder: the folder itself, or ``python`` in it, as in SGLang's repository."""
    for place in (folder.expanduser() / "python", folder.expanduser()):
        if (place / "pyproject.toml").is_file():
            return place.resolve()
    raise ProvisionError(f"{folder} holds no pyproject.toml, neither itself nor in python/")


def _sglang_in(python: Path) -> str:
    sites = [str(site) for site in python.parent.parent.glob("lib/python3*/site-packages")]
    versions = [found.version for found in distributions(name="sglang", path=sites)]
    if not versions:
        raise ProvisionError(f"the environment of {python} holds no SGLang")
    return versions[0]


def _uv(*arguments: str) -> None:
    """Run uv, which the service depends on, from beside our own interpreter."""
    command = [str(Path(sys.executable).with_name("uv")), *arguments]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        said = "\n".join((result.stdout + result.stderr).strip().splitlines()[-12:])
        raise ProvisionError(f"uv {' '.join(arguments[:2])} ended with {result.returncode}:\n{said}")
