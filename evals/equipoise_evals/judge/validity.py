"""Whether the records can be judged at all. A reason found here stands before every number."""

from collections.abc import Sequence

from equipoise_evals.judge.confounded import judge_confounding
from equipoise_evals.model import ROLE_NAMES, Invalid, LaunchRecord, PassRecord, Plan, Records


def judge_validity(records: Records, plan: Plan) -> Invalid | None:
    """The first reason for which these records cannot be judged, or None."""
    return (
        _attestation(records.of(LaunchRecord), plan)
        or _missing_answers(records.of(PassRecord), plan)
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


def _missing_answers(passes: Sequence[PassRecord], plan: Plan) -> Invalid | None:
    if plan.accuracy is None:
        return None
    share, limit = missing_share(passes), plan.accuracy.missing_share_max
    if share <= limit:
        return None
    worst = max(passes, key=lambda one: missing_share([one]))
    return Invalid(
        reason="missing_answers",
        detail=f"{sum(answer.state == 'error' for answer in worst.answers)} of {len(worst.answers)} questions got no "
        f"answer from the {ROLE_NAMES[worst.role]} in launch pair {worst.pair} ({share:.1%}); at most {limit:.1%} may "
        "be missing. Missing answers are not wrong answers, so accuracy cannot be compared",
    )


def missing_share(passes: Sequence[PassRecord]) -> float:
    """Largest share of questions without an answer in any pass."""
    return max((sum(a.state == "error" for a in p.answers) / len(p.answers) for p in passes if p.answers), default=0.0)
