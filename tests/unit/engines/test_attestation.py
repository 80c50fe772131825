"""Every way in which an engine can fail to be what it was started to be. Base: the record of a real engine."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from equipoise_evals.model import ArmSpec, ModelRef, ScratchPolicy
from equipoise_service.engines.attestation import AttestationError, Expected, attested, reported

REAL = json.loads((Path(__file__).parents[2] / "contract" / "data" / "sglang-0.5.23.json").read_text())
SERVER: dict[str, Any] = REAL["server_info"]["json"]
MODEL: dict[str, Any] = REAL["model_info"]["json"]
LAUNCH_ID = SERVER["internal_states"][0]["equipoise"]["launch_id"]


def expected(scratch: ScratchPolicy = "persistent") -> Expected:
    model = ModelRef(name="m", source="folder", path="MODEL", revision="0")
    return Expected(ArmSpec(name=scratch, scratch=scratch), model, LAUNCH_ID)


def changed(**fields: object) -> dict[str, Any]:
    """The real answer with fields of the plugin's record replaced; ``scratch__policy`` reaches inside."""
    info = copy.deepcopy(SERVER)
    record = info["internal_states"][0]["equipoise"]
    for name, value in fields.items():
        *outer, last = name.split("__")
        place = record
        for part in outer:
            place = place[part]
        place[last] = value
    return info


def test_the_record_of_the_plugin_is_returned_unedited() -> None:
    assert attested(expected(), SERVER, MODEL) == SERVER["internal_states"][0]["equipoise"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"arm": "baseline"}, "expected arm 'persistent', attested 'baseline'"),
        ({"launch_id": "eq-other"}, "expected launch_id"),
        ({"seam": ["no Scheduler.on_idle"]}, "no Scheduler.on_idle"),
        ({"scratch__policy": "PerCallScratch"}, "expected scratch.policy 'PersistentScratch'"),
        ({"scratch__scale_shared": False}, "expected scratch.scale_shared True, attested False"),
        ({"scratch": None}, "expected scratch.policy 'PersistentScratch', attested None"),
        ({"guard__state": "dirty", "guard__message": "counter 7 is 1"}, "'dirty': counter 7 is 1"),
        ({"steps_seen": 0}, "saw no decode step"),
        ({"steps_seen": None}, "saw no decode step"),
        ({"refused": "EQUIPOISE_ARM is not set"}, "the plugin refused to work: EQUIPOISE_ARM is not set"),
    ],
)
def test_each_mismatch_is_named_with_what_was_expected_and_seen(fields: dict[str, object], says: str) -> None:
    with pytest.raises(AttestationError) as refusal:
        attested(expected(), changed(**fields), MODEL)

    assert says in str(refusal.value)


def test_all_points_are_listed_at_once() -> None:
    with pytest.raises(AttestationError) as refusal:
        attested(expected("baseline"), SERVER, {"model_path": "/other"})

    text = str(refusal.value)
    assert "expected model 'MODEL', the engine serves '/other'" in text
    assert "expected arm 'baseline', attested 'persistent'" in text
    assert "expected scratch.scale_shared False, attested True" in text


@pytest.mark.parametrize("states", [None, [], [{}], [{"equipoise": None}], "nonsense"])
def test_silence_proves_nothing(states: JsonValue) -> None:
    with pytest.raises(AttestationError, match="plugin is missing"):
        attested(expected(), {**SERVER, "internal_states": states}, MODEL)


def test_every_rank_must_attest() -> None:
    states = [SERVER["internal_states"][0], {}]

    with pytest.raises(AttestationError, match="for each of 2 ranks"):
        attested(expected(), {**SERVER, "internal_states": states}, MODEL)


def test_the_upstream_arm_has_no_scratch_of_ours() -> None:
    nothing = dict.fromkeys(SERVER["internal_states"][0]["equipoise"]["scratch"])
    info = changed(arm="upstream", scratch=nothing, guard={"state": "not_applicable", "message": None, "checks": 0})

    assert attested(expected("upstream"), info, MODEL)["arm"] == "upstream"


def test_what_is_reported_leaves_out_the_rest_of_the_configuration() -> None:
    info = reported({**SERVER, "api_key": "secret", "launch_command": "…"})

    assert info["max_total_num_tokens"] == 16384
    assert not {"api_key", "launch_command", "internal_states"} & set(info)
