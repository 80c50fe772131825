"""From what people wrote to what is run: the one place where defaults are filled in and requests are refused.

Merge order, the first that says something wins:

1. the request's field;
2. for arms: the preset's arm, changed by the request's ``baseline`` or ``candidate``;
3. for what depends on the machine: its device profile;
4. DESIGN's default, which ``CompareRequest`` carries.

Everything that can be refused is refused here, before any engine starts.
"""

from collections.abc import Callable, Sequence

from equipoise_evals.model import (
    ArmPair,
)
from equipoise_service.engines import persistent_buffer
from equipoise_service.engines.environment import Device

PRESETS: dict[str, Callable[[Device, Sequence[int]], ArmPair]] = {"persistent-buffer": persistent_buffer}
"""By name: from the device and the batch sizes to a pair of arms."""
