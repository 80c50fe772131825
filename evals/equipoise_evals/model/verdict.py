"""What was concluded. Each word is a type that can hold only what justifies it.

A verdict is derived from records alone and rounded to 12 significant digits, so the same records under the same lock
file give the same bytes. Effects are candidate relative to baseline; negative latency effects are faster, positive
accuracy differences are better.
"""

import math
from statistics import fmean
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from equipoise_evals.model.base import Frozen
from equipoise_evals.model.plan import Phase, Slo
from equipoise_evals.model.records import Clock, PdlLinks

Metric = Literal["busy", "period", "client_tpot", "client_ttft"]
TimedBy = Clock | Literal["imported"]
"""Whose clock the times of a verdict are of; ``imported`` are out of another tool's result files."""
DecidedAccuracy = Literal["regression", "improved", "non_inferior"]
TreatmentRule = Literal["fills", "declared", "kernels"]


class Interval(Frozen):
    """An interval and the two-sided confidence at which it was computed."""

    low: float
    high: float
    level: float = Field(gt=0, lt=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"interval ends are swapped: {self.low} > {self.high}")
        return self


class LatencyContrast(Frozen):
    """One metric at one batch size: relative effect over launch pairs.

    Attributes:
        batch: Requests at a time; None where another tool's results do not state how many there were.
        effect: Ratio of candidate to baseline minus 1, from the mean log-ratio over launch pairs.
        interval: Two-sided interval of the effect at the look's level; None below two pairs, and where all agree to the
            last digit, as copies do.
        equivalence: Interval compared with (-m, +m): one-sided level on each side; None likewise.
        launch_sd: Standard deviation of the log-ratio between units; None below two units.
        pairs: Launch pairs that count.
        pairs_per_unit: Launch pairs averaged into one unit; 1 except where a second one cancels what a first one adds.
        per_pair: Effect of each launch pair, in order.
        baseline_us: Geometric mean of the baseline's block means; the effect is the ratio of the two times.
        candidate_us: The same for the candidate.
        median_effect: The same contrast on block medians, shown beside the mean.
        holm_p: Holm-adjusted p of "not slower by more than the margin", for secondary contrasts only.
        detectable: Smallest true effect that this many pairs would call non-zero in 80 % of runs; None likewise.
        borrowed: Whether the interval rests on the machine's A/A history beside these pairs.
    """

    metric: Metric
    batch: int | None = Field(ge=1)
    pairs: int = Field(ge=1)
    effect: float
    interval: Interval | None
    equivalence: Interval | None
    launch_sd: float | None
    per_pair: tuple[float, ...]
    baseline_us: float = Field(gt=0)
    candidate_us: float = Field(gt=0)
    median_effect: float
    holm_p: float | None = None
    detectable: float | None = None
    borrowed: bool = False
    pairs_per_unit: int = Field(default=1, ge=1)

    @property
    def units(self) -> int:
        """How many units the interval rests on."""
        return self.pairs // self.pairs_per_unit

    @property
    def unit_logs(self) -> tuple[float, ...]:
        """The natural log-ratio of each unit, in order."""
        logs, per_unit = [math.log1p(effect) for effect in self.per_pair], self.pairs_per_unit
        return tuple(fmean(logs[start : start + per_unit]) for start in range(0, len(logs), per_unit))


class TwoLevelEvidence(Frozen):
    """Step times that jump between two levels at the primary batch, and how long each arm spent at the lower one.

    Attributes:
        pairs: Launch pairs in which two levels were found.
        tested: Launch pairs whose blocks were long enough to test.
        low_us: The lower level; ``high_us`` the upper, means over the pairs found.
        baseline_share: Share of the baseline's steps at the lower level, mean over the pairs found.
        candidate_share: The same for the candidate.
    """

    pairs: int = Field(ge=1)
    tested: int = Field(ge=1)
    low_us: float = Field(gt=0)
    high_us: float = Field(gt=0)
    baseline_share: float = Field(ge=0, le=1)
    candidate_share: float = Field(ge=0, le=1)


