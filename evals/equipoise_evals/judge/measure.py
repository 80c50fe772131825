"""What the raw records say before any rule is applied: contrasts per launch pair, grades per pass, fills, cost.

Launch pairs do not depend on each other here, so a run of many looks can measure each pair once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from equipoise_evals.judge.contrasts import Contrasts, all_contrasts, primary_levels, quads_by_pair
from equipoise_evals.judge.cost import device_seconds
from equipoise_evals.judge.goodput import judge_goodput
from equipoise_evals.judge.grades import GradedPass, UnaskedQuestionError, graded_passes
from equipoise_evals.judge.load import ForeignLoad, foreign_load
from equipoise_evals.judge.order import judge_order, unturned_note
from equipoise_evals.judge.places import elsewhere, kinds_note
from equipoise_evals.judge.steps import UnusableQuadError
from equipoise_evals.judge.treatment import judge_evidence, judge_treatment
from equipoise_evals.judge.two_level import PairLevels
from equipoise_evals.judge.validity import judge_validity
from equipoise_evals.model import (
    Clock,
    Cost,
    Goodput,
    Invalid,
    LaunchRecord,
    PassRecord,
    Plan,
    QuestionsRecord,
    Records,
    StopRecord,
    StressRecord,
    TimedBy,
    TreatmentEvidence,
    TreatmentRecord,
)


@dataclass(frozen=True)
class Measured:
    """What was measured.

    Attributes:
        invalid: The first reason for which the records cannot be judged, or None.
        treatment: Fills per decode step of both arms; None until both were traced.
        contrasts: Per metric and batch size, one contrast per complete launch pair.
        levels: Two-level behaviour of each launch pair at the primary batch.
        passes: Graded passes in the order recorded.
        stress: What engines were put under before their pass.
        load: Blocks that count, and the foreign load beside them.
        timed: The last launch pair of which there is a block; 0 without any.
        clock: Whose clock timed the blocks that count.
        goodput: Requests that met the plan's objective at the primary batch; None without one.
        cost: What it cost so far.
        nodes: Machine of a cluster on which each launch pair ran last, where it was recorded.
        elsewhere: Why the plan's history says nothing of these launches; None where it may be borrowed.
        kinds: What is to be said of launch pairs on several kinds of device; None where there is one.
        unturned: What is to be said of starts that came in one order where they were to be turned round.
    """

    invalid: Invalid | None
    treatment: TreatmentEvidence | None
    contrasts: Contrasts = field(default_factory=dict)
    levels: tuple[PairLevels, ...] = ()
    passes: tuple[GradedPass, ...] = ()
    stress: tuple[StressRecord, ...] = ()
    load: ForeignLoad = field(default_factory=ForeignLoad)
    timed: int = 0
    clock: TimedBy = "engine"
    goodput: Goodput | None = None
    cost: Cost = field(default_factory=lambda: Cost(device_seconds=0.0, launch_pairs=0))
    nodes: Mapping[int, str] = field(default_factory=dict)
    elsewhere: str | None = None
    kinds: str | None = None
    unturned: str | None = None


def measure(records: Records, plan: Plan) -> Measured:
    """Contrasts, grades, treatment, validity and cost of these records, in whichever order pairs were measured."""
    records = records.in_pair_order()
    treatment = judge_treatment(records.of(TreatmentRecord), records.of(LaunchRecord), plan.evidence)
    passes, unasked = _passes(records, plan)
    unordered = judge_order(records, plan)
    invalid = (
        judge_validity(records, plan, passes)
        or unasked
        or judge_evidence(treatment, declared_aa=plan.declared_aa)
        or unordered
    )
    contrasts: Contrasts = {}
    levels: list[PairLevels] = []
    goodput: Goodput | None = None
    blocks = records.current_blocks() if plan.latency is not None and not unordered else ()
    clock: Clock = "client" if any(block.clock == "client" for block in blocks) else "engine"
    if plan.latency is not None:
        try:
            complete = quads_by_pair(blocks, plan.latency)
            contrasts = all_contrasts(complete, plan.latency)
            # What jumps between two levels at a client may be the network.
            levels = primary_levels(complete, plan.latency) if clock == "engine" else []
            goodput = judge_goodput(complete, plan.latency, plan.pairs_per_unit)
        except UnusableQuadError as error:
            invalid = invalid or Invalid(reason="no_measurement", detail=str(error))
    return Measured(
        invalid=invalid,
        treatment=treatment,
        contrasts=contrasts,
        levels=tuple(levels),
        passes=passes,
        stress=records.of(StressRecord),
        load=foreign_load(blocks),
        timed=max((block.pair for block in blocks), default=0),
        clock=clock,
        goodput=goodput,
        cost=_cost(records, plan),
        nodes={launch.pair: launch.node for launch in records.of(LaunchRecord) if launch.node},
        elsewhere=elsewhere(plan.history.values(), records.of(LaunchRecord)),
        kinds=kinds_note(records.of(LaunchRecord)),
        unturned=unturned_note(records, plan),
    )


def _passes(records: Records, plan: Plan) -> tuple[tuple[GradedPass, ...], Invalid | None]:
    """The graded passes of the accuracy half, or why there are none that belong to this plan."""
    if plan.accuracy is None:
        return (), None
    ids = plan.accuracy.questions.ids
    try:
        return graded_passes(ids, records.of(QuestionsRecord), records.of(PassRecord)), None
    except UnaskedQuestionError as error:
        return (), Invalid(reason="no_measurement", detail=str(error))


def _cost(records: Records, plan: Plan) -> Cost:
    return Cost(
        device_seconds=sum(device_seconds(records.of(StopRecord), plan.layout).values()),
        launch_pairs=len({launch.pair for launch in records.of(LaunchRecord)}),
    )
