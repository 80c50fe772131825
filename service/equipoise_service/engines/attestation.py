"""What an engine says it is, held against what it was started to be. Pure.

SGLang's plugin loader logs an error and goes on without the plugin, so silence proves nothing: an engine counts only
once its own scheduler process reports the arm, from the effect that it saw.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue

from equipoise_evals.model import ArmSpec, ModelRef, ScratchPolicy
from equipoise_service.engines.wire import JsonObject

KEY = "equipoise"
PACKAGES = "packages"
"""Of the plugin's record: every package in the engine's environment with its version."""

POLICIES: Mapping[ScratchPolicy, str | None] = {
    "baseline": "PerCallScratch",
    "persistent": "PersistentScratch",
    "upstream": None,
}
"""The class that must be at work in each arm; the upstream arm has none of ours."""
SCALE_SHARED: Mapping[ScratchPolicy, bool | None] = {"baseline": False, "persistent": True, "upstream": None}
"""The effect that must have been seen in decode calls: whether layers got one scale tensor."""
HEALTHY_GUARD = frozenset({"unchecked", "clean", "not_applicable"})

REPORTED = (
    "version", "device", "dtype", "kv_cache_dtype", "quantization", "attention_backend", "decode_attention_backend",
    "prefill_attention_backend", "sampling_backend", "max_total_num_tokens", "max_total_tokens",
    "max_running_requests", "page_size", "chunked_prefill_size", "mem_fraction_static", "disable_radix_cache",
    "disable_cuda_graph", "cuda_graph_bs_decode", "random_seed", "tp_size", "dp_size", "speculative_algorithm",
    "startup_time", "stream_interval",
)  # fmt: skip
"""The fields of ``/server_info`` that a reader needs; the rest is SGLang's whole configuration."""


class AttestationError(Exception):
    """The engine is not, or does not prove to be, what was asked for; the text lists every point."""


class Expected(NamedTuple):
    """What an engine was started to be."""

    arm: ArmSpec
    model: ModelRef
    launch_id: str


def attested(expected: Expected, server_info: JsonObject, model_info: JsonObject) -> dict[str, JsonValue]:
    """The plugin's record of every rank's first, or a refusal.

    Args:
        expected: What was asked for.
        server_info: The whole answer of ``/server_info``.
        model_info: The whole answer of ``/model_info``.

    Raises:
        AttestationError: With all points in which they differ.
    """
    faults = _model_faults(expected.model, model_info)
    records = _records(server_info)
    if not records or any(record is None for record in records):
        faults.append(
            "the engine shows no attestation: the Equipoise plugin is missing from its environment or did not load "
            f"(expected internal_states[i][{KEY!r}] in /server_info for each of {len(records)} ranks)"
        )
        raise AttestationError("; ".join(faults))
    present = [record for record in records if record is not None]
    for rank, record in enumerate(present):
        faults += _record_faults(rank, record, expected.arm, expected.launch_id)
    if faults:
        raise AttestationError("; ".join(faults))
    return dict(present[0])


def attached_record(arm: ArmSpec, server_info: JsonObject) -> dict[str, JsonValue]:
    """The plugin's record of an engine that ran already, its first rank's; empty where none of its ranks has one.

    Raises:
        AttestationError: Only some ranks attest, or one attests another arm than was meant.
    """
    records = _records(server_info)
    present = [record for record in records if record is not None]
    if not present:
        return {}
    faults = [] if len(present) == len(records) else [f"{len(present)} of {len(records)} ranks show an attestation"]
    for rank, record in enumerate(present):
        # It was launched by somebody else, under a name that nobody here knows.
        faults += _record_faults(rank, record, arm, record.get("launch_id"))
    if faults:
        raise AttestationError("; ".join(faults))
    return dict(present[0])


def reported(server_info: JsonObject) -> dict[str, JsonValue]:
    """The part of ``/server_info`` that goes into the launch record."""
    return {name: server_info[name] for name in REPORTED if name in server_info}


def clock_cost(server_info: JsonObject) -> dict[str, JsonValue]:
    """What the first rank's step clock says of its own cost, as ``step_clock``; empty if it says nothing."""
    records = _records(server_info)
    cost = records[0].get("step_clock") if records and records[0] is not None else None
    return {} if cost is None else {"step_clock": cost}


def _model_faults(model: ModelRef, model_info: JsonObject) -> list[str]:
    seen = model_info.get("model_path")
    return [] if seen == model.path else [f"expected model {model.path!r}, the engine serves {seen!r}"]


def _records(server_info: JsonObject) -> list[Mapping[str, JsonValue] | None]:
    states = server_info.get("internal_states")
    if not isinstance(states, list):
        return []
    records: list[Mapping[str, JsonValue] | None] = []
    for state in states:
        record = state.get(KEY) if isinstance(state, dict) else None
        records.append(record if isinstance(record, dict) else None)
    return records


def _record_faults(rank: int, record: Mapping[str, JsonValue], spec: ArmSpec, launch_id: JsonValue) -> list[str]:
    if "refused" in record:
        return [f"rank {rank}: the plugin refused to work: {record['refused']}"]
    scratch, guard = _part(record, "scratch"), _part(record, "guard")
    arm = spec.scratch
    wanted: list[tuple[str, JsonValue, JsonValue]] = [
        ("arm", arm, record.get("arm")),
        ("launch_id", launch_id, record.get("launch_id")),
        ("seam", "ok", record.get("seam")),
        ("scratch.policy", POLICIES[arm], scratch.get("policy")),
        ("scratch.scale_shared", SCALE_SHARED[arm], scratch.get("scale_shared")),
    ]
    faults = [
        f"rank {rank}: expected {name} {value!r}, attested {seen!r}" for name, value, seen in wanted if seen != value
    ]
    if guard.get("state") not in HEALTHY_GUARD:
        faults.append(f"rank {rank}: the guard reports {guard.get('state')!r}: {guard.get('message')}")
    steps = record.get("steps_seen")
    if not isinstance(steps, int) or steps < 1:
        faults.append(f"rank {rank}: the step clock saw no decode step (steps_seen is {steps!r})")
    return faults


def _part(record: Mapping[str, JsonValue], name: str) -> Mapping[str, JsonValue]:
    part = record.get(name)
    return part if isinstance(part, dict) else {}
