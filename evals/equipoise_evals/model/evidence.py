"""What a comparison says beforehand will show that its arms ran different code. Data; ``judge.treatment`` reads it."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from equipoise_evals.model.base import Frozen

ECHOED = frozenset({"arm", "launch_id", "pid"})
"""Of the plugin's record: what each launch was given or called, which differs between arms whatever they run."""


class FillsEvidence(Frozen):
    """Fills and allocations per step differ: what a scratch policy changes."""

    kind: Literal["fills"] = "fills"


class KernelEvidence(Frozen):
    """A kernel (on a GPU) or operator (on a CPU) of a profiler trace.

    Attributes:
        name: A part of its name, as it stands in the trace; all names that hold it are counted together.
        change: Whether the candidate runs it and the baseline does not (``appears``), the other way round
            (``disappears``), or differently often per step (``count``).
    """

    kind: Literal["kernel"] = "kernel"
    name: str = Field(min_length=1, max_length=200)
    change: Literal["appears", "disappears", "count"]


class AttributeEvidence(Frozen):
    """Something that each engine says of itself, in every launch that says it at all.

    Attributes:
        where: ``server_info`` is the fields of SGLang's own description that launches record (backends, types, sizes),
            ``attestation`` the plugin's record, less what only echoes what was asked for (arm, launch_id, pid).
        name: The field, with dots into objects, as ``scratch.policy``.
        baseline: What the baseline must say: a string as it is, anything else as JSON (``true``, not ``True``); a field
            that is null is not recorded. Null here for anything that the candidate does not say.
        candidate: The same for the candidate.
    """

    kind: Literal["attribute"] = "attribute"
    where: Literal["server_info", "attestation"] = "server_info"
    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+){0,4}$", max_length=200)
    baseline: str | None = Field(default=None, max_length=200)
    candidate: str | None = Field(default=None, max_length=200)

    @model_validator(mode="after")
    def _shows_what_ran(self) -> Self:
        if self.where == "attestation" and self.name.split(".")[0] in ECHOED:
            raise ValueError(
                f"{self.name} of the attestation only echoes what was asked for: it shows nothing that ran"
            )
        return self


class VersionEvidence(Frozen):
    """The version of a package inside the running engine.

    Attributes:
        package: Its name as the package index has it, as ``sglang``.
        baseline: The version that the baseline must have; null for any but the candidate's.
        candidate: The same for the candidate.
    """

    kind: Literal["version"] = "version"
    package: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    baseline: str | None = Field(default=None, max_length=100)
    candidate: str | None = Field(default=None, max_length=100)


Evidence = Annotated[FillsEvidence | KernelEvidence | AttributeEvidence | VersionEvidence, Field(discriminator="kind")]

BY_FILLS: tuple[Evidence, ...] = (FillsEvidence(),)
"""What stands for a plan that does not say: the first question was one of fills."""
