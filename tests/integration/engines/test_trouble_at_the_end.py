"""Whatever fails while engines are ended, both end, and both ends are recorded."""

import asyncio
from pathlib import Path

import pytest

from equipoise_evals.model.records import StopRecord
from equipoise_evals.ports import EngineFault
from equipoise_service.engines import logs
from equipoise_service.engines.device import DeviceUnreachable, DeviceUse
from equipoise_service.engines.launcher import files_of
from tests.fakes.launching import ListRecorder, latency_plan
from tests.integration.engines.conftest import LauncherOf


class LostDevice:
    """A GPU that falls off its bus once engines run."""

    def __init__(self) -> None:
        self.lost = False

    def use(self) -> DeviceUse:
        """Nothing, or that nobody can say."""
        if self.lost:
            raise DeviceUnreachable("GPU is lost")
        return DeviceUse(0, {})


def stops(recorder: ListRecorder) -> dict[str, tuple[str, ...]]:
    """What each arm left behind."""
    return {one.role: one.leftovers for one in recorder.kept if isinstance(one, StopRecord)}


async def test_a_device_that_cannot_be_asked_keeps_no_engine_alive(
    launcher_of: LauncherOf, recorder: ListRecorder
) -> None:
    launcher, device = launcher_of(), LostDevice()
    launcher._device = device
    async with launcher.launch_pair(latency_plan(), 1, ("A", "B")):
        device.lost = True
    unknown = ("nobody can say what ended engines hold of the device: GPU is lost",)
    assert stops(recorder) == {"A": unknown, "B": unknown}
    with pytest.raises(EngineFault, match="the device cannot be asked what it is used for: GPU is lost"):
        async with launcher.launch_pair(latency_plan(), 2, ("A", "B")):
            pytest.fail("nobody knows whether the device is free")
    device.lost = False
    async with launcher.launch_pair(latency_plan(), 2, ("A", "B")):
        pass  # it can be asked again, and nothing is held


async def test_a_log_that_cannot_be_written_is_told_and_the_other_engine_waited_for(
    launcher_of: LauncherOf, recorder: ListRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = logs.remove_secrets

    def full(log: Path, secrets: tuple[str, ...]) -> None:
        if log.parent.name.startswith(f"{files_of(1)}A-"):
            raise OSError(28, "No space left on device")
        clean(log, secrets)

    monkeypatch.setattr(logs, "remove_secrets", full)
    async with launcher_of().launch_pair(latency_plan(), 1, ("A", "B")):
        pass
    left = stops(recorder)
    assert left["B"] == ()
    assert [line.endswith("engine.log: No space left on device") for line in left["A"]] == [True]


async def test_an_end_that_fails_is_raised_once_the_other_engine_is_gone(
    launcher_of: LauncherOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fixture asserts that no process is left when the pair has ended."""
    launcher = launcher_of(failures=[{"kind": "ignores_sigterm", "role": "B"}])
    end = launcher._stop

    async def broken(engine: object) -> object:
        stopped = await end(engine)  # type: ignore[arg-type]
        if getattr(engine, "role", None) == "A":
            raise RuntimeError("a defect")
        return stopped

    monkeypatch.setattr(launcher, "_stop", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        async with launcher.launch_pair(latency_plan(), 1, ("A", "B")):
            await asyncio.sleep(0)
