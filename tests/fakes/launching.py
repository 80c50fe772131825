"""What tests need to drive the real launcher against simulated engines: a plan, an environment, a recorder."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from equipoise_evals.model import ArmPair, LatencyPlan, ModelRef, PassRecord, Plan, Record, Records
from equipoise_service.engines import EngineEnvironment, Limits, persistent_buffer
from equipoise_service.store.records import is_of

ROOT = Path(__file__).resolve().parents[2]

QUICK = Limits(start_idle_s=10, start_s=20, first_generation_s=3, request_s=20, trace_s=10, stop_grace_s=1, memory_s=1)
"""Limits under which every failure shows within seconds."""


class ListRecorder:
    """Keeps records in memory."""

    def __init__(self) -> None:
        self.kept: list[Record] = []

    def append(self, record: Record) -> None:
        """Keep one; a pass takes the place of its answers."""
        if isinstance(record, PassRecord):
            self.kept = [one for one in self.kept if not is_of(one, record)]
        self.kept.append(record)

    def records(self) -> Records:
        """All of them, in order."""
        return Records(records=tuple(self.kept))


def simulated_environment(knobs: Mapping[str, Any] | None = None, name: str = "default") -> EngineEnvironment:
    """An environment whose engines are simulated; ``knobs`` becomes ``EQUIPOISE_SIM``."""
    return EngineEnvironment(
        name=name,
        python=Path(sys.executable),
        module="tests.fakes.simulated_engine",
        plugin_path=ROOT,
        device="simulated",
        variables={"EQUIPOISE_SIM": json.dumps(knobs or {})},
    )


def latency_plan(arms: ArmPair | None = None, **fields: object) -> Plan:
    """A small plan of the latency half."""
    values: dict[str, Any] = {
        "preset": "persistent-buffer",
        "model": ModelRef(name="simulated", source="simulated", path="/simulated/model", revision="0"),
        "arms": arms or persistent_buffer("simulated"),
        "declared_aa": False,
        "pairs_max": 3,
        "looks": (3,),
        "seed": 1,
        "accuracy": None,
        "latency": LatencyPlan(
            batch_sizes=(1, 16), primary_batch=16, quads_per_pair=1, prompt_tokens=32, steps_per_block=24,
            warmup_steps=4, margin=0.005,
        ),
    }  # fmt: skip
    return Plan.model_validate(values | fields)
