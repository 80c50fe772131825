"""A simulated device: a folder in which each engine notes the memory it takes, read as a driver would tell of it.

A note counts while its process lives, as a driver frees what a dead process held; one that ends in ``.kept`` stays, as
when a driver does not.
"""

from pathlib import Path

import psutil

from equipoise_service.engines.device import DeviceUse

DRIVER_BYTES = 500 * 1024 * 1024


class SimulatedDevice:
    """Satisfies ``equipoise_service.engines.device.Device``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def use(self) -> DeviceUse:
        """What the notes of living processes say, and those that stay."""
        notes = list(self.folder.glob("*"))
        held = {int(note.stem): int(note.read_text()) for note in notes if note.suffix or _lives(int(note.name))}
        return DeviceUse(DRIVER_BYTES + sum(held.values()), held)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
