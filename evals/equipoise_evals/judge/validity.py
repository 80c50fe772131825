"""Whether the records can be judged at all. A reason found here stands before every number."""

from collections.abc import Sequence

from equipoise_evals.judge.accuracy import missing_share
from equipoise_evals.judge.contrasts import UnusableQuadError, pair_contrasts
from equipoise_evals.model import BlockRecord, Invalid, LaunchRecord, PassRecord, Plan, Records


def judge_validity(records: Records, plan: Plan) -> Invalid | None:
    """The first reason for which these records cannot be judged, or None."""
    return (
        _attestation(records.of(LaunchRecord), plan)
        or _missing_answers(records.of(PassRecord), plan)
        or _comparable_blocks(records.of(BlockRecord), plan)
    )


def _attestation(launches: Sequence[LaunchRecord], plan: Plan) -> Invalid | None:
    for launch in launches:
        expected, seen = plan.arms.of(launch.role).scratch, launch.attestation.get("arm")
        if seen != expected:
            return Invalid(
                reason="attestation",
                detail=f"pair {launch.pair}, arm {launch.role}: the engine attests scratch policy {seen!r}, "
                f"the plan says {expected!r}",
            )
    return None


def _missing_answers(passes: Sequence[PassRecord], plan: Plan) -> Invalid | None:
    if plan.accuracy is None:
        return None
    share, limit = missing_share(passes), plan.accuracy.missing_share_max
    if share <= limit:
        return None
    return Invalid(
        reason="missing_answers",
        detail=f"{share:.1%} of the questions of one pass got no answer; at most {limit:.1%} may be missing. Missing "
        "answers are not wrong answers, so accuracy cannot be compared",
    )


def _comparable_blocks(blocks: Sequence[BlockRecord], plan: Plan) -> Invalid | None:
    if plan.latency is None:
        return None
    try:
        for batch in plan.latency.batch_sizes:
            for metric in ("busy", "period"):
                pair_contrasts(blocks, plan.latency, metric, batch)
    except UnusableQuadError as error:
        return Invalid(reason="no_measurement", detail=str(error))
    return None
