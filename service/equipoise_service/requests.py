"""What people write: a request in which everything but the model may be left out. ``resolve.py`` fills it in.

``None`` means that the preset or the device profile decides; any other default is DESIGN's and is shown here.
"""

import hashlib
from typing import Annotated, Self

from pydantic import Field, model_validator

from equipoise_evals.model import ArmSpec, Evidence, Frozen, Layout, Part, Prompting, ScratchPolicy, Slo

Batch = Annotated[int, Field(ge=1, le=65_536)]
LARGEST_SEED = 2**31 - 1
"""SGLang takes seeds of 32 bits; the schedule derives further seeds from this one by adding to it."""


class ArmRequest(Frozen):
    """What to change in one of the preset's arms; what is left out stays the preset's.

    Attributes:
        name: What people will call it; by default the preset's name, or the scratch policy's where that is given.
        engine: Name of an engine environment in the server's configuration.
        flags: SGLang flags put after the preset's, so that the same flag given here wins.
        environment: Variables added to the preset's, by name.
        scratch: The scratch policy.
        attach: Address of an engine that runs already, as ``http://127.0.0.1:30000``; nothing is launched then, so that
            ``engine``, ``flags`` and ``environment`` cannot be given. For both arms or for neither.
    """

    name: str | None = Field(default=None, min_length=1, max_length=80)
    engine: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    flags: tuple[Annotated[str, Field(max_length=1_000, pattern=r"^[^\x00]*$")], ...] = ()
    environment: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")],
        Annotated[str, Field(max_length=10_000, pattern=r"^[^\x00]*$")],
    ] = Field(default_factory=dict)
    scratch: ScratchPolicy | None = None
    attach: str | None = Field(default=None, max_length=300)

    def applied_to(self, arm: ArmSpec) -> ArmSpec:
        """The preset's arm with these changes; of an engine that runs already little is known."""
        if self.attach is not None:
            name, scratch = self.name or self.scratch or arm.name, self.scratch or arm.scratch
            return ArmSpec(name=name, scratch=scratch, attach=self.attach)
        return ArmSpec(
            name=self.name or self.scratch or arm.name,
            engine=self.engine or arm.engine,
            flags=(*arm.flags, *self.flags),
            environment={**arm.environment, **self.environment},
            scratch=self.scratch or arm.scratch,
        )