class Goodput(Frozen):
    """Requests that met the plan's objective at the primary batch: shown beside the times, deciding nothing.

    Attributes:
        slo: The objective.
        pairs: Launch pairs, of each of which an arm's share is one number; those of complete units only.
        baseline_share: Share of the baseline's requests that met it, mean over the pairs.
        candidate_share: The same for the candidate.
        baseline_per_s: Requests that met it per second of a batch's decoding, mean over the pairs.
        candidate_per_s: The same for the candidate.
        difference_pp: Candidate's share minus the baseline's, percentage points.
        interval_pp: 95 % t interval of the difference over units, of one launch pair or of two as for the times; None
            below two units, or where all agree.
    """

    slo: Slo
    batch: int = Field(ge=1)
    pairs: int = Field(ge=1)
    baseline_share: float = Field(ge=0, le=1)
    candidate_share: float = Field(ge=0, le=1)
    baseline_per_s: float = Field(ge=0)
    candidate_per_s: float = Field(ge=0)
    difference_pp: float
    interval_pp: Interval | None


class NodeEffects(Frozen):
    """The primary batch's busy time by the node of a cluster: shown beside the number, deciding nothing.

    Attributes:
        units: How many units of the interval ran on each node, by its name.
        effects: Their effect, from the mean log-ratio.
        p_value: Of the one-way analysis of variance, H0: the same effect on all nodes; None where no node has two.
    """

    units: dict[str, int]
    effects: dict[str, float]
    p_value: float | None = Field(ge=0, le=1)


Bar = Literal["dropped_pairs", "one_sided_load"]
"""What keeps launch pairs from deciding whatever they show: others between them that were not measured whole, or
foreign load beside one arm."""


class LatencyEvidence(Frozen):
    """What the latency word rests on: the primary batch by the engine's clock, and everything shown beside it.

    Attributes:
        margin: The relative margin m.
        look: Launch pairs at which this was judged; error is spent over the plan's looks.
        busy: Primary batch, time the device works on a step: sensitive, proves the mechanism.
        period: Primary batch, time from step to step: what a user waits.
        client: Primary batch, time per output token at the HTTP client; None if no client time was recorded.
        secondary: Other batch sizes.
        two_level: Two levels of step time, if they were found.
        notes: What a reader must know before believing the number, one sentence each.
        clock: Whose clock decides; by the client's, of engines that ran already, ``busy`` and ``period`` are both the
            time from token to token as it arrived, ``secondary`` is the client's time too, and no word is reached.
            Of imported results ``busy`` is the mean time per output token and ``period`` the mean end-to-end latency
            of a request, both as their tool states them, and a launch pair is a pair of its runs.
        phase: What was timed. In prefill blocks ``busy`` is the time of a whole prefill in the engine, ``period`` the
            time to first token at the client, and ``client`` is None.
        goodput: Share of requests that met the plan's objective; None without one, or without client times.
        nodes: What each node shows; None, and left out of the JSON, where all pairs ran on one or none was recorded.
        bars: Why no word can be reached, whatever the numbers; left out of the JSON where nothing bars one.
    """

    margin: float = Field(gt=0)
    look: int = Field(ge=1)
    busy: LatencyContrast
    period: LatencyContrast
    client: LatencyContrast | None
    secondary: tuple[LatencyContrast, ...] = ()
    two_level: TwoLevelEvidence | None = None
    notes: tuple[str, ...] = ()
    clock: TimedBy = "engine"
    phase: Phase = "decode"
    goodput: Goodput | None = None
    nodes: NodeEffects | None = Field(default=None, exclude_if=lambda nodes: nodes is None)
    bars: tuple[Bar, ...] = Field(default=(), exclude_if=lambda bars: not bars)


Size = Literal["material", "small", "unclear"]
"""How much faster: more than the margin, less than it, or either."""


