"""From what was measured to the words. Order: validity, treatment, accuracy, latency.

``ship`` needs both halves, so alpha is not split between them.
"""

from equipoise_evals.judge.accuracy import judge_accuracy
from equipoise_evals.judge.canonical import canonical
from equipoise_evals.judge.latency import judge_latency
from equipoise_evals.judge.measure import Measured
from equipoise_evals.judge.overall import judge_overall
from equipoise_evals.judge.two_level import disturbed
from equipoise_evals.judge.words import words
from equipoise_evals.model import Plan, Verdict


def conclude(measured: Measured, plan: Plan) -> Verdict:
    """The verdict that these measurements justify under this plan."""
    judged = measured.invalid is None
    accuracy = judge_accuracy(plan, plan.accuracy, measured) if judged and plan.accuracy else None
    latency = judge_latency(plan, plan.latency, measured) if judged and plan.latency else None
    invalid = measured.invalid or (disturbed(latency.evidence.two_level) if latency else None)
    overall = judge_overall(plan, invalid, measured.treatment, accuracy=accuracy, latency=latency)
    rule = measured.treatment.rule if measured.treatment else "fills"
    said = words(overall, latency, accuracy, declared_aa=plan.declared_aa, rule=rule, phase=plan.phase)
    return canonical(
        Verdict(
            overall=overall,
            headline=said.headline,
            how_sure=said.how_sure,
            what_to_do=said.what_to_do,
            latency=latency,
            accuracy=accuracy,
            treatment=measured.treatment,
            cost=measured.cost,
        )
    )
