"""Environments that differ: folders as ``venv`` makes them, with our packages and a pretended SGLang in them."""

import sys
import sysconfig
from datetime import UTC, datetime
from pathlib import Path

from equipoise_service.engines.registry import DESCRIPTION, RegisteredEnvironment


def environment(place: Path, **packages: str) -> Path:
    """An interpreter in whose environment these packages seem to be installed, beside all of ours."""
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    site = place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    (place / "bin").mkdir()
    python = place / "bin" / "python"
    python.symlink_to(base)
    (place / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    (site / "ours.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    for name, version in packages.items():
        about = site / f"{name}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return python


def register(environments: Path, name: str, python: Path, sglang: str) -> None:
    """Register an environment as `equipoise env add` does."""
    place = environments / name
    place.mkdir(parents=True)
    described = RegisteredEnvironment(
        name=name,
        python=python,
        sglang=sglang,
        source=f"sglang=={sglang}",
        lock_sha256="0" * 64,
        created_at=datetime(2026, 11, 30, tzinfo=UTC),
    )
    (place / DESCRIPTION).write_text(described.model_dump_json())
