"""What the engine's environment says to the plugin, parsed once at plugin start.

Owns the names ``EQUIPOISE_ARM``, ``EQUIPOISE_STEP_LOG``, ``EQUIPOISE_LAUNCH_ID``, ``EQUIPOISE_STEP_CLOCK_EVERY``,
``EQUIPOISE_STEP_CLOCK_ALTERNATING``, ``EQUIPOISE_STEP_CLOCK_PREFILL``, ``EQUIPOISE_TEST_DELAY_US``,
``EQUIPOISE_START_GATE`` and
``EQUIPOISE_UNCHECKED_SGLANG``. Nothing else in the plugin reads the environment, apart from the platform's
``SGLANG_PLATFORM``, which SGLang itself defines.
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
        clock_every: The step clock samples every so many decode steps; 1 unless its own cost is being measured.
        clock_alternating: Whether it changes between every step and every ``clock_every``-th, 32 steps each.
        test_delay_us: Time that every decode step is made longer by, for tests of the verdict only; 0 means none.
        start_gate: File or folder whose existence the scheduler waits for before it allocates; None waits for nothing.
        unchecked_sglang: Whether a version of SGLang that the seam was never checked against may run.
        clock_prefill: Whether the step clock times prefills too.
    """

    arm: Arm
    step_log: Path | None
    launch_id: str | None
    clock_every: int = 1
    clock_alternating: bool = False
    test_delay_us: int = 0
    unchecked_sglang: bool = False
    start_gate: Path | None = None
    clock_prefill: bool = False

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Settings":
        """Parse the environment.

        Raises:
            SettingsError: ``EQUIPOISE_ARM`` is missing or unknown, ``EQUIPOISE_STEP_LOG`` lies in no folder, or one of
                the others has no value of its kind.
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
        return cls(
            Arm(name),
            step_log,
            env.get("EQUIPOISE_LAUNCH_ID") or None,
            _whole_number(env, "EQUIPOISE_STEP_CLOCK_EVERY", default=1, least=1),
            _flag(env, "EQUIPOISE_STEP_CLOCK_ALTERNATING"),
            _whole_number(env, "EQUIPOISE_TEST_DELAY_US", default=0, least=0),
            _flag(env, "EQUIPOISE_UNCHECKED_SGLANG"),
            Path(gate) if (gate := env.get("EQUIPOISE_START_GATE")) else None,
            _flag(env, "EQUIPOISE_STEP_CLOCK_PREFILL"),
        )


def _whole_number(env: Mapping[str, str], name: str, *, default: int, least: int) -> int:
    text = env.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise SettingsError(f"{name}={text!r} must be a whole number of at least {least}")
    return int(text)


def _flag(env: Mapping[str, str], name: str) -> bool:
    text = env.get(name, "0")
    if text not in ("0", "1"):
        raise SettingsError(f"{name}={text!r} must be 0 or 1")
    return text == "1"