class Faster(Frozen):
    """The candidate's busy time is lower, and its period is not higher by the margin."""

    word: Literal["faster"] = "faster"
    size: Size
    evidence: LatencyEvidence

    @model_validator(mode="after")
    def _justified(self) -> Self:
        busy, period, m = self.evidence.busy.interval, self.evidence.period, self.evidence.margin
        if busy is None or period.interval is None:
            raise ValueError("faster needs intervals")
        if not (busy.high < 0 and period.effect < 0 and period.interval.high < m):
            raise ValueError("faster needs busy's interval below 0 and the period below 0 and not above +m")
        size = "material" if busy.high < -m else "small" if busy.low > -m else "unclear"
        if self.size != size:
            raise ValueError(f"the interval makes the size {size}, not {self.size}")
        return self


class Slower(Frozen):
    """The candidate is slower by more than the margin, in busy time or in period."""

    word: Literal["slower"] = "slower"
    evidence: LatencyEvidence

    @model_validator(mode="after")
    def _justified(self) -> Self:
        intervals = (self.evidence.busy.interval, self.evidence.period.interval)
        if not any(interval and interval.low > self.evidence.margin for interval in intervals):
            raise ValueError("slower needs a lower limit above +m")
        return self


class Equivalent(Frozen):
    """Both clocks lie within the margin on both sides."""

    word: Literal["equivalent"] = "equivalent"
    measurably_slower: bool
    evidence: LatencyEvidence

    @model_validator(mode="after")
    def _justified(self) -> Self:
        m = self.evidence.margin
        for contrast in (self.evidence.busy, self.evidence.period):
            inside = contrast.equivalence
            if inside is None or not (-m < inside.low and inside.high < m):
                raise ValueError(f"equivalent needs the {contrast.metric} equivalence interval inside (-m, +m)")
        return self


class LatencyInconclusive(Frozen):
    """The evidence decides nothing yet; ``pairs_needed`` would in 80 % of runs, None where none in reach do."""

    word: Literal["inconclusive"] = "inconclusive"
    why: str
    pairs_needed: int | None = Field(default=None, ge=1)
    evidence: LatencyEvidence


LatencyVerdict = Annotated[Faster | Slower | Equivalent | LatencyInconclusive, Field(discriminator="word")]


class AccuracyEvidence(Frozen):
    """What the accuracy word rests on. Counts are of questions graded in both arms of the declared pair of passes.

    Attributes:
        asked: Questions asked.
        graded: Questions with an answer in both arms of the pair (A1, B1).
        compared: Questions that the clustered mean rests on, each answered in both arms of at least one launch pair;
            None, and left out of the JSON, by the other method, which rests on those graded.
        missing: Questions without an answer in at least one of the passes judged.
        both_correct: Right in both; ``only_baseline``, ``only_candidate`` and ``neither`` likewise.
        no_answer: Answers, baseline and candidate, from which no final answer could be read (they count as not right);
            None where another tool graded, which does not tell.
        scores: Share of right answers of each pass, by name: ``A1``, ``B1``, ...
        score_sd_pp: SD of a pass's score over the launches of an arm, pooled; None below two passes.
        binomial_sd_pp: What that SD would be if a score were that many coin tosses, for comparison.
        difference_pp: Candidate minus baseline, percentage points.
        interval_pp: Two-sided interval at the look's level.
        lower_pp: One-sided lower limit at the look's level, compared with -M.
        method: ``tango`` on the declared pair of passes (A1, B1); ``clustered`` over several passes, questions being
            the clusters, once at least 30 questions differ between the arms.
        p_value: Mid-p McNemar of the declared pair, or the normal test of the clustered mean.
        sign_flip_p: Exact sign-flip test over several passes where fewer than 30 questions differ; else None.
        differing: Questions whose share of right answers differs between the arms.
        passes: Passes per arm that were judged: those up to the last look reached, or all before the first.
        matches: Share of identical texts in each comparison of passes: ``A1-B1``, ``A1-A2``, ...
        outputs_equal: Whether every output of every A-B comparison was identical, and no answer is missing.
        control_equal: Whether every output of the A-A control was identical; None without a second pass.
        output_shift_p: p of the 4-run test on A1, A2, B1, B2; None without two passes per arm.
        launch_permutation_p: p of the launch-level test over all passes; None below five passes per arm.
        detectable_pp: Smallest difference that this many questions and discordance would show in 80 % of runs.
        notes: What a reader must know, one sentence each.
    """

    asked: int = Field(ge=1)
    graded: int = Field(ge=0)
    compared: int | None = Field(default=None, ge=1, exclude_if=lambda compared: compared is None)
    missing: int = Field(ge=0)
    both_correct: int = Field(ge=0)
    only_baseline: int = Field(ge=0)
    only_candidate: int = Field(ge=0)
    neither: int = Field(ge=0)
    no_answer: tuple[int | None, int | None]
    scores: dict[str, float]
    score_sd_pp: float | None = None
    binomial_sd_pp: float
    margin_pp: float = Field(gt=0)
    difference_pp: float
    interval_pp: Interval
    lower_pp: float
    method: Literal["tango", "clustered"]
    p_value: float = Field(ge=0, le=1)
    sign_flip_p: float | None = None
    differing: int = Field(ge=0)
    passes: int = Field(ge=1)
    matches: dict[str, float]
    outputs_equal: bool
    control_equal: bool | None
    output_shift_p: float | None = None
    launch_permutation_p: float | None = None
    detectable_pp: float | None = None
    notes: tuple[str, ...] = ()


