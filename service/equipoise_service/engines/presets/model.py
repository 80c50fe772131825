"""What a preset file says. The descriptions of the fields are their documentation in ``docs/presets.md``."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from equipoise_evals.model import ArmPair, ArmSpec, Evidence, Frozen, Part, Phase, ScratchPolicy
from equipoise_service.engines.environment import Device

BATCH_SIZES, RUNNING = PLACEHOLDERS = "{batch_sizes}", "{running}"
LEAST_RUNNING = 16


def _text(value: object) -> object:
    """YAML reads ``64`` as a number; on a command line it is a word."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Word = Annotated[str, BeforeValidator(_text), Field(min_length=1, max_length=1_000, pattern=r"^[^\x00]*$")]
Variables = dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], Word]
Ask = Literal["candidate.engine", "candidate.flags", "candidate.environment", "baseline.flags"]


class Options(Frozen):
    """What an engine is started with on one kind of device."""

    flags: tuple[Word, ...] = Field(
        default=(),
        description="SGLang's flags, each flag and each value a word of its own, out of the list of what a request may "
        f"set. `{BATCH_SIZES}` stands for the timed batch sizes in rising order, `{RUNNING}` for the largest of them, "
        f"at least {LEAST_RUNNING}.",
    )
    environment: Variables = Field(
        default_factory=dict, description="Variables of the engine, out of the list of what a request may set."
    )


class Devices(Frozen):
    """Options by device."""

    any: Options = Field(default=Options(), description="On every device; stands before the device's own.")
    cuda: Options = Field(default=Options(), description="On a CUDA device.")
    cpu: Options = Field(default=Options(), description="On a CPU, and for simulated engines.")

    def of(self, device: Device) -> tuple[Options, Options]:
        """What holds on this device, the general first."""
        return self.any, self.cuda if device == "cuda" else self.cpu


class PresetArm(Frozen):
    """One arm, beside what both have."""

    name: str = Field(min_length=1, max_length=80, description="What people call it.")
    engine: str = Field(
        default="default",
        pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$",
        description="Name of an engine environment, as `equipoise env list` has it; never a path.",
    )
    scratch: ScratchPolicy = Field(
        default="upstream",
        description="Who owns the attention backend's scratch: `upstream` is SGLang as installed, `baseline` each "
        "call, `persistent` the backend.",
    )
    options: Devices = Field(default=Devices(), description="Flags and variables by device, after those of `both`.")


class Defaults(Frozen):
    """Fields of a request that the preset sets where the request leaves them out; null leaves them alone."""

    parts: tuple[Part, ...] | None = Field(default=None, min_length=1, description="Halves to measure.")
    batch_sizes: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(
        default=None, min_length=1, description="Batch sizes to time; taken only together with `primary_batch`."
    )
    primary_batch: int | None = Field(default=None, ge=1, description="The batch size that decides.")
    prompt_tokens: int | None = Field(default=None, ge=1, description="Tokens of each prompt of a block.")
    steps_per_block: int | None = Field(default=None, ge=8, description="Decode steps, or prefills, of one block.")
    quads: int | None = Field(default=None, ge=1, description="ABBA quads per batch size in one launch pair.")

    @model_validator(mode="after")
    def _sizes_come_with_the_one_that_decides(self) -> Self:
        if (self.batch_sizes is None) != (self.primary_batch is None):
            raise ValueError("give batch_sizes and primary_batch both or neither")
        if self.batch_sizes is not None and self.primary_batch not in self.batch_sizes:
            raise ValueError(f"primary_batch {self.primary_batch} is none of batch_sizes {list(self.batch_sizes)}")
        return self


class Preset(Frozen):
    """A pair of arms under a name."""

    version: Literal[1] = Field(description="Version of this format: 1.")
    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9-]{0,63}$",
        description="Name by which a request asks for it; the file is `NAME.yaml`.",
    )
    summary: str = Field(min_length=1, max_length=500, description="What it compares, in one sentence.")
    phase: Phase = Field(
        default="decode",
        description="What its blocks time: `decode` steps, or whole `prefill`s with the time to first token.",
    )
    both: Devices = Field(default=Devices(), description="Flags and variables of both arms, by device.")
    baseline: PresetArm = Field(description="The arm that is there already.")
    candidate: PresetArm = Field(description="The arm that is in question.")
    asks: tuple[Ask, ...] = Field(
        default=(), description="What the preset leaves open and a request must give, as `candidate.engine`."
    )
    evidence: tuple[Evidence, ...] = Field(
        default=(),
        description="What must be seen before the arms count as different; without any, some difference between their "
        "whole traces. A run in which something else differs fails and says what was seen instead.",
    )
    defaults: Defaults = Field(default=Defaults(), description="Fields of the request that the preset sets.")

    def arms(self, device: Device, batch_sizes: Sequence[int]) -> ArmPair:
        """Both arms on this device.

        Args:
            device: Decides which options hold.
            batch_sizes: Batch sizes that will be timed; where graphs are captured, they are captured for these.
        """
        return ArmPair(
            baseline=self._arm(self.baseline, device, batch_sizes),
            candidate=self._arm(self.candidate, device, batch_sizes),
        )

    def defaults_beside(self, given: frozenset[str]) -> dict[str, Any]:
        """The preset's values of fields that the request did not give."""
        values = self.defaults.model_dump(exclude_none=True)
        if given & {"batch_sizes", "primary_batch"}:
            given |= {"batch_sizes", "primary_batch"}  # A request that names one has checked it against the other.
        return {name: value for name, value in values.items() if name not in given}

    def _arm(self, arm: PresetArm, device: Device, batch_sizes: Sequence[int]) -> ArmSpec:
        options = (*self.both.of(device), *arm.options.of(device))
        return ArmSpec(
            name=arm.name,
            engine=arm.engine,
            flags=tuple(word for part in options for flag in part.flags for word in _filled(flag, batch_sizes)),
            environment={name: value for part in options for name, value in part.environment.items()},
            scratch=arm.scratch,
        )


def _filled(word: str, batch_sizes: Sequence[int]) -> tuple[str, ...]:
    if word == BATCH_SIZES:
        return tuple(str(batch) for batch in sorted(set(batch_sizes)))
    return (str(max(LEAST_RUNNING, *batch_sizes)),) if word == RUNNING else (word,)
