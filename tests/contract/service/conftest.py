"""The service of the integration tests, for the tests of its contract."""

from collections.abc import AsyncIterator

import pytest

from equipoise_service.settings import Settings
from tests.integration.service.conftest import Running, running_over, settings, start

__all__ = ["settings", "shared", "start"]


@pytest.fixture(scope="session")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """One service for all tests that submit nothing: whatever they ask for is refused."""
    folder = tmp_path_factory.mktemp("shared")
    async with running_over(Settings(data=folder / "data", cache=folder / "cache", device="simulated")) as running:
        yield running
        assert (await running.client.get("/comparisons")).json()["items"] == []
        assert running.launchers == []
