"""What an arm is: data, kept in every record. No process is started from here."""

from typing import Literal, Self

from pydantic import Field, model_validator

from equipoise_evals.model.base import Frozen

Role = Literal["A", "B"]
"""A is the baseline, B the candidate; the letters are those of ABBA."""

ROLES: tuple[Role, Role] = ("A", "B")
ROLE_NAMES: dict[Role, str] = {"A": "baseline", "B": "candidate"}

ScratchPolicy = Literal["baseline", "persistent", "upstream"]
"""Who owns the attention backend's scratch: each call, the backend instance, or SGLang as installed."""


class ArmSpec(Frozen):
    """One arm: everything that decides how its engine is started.

    Attributes:
        name: What people call it, in every table and error.
        engine: Name of an engine environment in the server's configuration, never a path.
        flags: SGLang's command line beside the model, the address and the ports.
        environment: Variables set for the engine beside the ones that Equipoise sets.
        scratch: The scratch policy, passed to the plugin as ``EQUIPOISE_ARM``.
        attach: Address of an engine that runs already, as ``http://127.0.0.1:30000``: nothing is launched or stopped,
            so flags and environment are whatever it was started with, and not known. None launches one.
    """

    name: str = Field(min_length=1, max_length=80)
    engine: str = Field(default="default", pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict)
    scratch: ScratchPolicy
    attach: str | None = Field(default=None, pattern=r"^https?://[^/?#@\s]+$", max_length=300)

    def differs_from(self, other: Self) -> tuple[str, ...]:
        """Names of the fields, other than the name, in which two arms differ."""
        return tuple(
            field
            for field in ("engine", "flags", "environment", "scratch", "attach")
            if getattr(self, field) != getattr(other, field)
        )


class ArmPair(Frozen):
    """The two arms of a comparison."""

    baseline: ArmSpec
    candidate: ArmSpec

    def of(self, role: Role) -> ArmSpec:
        """The arm that plays this role."""
        return self.baseline if role == "A" else self.candidate

    @property
    def attached(self) -> bool:
        """Whether the engines ran already."""
        return self.baseline.attach is not None

    @model_validator(mode="after")
    def _both_or_neither_ran_already(self) -> Self:
        if (self.baseline.attach is None) != (self.candidate.attach is None):
            raise ValueError("attach to both arms' engines or launch both: only then both are timed by the same clock")
        return self

    @model_validator(mode="after")
    def _names_tell_arms_apart(self) -> Self:
        if self.baseline.name == self.candidate.name and self.baseline.differs_from(self.candidate):
            raise ValueError(f"two different arms cannot share the name {self.baseline.name!r}")
        return self
