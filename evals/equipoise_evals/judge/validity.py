"""Whether the records can be judged at all. A reason found here stands before every number."""

from collections.abc import Sequence

from equipoise_evals.judge.confounded import judge_confounding
from equipoise_evals.judge.grades import GradedPass
from equipoise_evals.model import (
    ROLE_NAMES,
    AccuracyPlan,
    BlockRecord,
    Invalid,
    LaunchRecord,
    PassRecord,
    Plan,
    Records,
)


def judge_validity(records: Records, plan: Plan, passes: Sequence[GradedPass]) -> Invalid | None:
    """The first reason for which these records cannot be judged, or None."""
    return (
        _attestation(records.of(LaunchRecord), plan)
        or _unattested(records)
        or (missing_answers(plan.accuracy, passes) if plan.accuracy else None)
        or judge_confounding(records, plan)
    )


def _attestation(launches: Sequence[LaunchRecord], plan: Plan) -> Invalid | None:
    for launch in launches:
        if plan.arms.attached and not launch.attestation:
            continue  # An engine that ran already may lack the plugin; no verdict calls its treatment shown.
        expected, seen = plan.arms.of(launch.role).scratch, launch.attestation.get("arm")
        if seen != expected:
            return Invalid(
                reason="attestation",
                detail=f"pair {launch.pair}, arm {launch.role}: the engine attests scratch policy {seen!r}, "
                f"the plan says {expected!r}",
            )
    return None


def _unattested(records: Records) -> Invalid | None:
    """Blocks or a pass of an engine whose start alone is not on record: nothing counts of what nobody attested."""
    started = {(launch.pair, launch.role) for launch in records.of(LaunchRecord)}
    measured: tuple[BlockRecord | PassRecord, ...] = (*records.of(BlockRecord), *records.of(PassRecord))
    for one in measured:
        if started and (one.pair, one.role) not in started:
            return Invalid(
                reason="attestation",
                detail=f"pair {one.pair}, arm {one.role}: there is no record of the engine's start, so nothing "
                "attests what ran",
            )
    return None


def missing_answers(accuracy: AccuracyPlan, passes: Sequence[GradedPass]) -> Invalid | None:
    """More of the planned questions without an answer than the plan allows: in one pass, or in any of them.

    A pass at its limit hides little; passes that each lack other questions would together hide as many times more.
    """
    asked, limit = len(accuracy.questions.ids), accuracy.missing_share_max
    anywhere = missing_in(passes)
    if len(anywhere) / asked <= limit:
        return None
    worst = max(passes, key=lambda one: len(one.missing))
    missing, where = len(worst.missing), f"from the {ROLE_NAMES[worst.role]} in {worst.origin}"
    if missing / asked <= limit:
        missing, where = len(anywhere), f"in at least one of {len(passes)} passes"
    return Invalid(
        reason="missing_answers",
        detail=f"{missing} of {asked} questions got no answer {where} ({missing / asked:.1%}); at most {limit:.1%} may "
        "be missing. Missing answers are not wrong answers, so accuracy cannot be compared",
    )


def missing_in(passes: Sequence[GradedPass]) -> frozenset[int]:
    """Questions that at least one of these passes left without an answer."""
    return frozenset[int]().union(*(one.missing for one in passes))
