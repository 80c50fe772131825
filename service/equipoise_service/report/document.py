"""What every report holds: the verdict, and everything a reader needs in order to believe or repeat it."""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from equipoise_evals.model import (
    DivergenceRecord,
    Frozen,
    LaunchRecord,
    PassRecord,
    Plan,
    QuestionsRecord,
    Role,
    SpentRecord,
    Verdict,
)
from equipoise_service.errors import NotFinished
from equipoise_service.report.outputs import Outputs, outputs_of
from equipoise_service.report.provenance import Provenance, provenance_of
from equipoise_service.report.spending import Spending, spending_of
from equipoise_service.report.warnings import attached_warnings, warnings_of
from equipoise_service.store import RecordParts, Stored

FACTS = ("versions", "device", "backend_class", "kernel_path", "seam")
"""What of an attestation the report shows; the rest is in the records."""


class EngineFacts(Frozen):
    """What the engines of one arm said they are. Starts that said the same are one entry.

    Attributes:
        pairs: Launch pairs of these starts.
        facts: Out of the attestation: versions, device, class of the decode backend, kernel path.
        attached: Whether they ran already, so that nobody here knows their flags.
    """

    role: Role
    pairs: tuple[int, ...]
    facts: dict[str, JsonValue]
    attached: bool = False


class Report(Frozen):
    """One finished comparison.

    Attributes:
        warnings: What a reader should know before believing it, one sentence each.
        provenance: Packages of both arms' engines; None where they were not recorded.
        outputs: Passes and their outputs compared; None without an accuracy half.
        spending: Where the time went, as far as it was recorded.
    """

    schema_version: Literal[1] = 1
    comparison_id: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    verdict: Verdict
    differs: tuple[str, ...]
    engines: tuple[EngineFacts, ...]
    plan: Plan
    warnings: tuple[str, ...] = ()
    outputs: Outputs | None = None
    provenance: Provenance | None = None
    spending: Spending = Spending(stage_s={}, starts=())


def build_report(stored: Stored, parts: RecordParts) -> Report:
    """The report of a comparison.

    Raises:
        NotFinished: It has no verdict.
    """
    if stored.verdict is None:
        raise NotFinished(stored.id, stored.status)
    return report_of(stored, Plan.model_validate_json(stored.plan), Verdict.model_validate_json(stored.verdict), parts)


def report_of(stored: Stored, plan: Plan, verdict: Verdict, parts: RecordParts) -> Report:
    """The report of a comparison whose plan and verdict are read already."""
    launches = [LaunchRecord.model_validate_json(part.payload) for part in parts.parts(stored.id, "launch")]
    outputs = read_outputs(stored.id, parts)
    return Report(
        comparison_id=stored.id,
        created_at=stored.created_at,
        started_at=stored.started_at,
        finished_at=stored.finished_at,
        verdict=verdict,
        differs=plan.arms.candidate.differs_from(plan.arms.baseline),
        engines=tuple(engine_facts(launches)),
        plan=plan,
        warnings=(*warnings_of(verdict, outputs), *attached_warnings(launches)),
        outputs=outputs,
        provenance=provenance_of(launches),
        spending=spending_of(
            [SpentRecord.model_validate_json(part.payload) for part in parts.parts(stored.id, "spent")], launches
        ),
    )


def read_outputs(comparison_id: str, parts: RecordParts) -> Outputs | None:
    """The outputs of a stored comparison, of the records that hold them."""
    return outputs_of(
        [QuestionsRecord.model_validate_json(part.payload) for part in parts.parts(comparison_id, "questions")],
        [PassRecord.model_validate_json(part.payload) for part in parts.parts(comparison_id, "pass")],
        [DivergenceRecord.model_validate_json(part.payload) for part in parts.parts(comparison_id, "divergence")],
    )


def engine_facts(launches: Iterable[LaunchRecord]) -> Iterable[EngineFacts]:
    """The distinct facts of each arm's engines, baseline first."""
    pairs: dict[tuple[Role, str, bool], list[int]] = {}
    for launch in sorted(launches, key=lambda launch: (launch.role, launch.pair)):
        facts = {name: launch.attestation[name] for name in FACTS if name in launch.attestation}
        pairs.setdefault((launch.role, json.dumps(facts, sort_keys=True), launch.attached), []).append(launch.pair)
    for (role, facts_text, attached), its_pairs in pairs.items():
        yield EngineFacts(
            role=role, pairs=tuple(sorted(set(its_pairs))), facts=json.loads(facts_text), attached=attached
        )
