"""A service over fake engines on a free port of the loopback, and a client for it."""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from equipoise_evals.model import Plan
from equipoise_evals.ports import Launcher, Recorder
from equipoise_service.server import bind, running_server
from equipoise_service.settings import Settings
from tests.integration.service.command import Command, command_in
from tests.integration.service.fake import FakeLauncher, Hook, nothing
from tests.integration.service.served import PLAIN

LATENCY_ONLY: dict[str, Any] = {"model": "m", "parts": ["latency"], "pairs_max": 3, "quads": 1, "steps_per_block": 16}


@dataclass
class Running:
    """A running service, its client and the launchers that it made."""

    client: httpx.AsyncClient
    launchers: list[FakeLauncher]

    async def submit(self, headers: dict[str, str] | None = None, **fields: object) -> str:
        """Submit a comparison of the latency half and return its id."""
        answer = await self.client.post("/compare", json=LATENCY_ONLY | fields, headers=headers)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    async def view(self, comparison_id: str) -> dict[str, Any]:
        """One comparison."""
        answer = await self.client.get(f"/comparisons/{comparison_id}")
        assert answer.status_code == 200, answer.text
        view: dict[str, Any] = answer.json()
        return view

    async def events(self, comparison_id: str, after: int = 0, most: int | None = None) -> list[tuple[int, str, str]]:
        """Events until the stream ends, or the first ``most`` of them."""
        found: list[tuple[int, str, str]] = []
        headers = {"Last-Event-ID": str(after)}
        async with self.client.stream("GET", f"/comparisons/{comparison_id}/events", headers=headers) as stream:
            fields: dict[str, str] = {}
            async for line in stream.aiter_lines():
                name, _, value = line.partition(": ")
                if line:
                    fields[name] = value
                elif "data" in fields:
                    found.append((int(fields["id"]), fields["event"], fields["data"]))
                    fields = {}
                if most is not None and len(found) == most:
                    break
        return found

    async def ended(self, comparison_id: str) -> dict[str, Any]:
        """The comparison once it has ended."""
        await self.events(comparison_id)
        return await self.view(comparison_id)


Start = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data=tmp_path / "data", cache=tmp_path / "cache", device="simulated")


@pytest.fixture
def start(settings: Settings) -> Start:
    """Starts a service over fake engines; may be called again after it ended, for a restart."""
    return lambda hook=nothing, private=False: running_over(settings, hook, private=private)


@contextlib.asynccontextmanager
async def running_over(settings: Settings, hook: Hook = nothing, *, private: bool = False) -> AsyncIterator[Running]:
    """A service over fake engines, and a client for it; a private one is what ``equipoise compare`` runs."""
    launchers: list[FakeLauncher] = []

    def launcher(comparison_id: str, plan: Plan, recorder: Recorder) -> Launcher:
        launchers.append(FakeLauncher(recorder, hook))
        return launchers[-1]

    listening = bind("127.0.0.1", 0)
    async with (
        running_server(settings, listening, None if private else listening.url, launcher),
        httpx.AsyncClient(base_url=listening.url, timeout=300, trust_env=False, verify=PLAIN) as client,
    ):
        yield Running(client, launchers)


@pytest.fixture
def equipoise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command over a data folder of this test's own, in its folder: a gate leaves documents where it runs."""
    monkeypatch.chdir(tmp_path)
    return command_in(tmp_path, monkeypatch)
