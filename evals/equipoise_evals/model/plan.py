"""The resolved plan: what is measured, how often, and what would count as a difference. Nothing in it is optional."""

from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from equipoise_evals.model.arms import ArmPair
from equipoise_evals.model.base import Frozen
from equipoise_evals.model.evidence import BY_FILLS, Evidence

Part = Literal["latency", "accuracy"]
Prompting = Literal["completion", "chat"]
"""Whether a question is a text to go on with, or a user's turn that the model's chat template wraps."""
Layout = Literal["co_resident", "alternating", "crossover"]
"""Where the engines of a launch pair run: both at once on one device set; one after the other on it; or both at once on
a device set each, swapped from pair to pair. What the order adds in the second, or the devices in the third, comes the
other way round in the next pair: see ``PAIRS_TO_BALANCE`` and ``Plan.pairs_per_unit``."""
EngineMetric = Literal["busy", "period"]
Phase = Literal["decode", "prefill"]
"""What blocks time: decode steps, or prefills of whole prompts."""
STEPS: dict[Phase, str] = {"decode": "step", "prefill": "prefill"}
"""What one of them is called."""
FULL_STEPS: dict[Phase, str] = {"decode": "decode step", "prefill": "prefill"}
"""The same in full."""


class ModelRef(Frozen):
    """The model under both engines: the name that was asked for and the bytes that were found.

    ``revision`` is the hub's commit, or the digest of the folder's weight files; of a model that attached engines hold
    nobody knows it.
    """

    name: str
    source: Literal["embedded", "folder", "hub", "simulated", "attached"]
    path: str
    revision: str


class Question(Frozen):
    """One GSM8K question. ``id`` is the 0-based line of its file; ``gold`` is the text after ``####``, never edited."""

    id: int = Field(ge=0)
    question: str
    rationale: str
    gold: str


class QuestionPlan(Frozen):
    """Which questions are asked, in which order, after which worked examples.

    Attributes:
        name: The set's name as shown: ``shipped``, ``folder`` or ``openai/gsm8k``.
        revision: The hub's commit, or None where the files themselves are the revision.
        test_sha256: Digest of the file of test questions.
        train_sha256: Digest of the file the worked examples come from.
        population: How many test questions the set has.
        ids: 0-based lines of the sampled questions, in the order they are asked (the same in both arms).
        shot_ids: 0-based lines of the worked examples, from the train file.
    """

    name: str
    revision: str | None
    test_sha256: str
    train_sha256: str
    population: int = Field(ge=1)
    ids: tuple[int, ...] = Field(min_length=1)
    shot_ids: tuple[int, ...]


