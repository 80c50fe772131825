"""Stored records of real runs: each can be judged again to its stored bytes, and re-derived by a script not ours."""

import json
import lzma
import runpy
from pathlib import Path
from typing import Any

import pytest

from equipoise_evals.judge import canonical_json, judge
from equipoise_service.interchange import RecordsDocument
from tests.gpu.launches import runs, table

ROOT = Path(__file__).resolve().parents[2]
STORED = sorted((ROOT / "docs" / "evidence").rglob("*.records.json.xz"))
rederive = runpy.run_path(str(ROOT / "docs" / "rederive.py"))["rederive"]


def raw(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(lzma.decompress(path.read_bytes()))
    return document


def test_real_runs_are_stored() -> None:
    assert len(STORED) >= 9


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.name)
def test_a_stored_record_gives_its_stored_verdict(path: Path) -> None:
    document = RecordsDocument.model_validate(raw(path))
    assert document.verdict is not None
    assert canonical_json(judge(document.observed, document.plan)) == canonical_json(document.verdict)


@pytest.mark.parametrize("clock", ["busy", "period"])
@pytest.mark.parametrize("path", STORED, ids=lambda path: path.name)
def test_a_script_that_imports_nothing_of_ours_agrees(path: Path, clock: str) -> None:
    document = raw(path)
    latency = document["verdict"]["latency"]
    if latency is None or latency["evidence"][clock]["interval"] is None:
        pytest.skip("the run has no latency interval")
    contrast = latency["evidence"][clock]

    effect, low, high = rederive(document, clock)

    # The stored verdict is rounded to 12 significant digits.
    assert effect == pytest.approx(contrast["effect"], abs=1e-9)
    assert (low, high) == pytest.approx((contrast["interval"]["low"], contrast["interval"]["high"]), abs=1e-9)


def test_the_page_of_equal_arms_is_what_the_records_say() -> None:
    """Ten A/A comparisons at a 5 % level give three false verdicts or more with a chance of 1.2 % (binomial)."""
    found = runs(ROOT / "docs" / "evidence" / "h200")
    assert len(found) >= 10
    assert sum(run.is_false for run in found) <= 2
    assert (ROOT / "docs" / "evidence" / "h200-launches.md").read_text() == table(found) + "\n"
