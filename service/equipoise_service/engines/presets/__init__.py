"""Presets: named pairs of arms as files, shipped and an operator's own."""

from collections.abc import Sequence

from equipoise_evals.model import ArmPair
from equipoise_service.engines.environment import Device
from equipoise_service.engines.presets.load import load_presets, read_preset, shipped_presets
from equipoise_service.engines.presets.model import Preset

__all__ = ["Preset", "load_presets", "persistent_buffer", "read_preset", "shipped_presets"]


def persistent_buffer(device: Device, batch_sizes: Sequence[int] = (1, 16)) -> ArmPair:
    """The arms of the shipped preset ``persistent-buffer``."""
    return shipped_presets()["persistent-buffer"].arms(device, batch_sizes)
