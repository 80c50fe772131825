"""From stored raw records to a verdict, and nothing else: no clock, no environment, no file, no engine.

``judge(records, plan)`` can be run again on any old comparison and gives the same bytes under the same lock file.
"""

from equipoise_evals.judge.accuracy import judge_accuracy
from equipoise_evals.judge.canonical import canonical, canonical_json
from equipoise_evals.judge.latency import judge_latency
from equipoise_evals.judge.overall import judge_overall
from equipoise_evals.judge.treatment import judge_treatment
from equipoise_evals.judge.validity import judge_validity
from equipoise_evals.judge.words import words
from equipoise_evals.model import (
    AccuracyVerdict,
    BlockRecord,
    Cost,
    LatencyVerdict,
    LaunchRecord,
    PassRecord,
    Plan,
    QuestionsRecord,
    Records,
    StopRecord,
    TreatmentRecord,
    Verdict,
)

__all__ = ["canonical_json", "judge"]


def judge(records: Records, plan: Plan) -> Verdict:
    """The verdict that these records justify under this plan.

    Order: validity, treatment, accuracy, latency. ``ship`` needs both halves, so alpha is not split between them.
    """
    invalid = judge_validity(records, plan)
    treatment = judge_treatment(records.of(TreatmentRecord))
    accuracy = None if invalid else _accuracy(records, plan)
    latency = None if invalid else _latency(records, plan)
    overall = judge_overall(plan, invalid, treatment, accuracy=accuracy, latency=latency)
    said = words(overall, latency, accuracy)
    return canonical(
        Verdict(
            overall=overall,
            headline=said.headline,
            how_sure=said.how_sure,
            what_to_do=said.what_to_do,
            latency=latency,
            accuracy=accuracy,
            treatment=treatment,
            cost=_cost(records),
        )
    )


def _accuracy(records: Records, plan: Plan) -> AccuracyVerdict | None:
    questions = records.of(QuestionsRecord)
    if plan.accuracy is None or not questions:
        return None
    return judge_accuracy(plan, plan.accuracy, questions[0], records.of(PassRecord))


def _latency(records: Records, plan: Plan) -> LatencyVerdict | None:
    return None if plan.latency is None else judge_latency(plan, plan.latency, records.of(BlockRecord))


def _cost(records: Records) -> Cost:
    return Cost(
        engine_seconds=sum(stop.held_s for stop in records.of(StopRecord)),
        launch_pairs=len({launch.pair for launch in records.of(LaunchRecord)}),
    )
