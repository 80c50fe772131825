"""Whether the arms ran different code, read from profiler traces and never from the code that allocates.

For scratch policies the evidence is fills and allocations: names that create or fill a tensor. Everything else in a
trace is the model's own work, and is kept in the record for whoever wants the whole difference.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from equipoise_evals.model import FILLS, Role, TreatmentEvidence, TreatmentRecord

LEAST_DIFFERENCE_PER_STEP = 0.5
"""A fill that one arm runs in every step differs by 1 or more; trace edges cost far less than half a fill a step."""


def judge_treatment(records: Sequence[TreatmentRecord]) -> TreatmentEvidence | None:
    """Compare the arms' fills per decode step, averaged over the pairs that were traced.

    None until both arms have a trace.
    """
    by_role: dict[Role, list[TreatmentRecord]] = {"A": [], "B": []}
    for record in records:
        by_role[record.role].append(record)
    if not by_role["A"] or not by_role["B"]:
        return None
    baseline, candidate = (_fills_per_step(by_role[role]) for role in ("A", "B"))
    differing = [
        name
        for name in sorted(baseline.keys() | candidate.keys())
        if abs(baseline.get(name, 0.0) - candidate.get(name, 0.0)) >= LEAST_DIFFERENCE_PER_STEP
    ]
    shown = differing or sorted(baseline.keys() | candidate.keys())
    return TreatmentEvidence(
        activity=records[0].activity,
        active=bool(differing),
        baseline_per_step={name: baseline.get(name, 0.0) for name in shown},
        candidate_per_step={name: candidate.get(name, 0.0) for name in shown},
        baseline_pdl=by_role["A"][0].pdl,
        candidate_pdl=by_role["B"][0].pdl,
    )


def _fills_per_step(records: Sequence[TreatmentRecord]) -> Mapping[str, float]:
    names = {name for record in records for name in record.per_step if FILLS.search(name)}
    return {name: fmean(record.per_step.get(name, 0.0) for record in records) for name in names}
