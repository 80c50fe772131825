"""Whether the arms ran different code, read from profiler traces and attestations, never from the code that allocates.

Three rules, by what the plan declares: fills and allocations alone, as for scratch policies; whatever evidence is
named; or, where nothing is named, the whole trace. A plan that names evidence which does not appear, while something
else differs, compares something else than was meant.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from pydantic import JsonValue

from equipoise_evals.model import (
    BY_FILLS,
    FILLS,
    ROLES,
    STEPS,
    AttributeEvidence,
    Claim,
    Evidence,
    FillsEvidence,
    Invalid,
    KernelEvidence,
    LaunchRecord,
    Role,
    TreatmentEvidence,
    TreatmentRecord,
)

LEAST_DIFFERENCE_PER_STEP = 0.5
"""A kernel that one arm runs in every step differs by 1 or more; trace edges cost far less than half a one a step."""
NAMES_SHOWN = 40
"""Names in a verdict; the records hold all of them."""
NAMES_TOLD = 5

PerStep = Mapping[str, float]
Attested = Mapping[Role, Sequence[LaunchRecord]]
Said = tuple[str, ...]
"""The distinct values that an arm's launches gave; none where none was recorded, and several where they disagree."""


def judge_treatment(
    records: Sequence[TreatmentRecord],
    launches: Sequence[LaunchRecord] = (),
    declared: tuple[Evidence, ...] = BY_FILLS,
) -> TreatmentEvidence | None:
    """Hold what was declared against the arms' counts per step and what they attested; None until both have a trace."""
    by_role: dict[Role, list[TreatmentRecord]] = {"A": [], "B": []}
    for record in records:
        by_role[record.role].append(record)
    if not by_role["A"] or not by_role["B"]:
        return None
    by_fills, phase = declared == BY_FILLS, records[0].phase
    baseline, candidate = (_per_step(by_role[role], fills_only=by_fills) for role in ROLES)
    differing = _differing(baseline, candidate)
    attested: Attested = {role: [launch for launch in launches if launch.role == role] for role in ROLES}
    claims = () if by_fills else tuple(_claim(one, baseline, candidate, attested, STEPS[phase]) for one in declared)
    shown = (differing or sorted(baseline.keys() | candidate.keys())) if by_fills else differing[:NAMES_SHOWN]
    return TreatmentEvidence(
        activity=records[0].activity,
        active=all(claim.shown for claim in claims) if claims else bool(differing),
        baseline_per_step={name: baseline.get(name, 0.0) for name in sorted(shown)},
        candidate_per_step={name: candidate.get(name, 0.0) for name in sorted(shown)},
        baseline_pdl=by_role["A"][0].pdl,
        candidate_pdl=by_role["B"][0].pdl,
        rule="fills" if by_fills else "declared" if claims else "kernels",
        claims=claims,
        differing=None if by_fills else len(differing),
        phase=phase,
    )


def judge_evidence(treatment: TreatmentEvidence | None, *, declared_aa: bool) -> Invalid | None:
    """The refusal of a run in which something else differs than what was declared: in a declared A/A, anything."""
    if treatment is None:
        return None
    if declared_aa:
        return Invalid(reason="arms_differ", detail=_differing_text(treatment)) if treatment.arms_differ else None
    return Invalid(reason="evidence_missing", detail=missing_text(treatment)) if treatment.contradicted else None


def missing_text(treatment: TreatmentEvidence) -> str:
    """Which declared evidence did not appear, and what was seen instead."""
    missing = "; ".join(f"{claim.declared}: {claim.seen}" for claim in treatment.claims if not claim.shown)
    told = _told(treatment)
    per = f"per {STEPS[treatment.phase]}"
    instead = f"{treatment.differing} names differ {per}, among them {told}" if told else f"no counts {per} differ"
    return f"declared evidence did not appear ({missing}); seen instead: {instead}"


def _differing_text(treatment: TreatmentEvidence) -> str:
    """What differs between arms that were declared equal."""
    told = _told(treatment)
    counts = [f"{told} per {STEPS[treatment.phase]}"] if told else []
    claims = [f"{claim.declared}: {claim.seen}" for claim in treatment.claims if claim.shown]
    return f"arms that were declared equal ran different code ({'; '.join([*counts, *claims])})"


def _told(treatment: TreatmentEvidence) -> str:
    """The names whose counts differ most, with the baseline's count and the candidate's."""
    baseline, candidate = treatment.baseline_per_step, treatment.candidate_per_step
    changed = _differing(baseline, candidate)[:NAMES_TOLD]
    return ", ".join(f"{name} {baseline.get(name, 0):g} and {candidate.get(name, 0):g}" for name in changed)


