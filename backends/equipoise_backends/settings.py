"""What the engine's environment says to the plugin, parsed once at plugin start.

Owns the names ``EQUIPOISE_ARM``, ``EQUIPOISE_STEP_LOG`` and ``EQUIPOISE_LAUNCH_ID``. Nothing else in the plugin reads
the environment, apart from the platform's ``SGLANG_PLATFORM``, which SGLang itself defines.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


class Arm(StrEnum):
    """Scratch policy of an engine. DESIGN section 1 tells where the three come from."""

    BASELINE = "baseline"
    PERSISTENT = "persistent"
    UPSTREAM = "upstream"


class SettingsError(Exception):
    """A setting is missing or has a value that the plugin does not know; the message names the variable."""


class Settings(NamedTuple):
    """The plugin's settings.

    Attributes:
        arm: The scratch policy.
        step_log: File that gets the steps, appended; None when none was asked for (then no step is kept).
        launch_id: Whoever started the engine recognises its own engine by it; None when none was given.
    """

    arm: Arm
    step_log: Path | None
    launch_id: str | None

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Settings":
        """Parse the environment.

        Raises:
            SettingsError: ``EQUIPOISE_ARM`` is missing or unknown, or ``EQUIPOISE_STEP_LOG`` lies in no folder.
        """
        known = ", ".join(Arm)
        name = env.get("EQUIPOISE_ARM")
        if name is None:
            raise SettingsError(f"EQUIPOISE_ARM is not set; it must be one of {known}")
        if name not in list(Arm):
            raise SettingsError(f"EQUIPOISE_ARM={name!r} is unknown; it must be one of {known}")
        log = env.get("EQUIPOISE_STEP_LOG")
        step_log = Path(log) if log else None
        if step_log is not None and not step_log.parent.is_dir():
            raise SettingsError(f"EQUIPOISE_STEP_LOG={log!r}: the folder {step_log.parent} does not exist")
        return cls(Arm(name), step_log, env.get("EQUIPOISE_LAUNCH_ID") or None)
