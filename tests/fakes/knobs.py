"""What a simulated engine can be told: the JSON in ``EQUIPOISE_SIM``, closed and typed. Nothing acts here."""

import os
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

PRETENDED_SGLANG = "0.5.23+simulated"
FailureKind = Literal[
    "crash_at_start",  # exits with status 3 before it listens
    "oom_at_capture",  # logs what SGLang logs when graph capture runs out of memory, and exits
    "unknown_flag",  # exits as argparse does
    "no_plugin",  # logs what SGLang logs on a CPU where the plugin is missing, and exits
    "address_in_use",  # logs what uvicorn logs when its port is taken, and exits
    "hang_at_start",  # never listens, logs nothing
    "logs_for_ever",  # never listens, but logs a line every 50 ms
    "no_generation",  # health and info routes answer, generation never does
    "wrong_model",  # serves another model than it was told
    "wrong_arm",  # attests another arm
    "no_attestation",  # as if the plugin were missing
    "dies_in_gsm8k",  # SIGKILLs itself after ``after`` text answers
    "dies_in_block",  # SIGKILLs itself after ``after`` decode steps of token-id prompts
    "garbage_stream",  # streams bytes that are no JSON
    "truncated_stream",  # ends streams without their end mark
    "dirty_after_abort",  # the guard finds dirty counters once a request was aborted
    "refuses_long",  # refuses prompts of more than ``after`` tokens, in the stream, as SGLang does
    "errors",  # answers 500 for ``share`` of the text requests
    "slow",  # steps last ``factor`` times as long
    "late_profile",  # begins a trace only when nothing decodes any more
    "ignores_sigterm",
    "orphan",  # leaves a detached grandchild that holds nothing but itself
    "chatty",  # logs a megabyte
    "keeps_memory",  # its device memory stays when it has ended
]


class Knob(BaseModel):
    """A closed value."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Failure(Knob):
    """One way to misbehave, for all engines or for those of one role and pair."""

    kind: FailureKind
    role: Literal["A", "B"] | None = None
    pair: int | None = None
    after: int = 3
    share: float = 0.03
    factor: float = 10.0


class TwoLevels(Knob):
    """Steps that jump between two levels and stay there for a while."""

    share: float = Field(ge=0, le=1)
    gap: float
    dwell_steps: float = Field(ge=1)


class WarmUp(Knob):
    """The first steps of a launch last longer, by ``excess`` that decays over ``steps``."""

    steps: float = Field(gt=0)
    excess: float


class Knobs(Knob):
    """The world of a simulated comparison. Relative quantities are shares of the step time.

    Attributes:
        seed: Everything follows from it, the role and the pair.
        step_us: Step time by batch size, linear in between.
        context_slope: Relative growth of the step per context token.
        effect: Relative effect on the step of a scratch policy, or of ``sglang VERSION``, by name.
        prefill_us: Time of a prefill of 1,000 tokens.
        prefill_effect: Relative effect on prefills, by the same names.
        launch_sd: SD of the launches' log factors.
        step_cv: SD of the steps' log factors.
        ar1: Correlation of neighbouring steps.
        drift_per_step: Relative growth per step of a launch.
        host_us: What the period has beyond busy.
        time_scale: Real seconds per pretended second; 0 runs as fast as it can.
        accuracy: Share of right answers by scratch policy.
        flip_rate: Share of questions that a scratch policy answers in other words, right or wrong anew.
        noise_flip_rate: The same, drawn anew in each launch.
        treatment: Whether the policies differ in their fills at all.
        layers: Attention layers, for the trace.
        questions: JSONL files with ``question`` and ``answer`` from which golds are known.
        device: Folder of the simulated device on which the engine takes memory; see ``device.py``.
    """

    seed: int = 1
    step_us: dict[int, float] = Field(default_factory=lambda: {1: 1000.0, 16: 1300.0})
    context_slope: float = 0.00005
    effect: dict[str, float] = Field(default_factory=dict)
    prefill_us: float = 20_000.0
    prefill_effect: dict[str, float] = Field(default_factory=dict)
    launch_sd: float = 0.0003
    step_cv: float = 0.005
    ar1: float = 0.2
    drift_per_step: float = 0.0
    two_levels: TwoLevels | None = None
    warm_up: WarmUp | None = None
    host_us: float = 60.0
    time_scale: float = 0.0
    accuracy: dict[str, float] | float = 0.6
    flip_rate: dict[str, float] = Field(default_factory=dict)
    noise_flip_rate: float = 0.0
    treatment: bool = True
    layers: int = 30
    questions: tuple[Path, ...] = ()
    failures: tuple[Failure, ...] = ()
    device: Path | None = None


class Identity(BaseModel):
    """Which launch this engine is, out of the variables it was started with."""

    arm: str
    launch_id: str
    step_log: Path
    sglang: str
    clocks_prefills: bool
    role: Literal["A", "B"]
    pair: int
    delay_us: int = 0

    @classmethod
    def from_environment(cls) -> "Identity":
        """Role and pair are read off the folder that the launcher made, so that a seed gives the same run twice."""
        step_log = Path(os.environ["EQUIPOISE_STEP_LOG"])
        place = re.match(r"pair-(\d+)-([AB])\b", step_log.parent.name)
        return cls(
            arm=os.environ["EQUIPOISE_ARM"],
            launch_id=os.environ["EQUIPOISE_LAUNCH_ID"],
            step_log=step_log,
            sglang=installed_sglang(),
            clocks_prefills=os.environ.get("EQUIPOISE_STEP_CLOCK_PREFILL") == "1",
            role=place[2] if place else "A",
            pair=int(place[1]) if place else 1,
            delay_us=int(os.environ.get("EQUIPOISE_TEST_DELAY_US", "0")),
        )

    def suffers(self, failure: Failure) -> bool:
        """Whether a failure is meant for this launch."""
        return failure.role in (None, self.role) and failure.pair in (None, self.pair)


def installed_sglang() -> str:
    """The version of SGLang that this environment says it has; a pretended one where there is none."""
    try:
        return version("sglang")
    except PackageNotFoundError:
        return PRETENDED_SGLANG


def from_environment() -> Knobs:
    """The knobs in ``EQUIPOISE_SIM``; all defaults where it is not set."""
    return Knobs.model_validate_json(os.environ.get("EQUIPOISE_SIM", "{}"))
