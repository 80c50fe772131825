"""What importing the service loads. Each in a process of its own, since this one has loaded everything already."""

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "sglang", "flashinfer", "transformers", "vllm")
SLOW = ("scipy", "sqlalchemy", "fastapi", "uvicorn", "datasets", "huggingface_hub", "numpy", "alembic")


def loaded_after(statement: str) -> set[str]:
    script = f"import json, sys\n{statement}\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "module",
    ["equipoise_service", "equipoise_service.server", "equipoise_service.doctor", "equipoise_service.cli.comparing"],
)
def test_the_service_loads_neither_torch_nor_sglang(module: str) -> None:
    assert loaded_after(f"import {module}").isdisjoint(HEAVY)


def test_help_loads_nothing_slow() -> None:
    # What `equipoise --help` imports; the second that it may take is measured by hand, since a loaded machine lies.
    loaded = loaded_after("from equipoise_service.cli import main\nassert main(['--help']) == 0")
    assert loaded.isdisjoint(HEAVY + SLOW)
    assert "typer" in loaded