class Regression(Frozen):
    """The candidate answers fewer questions rightly: the whole interval lies below 0."""

    word: Literal["regression"] = "regression"
    evidence: AccuracyEvidence

    @model_validator(mode="after")
    def _justified(self) -> Self:
        if not self.evidence.interval_pp.high < 0:
            raise ValueError("regression needs an interval below 0")
        return self


class Identical(Frozen):
    """Every output is equal, and so is the A/A control."""

    word: Literal["identical"] = "identical"
    evidence: AccuracyEvidence

    @model_validator(mode="after")
    def _justified(self) -> Self:
        if not (self.evidence.outputs_equal and self.evidence.control_equal):
            raise ValueError("identical needs equal outputs and an equal A/A control")
        return self


class Improved(Frozen):
    """The whole interval lies above 0."""

    word: Literal["improved"] = "improved"
    evidence: AccuracyEvidence

    @model_validator(mode="after")
    def _justified(self) -> Self:
        if not self.evidence.interval_pp.low > 0:
            raise ValueError("improved needs an interval above 0")
        return self


class NonInferior(Frozen):
    """The candidate is not worse by the margin."""

    word: Literal["non_inferior"] = "non_inferior"
    evidence: AccuracyEvidence

    @model_validator(mode="after")
    def _justified(self) -> Self:
        if not self.evidence.lower_pp > -self.evidence.margin_pp:
            raise ValueError("non_inferior needs a lower limit above -M")
        return self


class AccuracyInconclusive(Frozen):
    """The evidence decides nothing yet; ``passes_needed`` would, None where no number within reach does.

    ``decides_as`` is the word that so many passes would lead to, if the answers went on differing as they do.
    """

    word: Literal["inconclusive"] = "inconclusive"
    why: str
    passes_needed: int | None = Field(default=None, ge=1)
    decides_as: DecidedAccuracy | None = None
    evidence: AccuracyEvidence


AccuracyVerdict = Annotated[
    Regression | Identical | Improved | NonInferior | AccuracyInconclusive, Field(discriminator="word")
]


class Claim(Frozen):
    """One piece of declared evidence, and what was seen."""

    declared: str
    seen: str
    shown: bool


class TreatmentEvidence(Frozen):
    """Whether the arms really ran different code: counts of kernels or operators that differ, per step or prefill.

    ``baseline_pdl`` and ``candidate_pdl`` say whether fills stand between PDL-linked kernels; None if not recorded.

    Attributes:
        rule: What made the arms count as different or not: their fills alone, declared evidence, or their whole traces.
        claims: The declared evidence; empty by the other rules.
        differing: Names that the arms run differently often; the counts show the largest differences. None by the rule
            of fills, whose counts are all shown.
        phase: What each count is per: a decode step, or a whole prefill.
    """

    activity: Literal["CPU", "GPU"]
    active: bool
    baseline_per_step: dict[str, float]
    candidate_per_step: dict[str, float]
    baseline_pdl: PdlLinks | None = None
    candidate_pdl: PdlLinks | None = None
    rule: TreatmentRule = "fills"
    claims: tuple[Claim, ...] = ()
    differing: int | None = None
    phase: Phase = Field(default="decode", exclude_if=lambda phase: phase == "decode")

    @property
    def contradicted(self) -> bool:
        """Whether something differs, and not what was declared."""
        return not self.active and bool(self.claims) and (bool(self.differing) or any(c.shown for c in self.claims))

    @property
    def arms_differ(self) -> bool:
        """Whether anything differs, declared or not."""
        return self.active or self.contradicted