class CompareRequest(Frozen):
    """The body of ``POST /compare``. Fields that are not listed here are refused.

    Attributes:
        model: A hub id, a folder with a model, or ``embedded`` for the one that comes with Equipoise.
        preset: The pair of arms to start from.
        baseline: Changes to the preset's baseline arm.
        candidate: Changes to the preset's candidate arm.
        declared_aa: Whether both arms are meant to be the same, so that equal kernels are no finding, and others make
            the run invalid.
        parts: The halves to measure.
        batch_sizes: Requests decoded together, each timed in its own blocks.
        primary_batch: The batch size that decides.
        pairs_max: At most so many launch pairs; one less where that is odd and the layout decides at even numbers only.
        questions: Size of the seeded sample of questions; null asks all of them.
        shots: Worked examples before each question.
        prompting: ``completion`` of a text, or ``chat`` through the model's own chat template.
        concurrency: Questions in flight; null takes the device profile's.
        margin_accuracy_pp: Loss of accuracy, in percentage points, that would count.
        margin_latency: Relative change of the step time that would count; 0.005 is 0.5 %.
        seed: Decides the sample of questions, the order of starts and the blocks' prompts.
        max_new_tokens: Longest answer to a question, in tokens; null takes the device profile's.
        prompt_tokens: Context at which each request of a block starts; null takes the device profile's.
        steps_per_block: Decode steps, or prefills, of one block; null takes the device profile's.
        quads: ABBA quads per batch size in one launch pair; null takes the device profile's.
        priority: Comparisons of a higher priority are begun first, among equals the older one.
        stress: Whether each engine is put under stress before every pass but the first.
        layout: ``co_resident`` on one device set, ``alternating`` one after the other on it, ``crossover`` on two that
            are swapped; null takes ``co_resident``, or ``alternating`` where two engines do not fit.
        gpu_type: Kind of GPU in a Ray cluster, as its ``accelerator_type`` names it; null takes any.
        evidence: What must be seen before the arms count as different, in place of the preset's; an empty list asks for
            any difference between their traces.
        slo: Objective of one request whose share is shown beside the times.
    """

    model: str = Field(min_length=1, max_length=1_000, pattern=r"^[^\x00-\x1f\x7f]+$")
    preset: str = Field(default="persistent-buffer", max_length=80)
    baseline: ArmRequest | None = None
    candidate: ArmRequest | None = None
    declared_aa: bool = False
    parts: tuple[Part, ...] = Field(default=("latency", "accuracy"), min_length=1, max_length=2)
    batch_sizes: tuple[Batch, ...] = Field(default=(1, 16), min_length=1, max_length=16)
    primary_batch: Batch = 16
    pairs_max: int = Field(default=10, ge=1, le=100)
    questions: int | None = Field(default=None, ge=1)
    shots: int = Field(default=5, ge=0, le=64)
    prompting: Prompting = "completion"
    concurrency: int | None = Field(default=None, ge=1, le=4_096)
    margin_accuracy_pp: float = Field(default=1.0, gt=0, lt=100)
    margin_latency: float = Field(default=0.005, gt=0, lt=1)
    seed: int = Field(default=1, ge=0, le=LARGEST_SEED)
    max_new_tokens: int | None = Field(default=None, ge=1, le=32_768)
    prompt_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    steps_per_block: int | None = Field(default=None, ge=8, le=65_536)
    quads: int | None = Field(default=None, ge=1, le=100)
    priority: int = Field(default=0, ge=-100, le=100)
    stress: bool = False
    layout: Layout | None = None
    gpu_type: str | None = Field(default=None, max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    # Left out of the digest where they are not given, so that requests from before they existed keep theirs.
    evidence: tuple[Evidence, ...] | None = Field(default=None, max_length=20, exclude_if=lambda given: given is None)
    slo: Slo | None = Field(default=None, exclude_if=lambda given: given is None)

    @model_validator(mode="after")
    def _batches_fit(self) -> Self:
        if len(set(self.parts)) != len(self.parts):
            raise ValueError(f"parts {list(self.parts)} names a half twice")
        if len(set(self.batch_sizes)) != len(self.batch_sizes):
            raise ValueError(f"batch_sizes {list(self.batch_sizes)} must be distinct")
        if "latency" in self.parts and self.primary_batch not in self.batch_sizes:
            raise ValueError(
                f"primary_batch {self.primary_batch} is none of batch_sizes {list(self.batch_sizes)}; name one of them"
            )
        return self

    @model_validator(mode="after")
    def _attached_arms_are_as_they_are(self) -> Self:
        arms = {"baseline": self.baseline, "candidate": self.candidate}
        attached = [name for name, arm in arms.items() if arm is not None and arm.attach is not None]
        if len(attached) == 1:
            raise ValueError(
                f"attach is given for the {attached[0]} alone; attach to both arms' engines, or launch both"
            )
        for name in attached:
            arm = arms[name]
            if arm is not None and (arm.engine or arm.flags or arm.environment):
                raise ValueError(
                    f"the {name}'s engine runs already, so engine, flags and environment do not apply to it"
                )
        if attached and self.layout not in (None, "co_resident"):
            raise ValueError("engines that run already are where they are: a layout cannot be chosen for them")
        if attached and self.stress:
            raise ValueError("engines that run already are not put under stress: others may be using them")
        return self

    @property
    def attached(self) -> bool:
        """Whether the engines run already."""
        return self.baseline is not None and self.baseline.attach is not None

    @model_validator(mode="after")
    def _stress_is_followed_by_a_pass(self) -> Self:
        if self.stress and ("accuracy" not in self.parts or self.pairs_max < 2):
            raise ValueError(
                f"stress is followed by a second pass over the questions, so it needs accuracy among the parts (here "
                f"{list(self.parts)}) and a pairs_max of at least 2 (here {self.pairs_max})"
            )
        return self

    @property
    def sha256(self) -> str:
        """Digest of what the request means: the same whatever the order and spacing of its JSON."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()
