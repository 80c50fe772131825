"""What a comparison says beforehand will show that its arms ran different code. Data; ``judge.treatment`` reads it."""

from typing import Annotated, Literal

from pydantic import Field

from equipoise_evals.model.base import Frozen


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
    """Something that each engine says of itself.

    Attributes:
        where: ``server_info`` is SGLang's own description, ``attestation`` the plugin's record.
        name: The field, with dots into objects, as ``scratch.policy``.
        baseline: What the baseline must say, as text; null for anything that the candidate does not say.
        candidate: The same for the candidate.
    """

    kind: Literal["attribute"] = "attribute"
    where: Literal["server_info", "attestation"] = "server_info"
    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+){0,4}$", max_length=200)
    baseline: str | None = Field(default=None, max_length=200)
    candidate: str | None = Field(default=None, max_length=200)


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
