import json
import math

import pytest
from pydantic import ValidationError

from equipoise_evals.model import ArmSpec
from equipoise_service.requests import ArmRequest, CompareRequest

# DESIGN section 5, HTTP.
DESIGN_DEFAULTS = {
    "preset": "persistent-buffer",
    "declared_aa": False,
    "parts": ("latency", "accuracy"),
    "batch_sizes": (1, 16),
    "primary_batch": 16,
    "pairs_max": 10,
    "questions": None,
    "shots": 5,
    "prompting": "completion",
    "margin_accuracy_pp": 1.0,
    "margin_latency": 0.005,
}


def test_defaults_are_the_designs() -> None:
    request = CompareRequest(model="m").model_dump()
    assert {name: request[name] for name in DESIGN_DEFAULTS} == DESIGN_DEFAULTS


@pytest.mark.parametrize(
    "fields",
    [
        {"unknown": 1},
        {"model": ""},
        {"model": "a\x00b"},
        {"model": "a\nb"},
        {"model": None},
        {"margin_latency": math.nan},
        {"margin_latency": "NaN"},
        {"margin_latency": math.inf},
        {"margin_latency": 0},
        {"margin_accuracy_pp": "inf"},
        {"margin_accuracy_pp": 100},
        {"pairs_max": 0},
        {"pairs_max": 101},
        {"questions": 0},
        {"shots": -1},
        {"parts": []},
        {"parts": ["latency", "latency"]},
        {"parts": ["speed"]},
        {"stress": True, "parts": ["latency"]},
        {"stress": True, "pairs_max": 1},
        {"batch_sizes": []},
        {"batch_sizes": [16, 16]},
        {"batch_sizes": [0, 16]},
        {"batch_sizes": [1, 4]},
        {"seed": -1},
        {"seed": 2**31},
        {"baseline": {"flag": []}},
        {"baseline": {"flags": ["a\x00b"]}},
        {"baseline": {"environment": {"A=B": "c"}}},
        {"candidate": {"scratch": "mine"}},
        {"candidate": {"engine": "../x"}},
    ],
)
def test_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        CompareRequest.model_validate({"model": "m"} | fields)


def test_the_primary_batch_matters_to_latency_only() -> None:
    request = CompareRequest.model_validate({"model": "m", "parts": ["accuracy"], "batch_sizes": [1]})
    assert request.primary_batch == 16


def test_the_digest_is_of_the_meaning() -> None:
    one = CompareRequest.model_validate_json('{"model": "m", "shots": 5}')
    same = CompareRequest.model_validate_json('{"shots":5,\n"model":"m"}')
    implied = CompareRequest.model_validate_json('{"model": "m"}')
    other = CompareRequest.model_validate_json('{"model": "m", "shots": 4}')
    assert one.sha256 == same.sha256 == implied.sha256 != other.sha256


def test_a_stored_request_reads_back() -> None:
    request = CompareRequest.model_validate({"model": "m", "baseline": {"flags": ["--a"], "environment": {"B": "c"}}})
    assert CompareRequest.model_validate(json.loads(request.model_dump_json())) == request


PRESET_ARM = ArmSpec(name="persistent", flags=("--a", "1"), environment={"X": "1", "Y": "2"}, scratch="persistent")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (ArmRequest(), PRESET_ARM),
        (ArmRequest(flags=("--a", "2")), PRESET_ARM.model_copy(update={"flags": ("--a", "1", "--a", "2")})),
        (ArmRequest(environment={"Y": "3"}), PRESET_ARM.model_copy(update={"environment": {"X": "1", "Y": "3"}})),
        (ArmRequest(scratch="baseline"), PRESET_ARM.model_copy(update={"scratch": "baseline", "name": "baseline"})),
        (ArmRequest(name="mine", engine="old"), PRESET_ARM.model_copy(update={"name": "mine", "engine": "old"})),
    ],
)
def test_what_an_arm_request_leaves_out_stays_the_presets(changes: ArmRequest, expected: ArmSpec) -> None:
    assert changes.applied_to(PRESET_ARM) == expected