class Ship(Frozen):
    """Accuracy holds and the candidate is faster."""

    word: Literal["ship"] = "ship"


class Neutral(Frozen):
    """Accuracy holds and the candidate is equivalent."""

    word: Literal["neutral"] = "neutral"


Cause = Literal["regression", "slower", "output_shift"]


class Block(Frozen):
    """The candidate is worse: ``causes`` names how."""

    word: Literal["block"] = "block"
    causes: tuple[Cause, ...] = Field(min_length=1)


class Inconclusive(Frozen):
    """Not decided: ``reasons`` says what is open, one sentence each."""

    word: Literal["inconclusive"] = "inconclusive"
    reasons: tuple[str, ...] = Field(min_length=1)


class TreatmentInactive(Frozen):
    """Both arms ran the same kernels: whatever was measured says nothing about the change."""

    word: Literal["treatment_inactive"] = "treatment_inactive"


InvalidReason = Literal[
    "missing_answers", "clock_gap", "disturbed", "attestation", "no_measurement",
    "device_differs", "sampling_differs", "cache_differs", "prompt_differs", "evidence_missing", "arms_differ",
    "order_differs",
]  # fmt: skip


class Invalid(Frozen):
    """The run cannot be judged, for a named reason."""

    word: Literal["invalid"] = "invalid"
    reason: InvalidReason
    detail: str


Overall = Annotated[Ship | Neutral | Block | Inconclusive | TreatmentInactive | Invalid, Field(discriminator="word")]


class Cost(Frozen):
    """What the verdict cost: seconds in which an engine of either arm held the device, and launch pairs used."""

    device_seconds: float = Field(ge=0)
    launch_pairs: int = Field(ge=0)


class Verdict(Frozen):
    """The answer to one comparison.

    Attributes:
        headline: What happened, in one plain sentence.
        how_sure: How sure that is, in one plain sentence.
        what_to_do: The next step, in one plain sentence.
        latency: What the times alone would say, None where they were not measured. It counts for nothing, whatever its
            word, where ``overall`` is ``treatment_inactive`` or ``invalid``.
        accuracy: The same of the answers.
        unattested: Whether it rests on result files of another tool: nobody has shown what ran, so it may block and
            never ships.
    """

    schema_version: Literal[1] = 1
    overall: Overall
    headline: str
    how_sure: str
    what_to_do: str
    latency: LatencyVerdict | None
    accuracy: AccuracyVerdict | None
    treatment: TreatmentEvidence | None
    cost: Cost
    unattested: bool = False

    @model_validator(mode="after")
    def _nothing_unattested_ships(self) -> Self:
        if self.unattested and isinstance(self.overall, Ship | Neutral):
            raise ValueError(f"an unattested verdict cannot be {self.overall.word}: nobody has shown what ran")
        return self

    @model_validator(mode="after")
    def _overall_follows(self) -> Self:
        holds = isinstance(self.accuracy, Identical | Improved | NonInferior)
        match self.overall:
            case Ship():
                justified = holds and isinstance(self.latency, Faster)
            case Neutral():
                justified = holds and isinstance(self.latency, Equivalent)
            case Block():
                justified = (
                    isinstance(self.accuracy, Regression)
                    or isinstance(self.latency, Slower)
                    or ("output_shift" in self.overall.causes)
                )
            case TreatmentInactive():
                justified = self.treatment is not None and not self.treatment.active
            case _:
                justified = True
        if not justified:
            raise ValueError(f"{self.overall.word} is not justified by what stands beside it")
        return self