class SamplingPlan(Frozen):
    """Sampling parameters, always explicit: an engine's own defaults never decide."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = -1
    max_new_tokens: int = Field(default=256, ge=1)
    stop: tuple[str, ...] = ("\n\nQuestion:", "\nQuestion:")
    ignore_eos: bool = False


PASS_LOOKS = (2, 4, 8)
"""Passes per arm after which accuracy may end a run; one pass has no A/A control."""


class AccuracyPlan(Frozen):
    """The accuracy half: one greedy pass over the same questions per arm and launch pair, up to ``passes_max``."""

    questions: QuestionPlan
    sampling: SamplingPlan
    shots: int = Field(ge=0)
    concurrency: int = Field(ge=1)
    passes_max: int = Field(ge=1)
    margin_pp: float = Field(gt=0, lt=100)
    missing_share_max: float = Field(default=0.01, ge=0, lt=1)
    prompting: Prompting = "completion"

    @property
    def looks(self) -> tuple[int, ...]:
        """Passes per arm after which accuracy is looked at; its error is spent over exactly these."""
        return (*(look for look in PASS_LOOKS if look < self.passes_max), self.passes_max)


class Slo(Frozen):
    """A service-level objective of one request; what is not given is not asked of it.

    Attributes:
        ttft_ms: Longest time to the first token.
        tpot_ms: Longest mean time per output token after it.
    """

    ttft_ms: float | None = Field(default=None, gt=0)
    tpot_ms: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _asks_for_something(self) -> Self:
        if self.ttft_ms is None and self.tpot_ms is None:
            raise ValueError("an SLO needs ttft_ms, tpot_ms or both")
        return self


class LatencyPlan(Frozen):
    """The latency half: ABBA / BAAB quads of blocks at each batch size.

    A prefill block is a row of requests for one token, one after another: its steps are whole prefills of a batch of
    prompts of ``prompt_tokens`` tokens each, ``busy_us`` is what they took in the engine and ``period_us`` the time to
    first token at the client, a mean over the batch.

    Attributes:
        batch_sizes: Requests decoded together, each timed in its own blocks.
        primary_batch: The one that decides; the others are secondary.
        quads_per_pair: ABBA quads per batch size in one launch pair.
        prompt_tokens: Context length, in tokens, at which each request of a block starts.
        steps_per_block: Decode steps, or prefills, of one block, warm-up steps included.
        warmup_steps: Steps at the head of each block left out of its mean.
        margin: Relative margin m of ``equivalent`` and ``slower``; 0.005 is 0.5 %.
        phase: What a block times; ``steps_per_block`` counts decode steps or prefills.
        slo: Objective whose share of requests is shown beside the times; None shows none.
    """

    batch_sizes: tuple[int, ...] = Field(min_length=1)
    primary_batch: int = Field(ge=1)
    quads_per_pair: int = Field(ge=1)
    prompt_tokens: int = Field(ge=1)
    steps_per_block: int = Field(ge=8)
    warmup_steps: int = Field(ge=1)
    margin: float = Field(gt=0, lt=1)
    phase: Phase = Field(default="decode", exclude_if=lambda phase: phase == "decode")
    slo: Slo | None = Field(default=None, exclude_if=lambda slo: slo is None)

    @model_validator(mode="after")
    def _primary_is_timed(self) -> Self:
        if self.primary_batch not in self.batch_sizes:
            raise ValueError(
                f"primary_batch {self.primary_batch} is none of batch_sizes {list(self.batch_sizes)}; name one of them"
            )
        if len(set(self.batch_sizes)) != len(self.batch_sizes) or min(self.batch_sizes) < 1:
            raise ValueError(f"batch_sizes {list(self.batch_sizes)} must be distinct and at least 1")
        if self.warmup_steps >= self.steps_per_block - 4:
            raise ValueError("warmup_steps leaves fewer than 4 timed steps in a block")
        return self

    @model_validator(mode="after")
    def _objective_has_requests(self) -> Self:
        if self.slo is not None and self.phase == "prefill":
            raise ValueError(
                "slo needs phase decode: of prefills no times of whole requests are recorded, so none could meet it"
            )
        return self


class LaunchHistory(Frozen):
    """What A/A comparisons on this machine say about the spread between launches of one metric.

    Attributes:
        d0: Degrees of freedom that the history is worth.
        s0: SD of a launch pair's log-ratio, as estimated; the judge inflates it.
        histories: A/A comparisons it rests on.
        source: Which ones: host, device, versions and ids, for the reader.
        ran_on: Where they ran, as launches record it: ``machine``, ``device`` and ``gpu``; nothing is borrowed by
            launches that ran elsewhere. What is not here is not compared.
    """

    d0: float = Field(gt=0)
    s0: float = Field(gt=0)
    histories: int = Field(ge=3)
    source: str
    ran_on: dict[str, JsonValue] = Field(default_factory=dict, exclude_if=lambda where: not where)


LOOKS = (3, 4, 5, 6, 8, 10)
"""Units after which a run may stop. Below 3 a t interval is too wide to decide anything."""

DEVICE_SETS: dict[Layout, int] = {"co_resident": 1, "alternating": 1, "crossover": 2}
"""Device sets that a launch pair holds at once."""
PAIRS_PER_UNIT: dict[Layout, int] = {"co_resident": 1, "alternating": 1, "crossover": 2}
"""Launch pairs averaged into one log-ratio; see ``Plan.pairs_per_unit``."""

PAIRS_TO_BALANCE: dict[Layout, int] = {"co_resident": 1, "alternating": 2, "crossover": 2}
"""Launch pairs over which the order of launches, or the devices, is the same for both arms: looks come after whole
multiples. ``co_resident`` draws its order of starts anew for every other pair, and looks after any."""


def looks_up_to(pairs_max: int, *, with_history: bool = False, layout: Layout = "co_resident") -> tuple[int, ...]:
    """The looks of a plan of at most ``pairs_max`` launch pairs; the last balanced number of them is always one.

    A look at 2 pairs exists only where the launch variance is borrowed from history. ``alternating`` looks at even
    numbers of pairs only: at an odd one, a drift from launch to launch does not cancel.
    """
    balanced, per_unit = PAIRS_TO_BALANCE[layout], PAIRS_PER_UNIT[layout]
    units = (2, *LOOKS) if with_history else LOOKS
    looks = [per_unit * look for look in units if per_unit * look % balanced == 0]
    last = pairs_max - pairs_max % balanced
    return (*(look for look in looks if look < last), last) if last >= looks[0] else ()


class Plan(Frozen):
    """A comparison, resolved: the launcher, the runner and the judge read this and nothing else.

    ``looks`` are the numbers of finished launch pairs after which the verdict may stop the run; error rates are
    spent over exactly these. ``history``, by metric, is fixed before anything runs; empty means that each comparison
    estimates its launch variance alone. ``stress`` puts each engine under stress before every pass but the first, so
    that comparing an arm's passes with each other shows whether its answers changed. ``layout_why`` says why this
    layout was taken, and ``gpu_type`` on which kind of GPU of a cluster; empty where that was not recorded.
    ``evidence`` is what must be seen before the arms count as different; empty asks for any difference between their
    traces. Fields that say what every plan said before they existed are left out of its JSON, so that the same plan
    keeps its bytes.
    """

    schema_version: Literal[1] = 1
    preset: str
    model: ModelRef
    arms: ArmPair
    declared_aa: bool
    layout: Layout = "co_resident"
    layout_why: str = Field(default="", exclude_if=lambda why: not why)
    gpu_type: str = Field(default="", exclude_if=lambda kind: not kind)
    pairs_max: int = Field(ge=1, le=100)
    looks: tuple[int, ...]
    seed: int
    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    accuracy: AccuracyPlan | None
    latency: LatencyPlan | None
    history: dict[EngineMetric, LaunchHistory] = Field(default_factory=dict)
    stress: bool = False
    evidence: tuple[Evidence, ...] = Field(default=BY_FILLS, exclude_if=lambda declared: declared == BY_FILLS)

    @property
    def phase(self) -> Phase:
        """What is timed and traced."""
        return self.latency.phase if self.latency else "decode"

    @property
    def parts(self) -> tuple[Part, ...]:
        """The halves that are measured."""
        latency: tuple[Part, ...] = ("latency",) if self.latency else ()
        accuracy: tuple[Part, ...] = ("accuracy",) if self.accuracy else ()
        return latency + accuracy

    @property
    def pairs_per_unit(self) -> int:
        """Launch pairs averaged into one log-ratio, the unit of every interval.

        Two where the arms of one pair ran on different devices, swapped in the next: in the mean of both a difference
        between the devices cancels, and it does not count as spread.
        """
        return PAIRS_PER_UNIT[self.layout]

    @property
    def pairs_to_balance(self) -> int:
        """Launch pairs after whole multiples of which the orders and devices of both arms were the same."""
        return PAIRS_TO_BALANCE[self.layout]

    @model_validator(mode="after")
    def _layout_can_be_had(self) -> Self:
        if self.layout == "co_resident":
            return self
        if self.arms.attached:
            raise ValueError("engines that ran already are where they are: their layout can only be co_resident")
        if self.history and self.pairs_per_unit > 1:
            raise ValueError(f"history is of single launch pairs, so it says nothing of the units of {self.layout}")
        if any(look % self.pairs_to_balance for look in self.looks):
            raise ValueError(f"looks {list(self.looks)} must be even: in {self.layout} two launch pairs balance")
        return self

    @model_validator(mode="after")
    def _measures_something(self) -> Self:
        if self.accuracy is None and self.latency is None:
            raise ValueError("parts must name latency, accuracy or both")
        if self.stress and self.arms.attached:
            raise ValueError("engines that ran already are not put under stress: others may be using them")
        if self.stress and (self.accuracy is None or self.accuracy.passes_max < 2):
            raise ValueError("stress needs the accuracy half and at least 2 passes: those after the first follow it")
        if list(self.looks) != sorted(set(self.looks)) or any(not 2 <= look <= self.pairs_max for look in self.looks):
            raise ValueError(
                f"looks {list(self.looks)} must rise strictly and lie between 2 and {self.pairs_max}: one launch pair "
                "has no spread to go by"
            )
        return self
