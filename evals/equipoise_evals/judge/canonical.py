"""One way to write a verdict as bytes: sorted keys, 12 significant digits, so that equal evidence gives equal bytes."""

import json

from pydantic import JsonValue

from equipoise_evals.model import Verdict

SIGNIFICANT_DIGITS = 12


def rounded(value: JsonValue) -> JsonValue:
    """The same JSON value with every float rounded to 12 significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return value


def canonical(verdict: Verdict) -> Verdict:
    """The verdict as it is stored: every number at 12 significant digits."""
    return Verdict.model_validate(rounded(verdict.model_dump(mode="json")))


def canonical_json(verdict: Verdict) -> str:
    """The verdict's canonical bytes, one line, without a final newline."""
    return json.dumps(rounded(verdict.model_dump(mode="json")), sort_keys=True, separators=(",", ":"), allow_nan=False)
