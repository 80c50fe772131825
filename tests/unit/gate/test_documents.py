"""What pipelines read: JUnit through an independent parser, annotations by GitHub's rules, JSON that comes back."""

import json

import pytest
from junitparser import Error, Failure, Skipped, TestSuite

from equipoise_service.gate import Check, GateResult, Policy
from equipoise_service.gate.documents import GateDocument, annotations, gate_json, junit, summary
from equipoise_service.gate.policy import Waiver

MARKUP = "<img src=x onerror=alert(1)> `|\x00"
WAIVER = Waiver.model_validate({"check": "latency", "by": "J", "reason": "r", "expires": "2026-12-31"})


def document(*checks: Check, code: int = 0, error: str | None = None) -> GateDocument:
    result = None
    if error is None:
        decision = {0: "pass", 1: "block", 2: "undecided"}[code]
        result = GateResult.model_validate(
            {
                "decision": decision,
                "overall": "ship",
                "headline": MARKUP,
                "checks": checks,
                "warnings": ("50% sure\nof it",),
            }
        )
    return GateDocument(
        exit_code=code,
        at="2026-11-30T00:00:00+00:00",
        model=MARKUP,
        comparison_id="c",
        report=None,
        policy=Policy(version=1),
        result=result,
        error=error,
    )


def check(state: str, *, required: bool = True, waiver: Waiver | None = None) -> Check:
    return Check.model_validate(
        {"name": "latency", "required": required, "state": state, "word": "slower", "detail": MARKUP, "waiver": waiver}
    )


def test_gate_json_comes_back() -> None:
    made = document(check("waived", waiver=WAIVER))
    assert GateDocument.model_validate(json.loads(gate_json(made))) == made


def results(xml: str) -> list[list[type]]:
    """Kinds of result of every test case, as the independent parser reads them."""
    suite = TestSuite.fromstring(xml)
    cases = list(suite)
    assert suite.tests == len(cases)
    return [[type(result) for result in case.result] for case in cases]


@pytest.mark.parametrize(
    ("checks", "code", "expected"),
    [
        ([check("pass")], 0, [None]),
        ([check("fail")], 1, [Failure]),
        ([check("undecided")], 2, [Failure]),
        ([check("undecided")], 0, [Skipped]),
        ([check("fail", required=False)], 0, [Skipped]),
        ([check("waived", waiver=WAIVER), check("pass")], 0, [Skipped, None]),
    ],
)
def test_junit_has_a_case_per_check(checks: list[Check], code: int, expected: list[type | None]) -> None:
    assert results(junit(document(*checks, code=code))) == [[kind] if kind else [] for kind in expected]


def test_junit_of_an_error_is_an_error() -> None:
    assert results(junit(document(code=3, error=MARKUP))) == [[Error]]


def test_annotations_are_one_line_each_and_escaped() -> None:
    assert annotations(document(check("fail"), code=1)) == (
        f"::error title=equipoise gate::{MARKUP}",
        "::warning title=equipoise gate::50%25 sure%0Aof it",
    )
    assert annotations(document(code=3, error="gone"))[0] == "::error title=equipoise gate::gone"
    assert annotations(document(check("pass")))[0].startswith("::warning")


def test_the_summary_shows_markup_as_text() -> None:
    text = summary(document(check("fail"), code=1))
    assert "<img" not in text
    assert "## Gate: block" in text
    assert summary(document(code=3, error="gone")) == "## Gate: error\n\ngone\n"
