"""Where the data that are not part of the repository lie, and how a test that needs them says so."""

import json
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).parents[4] / "shared"
OPEN_CASES = SHARED / "cases" / "gsm8k_extraction_open.jsonl"
ODDITIES = SHARED / "cases" / "gsm8k_gold_oddities.json"
GSM8K = SHARED / "data" / "gsm8k"
MODEL_SOLUTIONS = GSM8K / "example_model_solutions.jsonl"

MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
"""Four models answered every question of ``MODEL_SOLUTIONS``."""

needs_shared = pytest.mark.skipif(not GSM8K.is_dir(), reason="../shared is not beside this checkout")


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file; lines end in a line feed only, since U+2028 may stand inside a string."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
