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
    """

    name: str = Field(min_length=1, max_length=80)
    engine: str = Field(default="default", pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict)
    scratch: ScratchPolicy

    def differs_from(self, other: Self) -> tuple[str, ...]:
        """Names of the fields, other than the name, in which two arms differ."""
        return tuple(
            field
            for field in ("engine", "flags", "environment", "scratch")
            if getattr(self, field) != getattr(other, field)
        )


class ArmPair(Frozen):
    """The two arms of a comparison."""

    baseline: ArmSpec
    candidate: ArmSpec

    def of(self, role: Role) -> ArmSpec:
        """The arm that plays this role."""
        return self.baseline if role == "A" else self.candidate

    @model_validator(mode="after")
    def _names_tell_arms_apart(self) -> Self:
        if self.baseline.name == self.candidate.name and self.baseline.differs_from(self.candidate):
            raise ValueError(f"two different arms cannot share the name {self.baseline.name!r}")
        return self