def _per_step(records: Sequence[TreatmentRecord], *, fills_only: bool) -> PerStep:
    names = {name for record in records for name in record.per_step if not fills_only or FILLS.search(name)}
    return {name: fmean(record.per_step.get(name, 0.0) for record in records) for name in names}


def _differing(baseline: PerStep, candidate: PerStep) -> list[str]:
    """Names whose counts differ, the largest difference first."""

    def gap(name: str) -> float:
        return abs(baseline.get(name, 0.0) - candidate.get(name, 0.0))

    names = sorted(baseline.keys() | candidate.keys())
    return sorted((name for name in names if gap(name) >= LEAST_DIFFERENCE_PER_STEP), key=gap, reverse=True)


def _claim(one: Evidence, baseline: PerStep, candidate: PerStep, attested: Attested, step: str) -> Claim:
    match one:
        case FillsEvidence():
            return _fills(baseline, candidate, step)
        case KernelEvidence():
            counts = [sum(n for name, n in arm.items() if one.name in name) for arm in (baseline, candidate)]
            return _counted(f"kernel {one.name!r} {_CHANGES[one.change]}", counts, one.change, step)
        case AttributeEvidence():
            said = [_agreed(_attribute(launch, one) for launch in attested[role]) for role in ROLES]
            return _said(f"{one.where} {one.name}", (one.baseline, one.candidate), said)
        case _:
            said = [_version(attested[role], one.package) for role in ROLES]
            return _said(f"version of {one.package}", (one.baseline, one.candidate), said)


_CHANGES = {"appears": "appears", "disappears": "disappears", "count": "changes its count"}


def _counted(declared: str, counts: Sequence[float], change: str, step: str) -> Claim:
    a, b = counts
    ran_a, ran_b = a >= LEAST_DIFFERENCE_PER_STEP, b >= LEAST_DIFFERENCE_PER_STEP
    shown = {
        "appears": ran_b and not ran_a,
        "disappears": ran_a and not ran_b,
        "count": abs(a - b) >= LEAST_DIFFERENCE_PER_STEP,
    }[change]
    return Claim(declared=declared, seen=f"{a:g} per {step} in the baseline, {b:g} in the candidate", shown=shown)


def _fills(baseline: PerStep, candidate: PerStep, step: str) -> Claim:
    """By name: more of one fill and as many fewer of another leave the sum as it was."""
    a, b = (sum(n for name, n in arm.items() if FILLS.search(name)) for arm in (baseline, candidate))
    differing = sum(FILLS.search(name) is not None for name in _differing(baseline, candidate))
    seen = f"{a:g} per {step} in the baseline, {b:g} in the candidate; {differing} names differ"
    return Claim(declared=f"fills per {step} differ", seen=seen, shown=differing > 0)


def _said(what: str, wanted: tuple[str | None, str | None], said: Sequence[Said]) -> Claim:
    """A value that all launches of an arm must say, each arm its own; one that is not recorded shows nothing."""
    a, b = said
    matches = all(asked is None or (asked,) == seen for asked, seen in zip(wanted, said, strict=True))
    arms = zip(("baseline", "candidate"), wanted, strict=True)
    asked = " and ".join(f"{arm} {value!r}" for arm, value in arms if value)
    return Claim(
        declared=f"{what}{': ' + asked if asked else ' differs'}",
        seen=f"{_value(a)} in the baseline, {_value(b)} in the candidate",
        shown=matches and len(a) == len(b) == 1 and a != b,
    )


def _value(said: Said) -> str:
    return " and ".join(map(repr, said)) or "not recorded"


def _agreed(said: Iterable[str | None]) -> Said:
    return tuple(dict.fromkeys(value for value in said if value is not None))


def _attribute(launch: LaunchRecord, one: AttributeEvidence) -> str | None:
    """The field as text: a string as it is, anything else as JSON; None where it is missing or null."""
    found: JsonValue = dict(launch.server_info if one.where == "server_info" else launch.attestation)
    for step in one.name.split("."):
        if not isinstance(found, dict) or step not in found:
            return None
        found = found[step]
    return found if isinstance(found, str) or found is None else json.dumps(found)


def _version(launches: Sequence[LaunchRecord], package: str) -> Said:
    """From the full lists of packages; before there were any, from the few versions that were attested.

    An arm's launches are asked in one place only: the two may name the same build differently.
    """
    name = re.sub(r"[-_.]+", "-", package).lower()
    for place in ("packages", "versions"):
        lists = [launch.attestation.get(place) for launch in launches]
        versions = [listed.get(name) for listed in lists if isinstance(listed, dict)]
        if said := _agreed(None if version is None else str(version) for version in versions):
            return said
    return ()
