"""Records of engines that ran already, as a client sees them."""

import numpy as np

from equipoise_evals.model import ArmPair, ArmSpec, BlockRecord, LaunchRecord, Plan, Record
from tests.support import records as make

ARMS = ArmPair(
    baseline=ArmSpec(name="old", scratch="baseline", attach="http://127.0.0.1:1"),
    candidate=ArmSpec(name="new", scratch="persistent", attach="http://127.0.0.1:2"),
)


def launches(plan: Plan, pairs: int, *, attested: bool = False) -> list[Record]:
    """Launches and ends of engines that ran already; they attest their arm if asked."""
    records: list[Record] = []
    for record in make.launches(plan, pairs):
        changes: dict[str, object] = {}
        if isinstance(record, LaunchRecord):
            changes = {"attached": True, "argv": (), "attestation": record.attestation if attested else {}}
        records.append(record.model_copy(update=changes))
    return records


def client_blocks(plan: Plan, pairs: int, effect: float) -> list[Record]:
    """Blocks as a client sees them: both columns the time from token to token."""
    records: list[Record] = []
    for record in make.blocks(plan, pairs, np.random.default_rng(3), effect=effect):
        assert isinstance(record, BlockRecord)
        steps = record.steps.model_copy(update={"period_us": record.steps.busy_us})
        records.append(record.model_copy(update={"steps": steps, "clock": "client"}))
    return records
