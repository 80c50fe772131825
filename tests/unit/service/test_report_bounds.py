"""Reports as documents: long ones fit a comment, JSON is as published, and the same record gives the same bytes."""

import hashlib
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from equipoise_evals.judge import judge
from equipoise_evals.model import ArmPair, ArmSpec, PassRecord, Record, Records
from equipoise_service.interchange import RecordsDocument
from equipoise_service.report import FORMATS, Report, build_report, to_json, to_markdown
from equipoise_service.report.markdown import CUT, LONGEST_BYTES
from equipoise_service.report.outputs import outputs_of
from equipoise_service.store import Lease, NewComparison, Store
from tests.support import records as make
from tests.unit.service.test_report import judged, report_of

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = ROOT / "docs" / "schemas" / "report.json"
MEASURED = ROOT / "docs" / "evidence" / "cpu-smollm2.records.json.xz"
ID = "01890000-0000-7000-8000-000000000000"


def differing_passes(pairs: int, questions: int, text: str) -> list[PassRecord]:
    """Passes in which every question is right in one arm only, after this text."""
    wording = dict.fromkeys(range(questions), text)
    return [
        make.one_pass(pair, role, [role == "A"] * questions, style=wording)
        for pair in range(1, pairs + 1)
        for role in ("A", "B")
    ]


def long_report(pairs: int, questions: int, text: str) -> Report:
    plan = make.plan(accuracy=make.accuracy_plan(questions))
    passes = differing_passes(pairs, questions, text)
    outputs = outputs_of([make.questions(questions)], passes, ())
    return report_of(plan, judged(make.plan())[1]).model_copy(update={"outputs": outputs})


@pytest.mark.parametrize(
    ("pairs", "text", "listed"),
    [(1, "short ", 20), (2, "e" * 590, 10), (4, "é" * 2_000, 3), (40, "`|<" * 700, 0)],
)
def test_markdown_fits_a_comment_and_says_what_it_leaves_out(pairs: int, text: str, listed: int) -> None:
    markdown = to_markdown(long_report(pairs, 40, text))
    assert len(markdown.encode()) <= LONGEST_BYTES == 60_000
    first = markdown.split("### Where A1 and B1 part")[1].split("\n### ")[0]
    assert first.count("is right in one arm only") == listed
    assert (f"{40 - listed} more are not shown" if listed else "In 40 answers; left out here") in first
    assert "## How it was measured" in markdown
    assert CUT not in markdown


def test_what_has_no_room_at_all_is_cut_at_the_end_of_a_line() -> None:
    arms = ArmPair(
        baseline=ArmSpec(name="a", scratch="baseline", flags=("--é",) * 40_000),
        candidate=ArmSpec(name="b", scratch="persistent"),
    )
    markdown = to_markdown(report_of(make.plan(arms=arms), judged(make.plan())[1]))
    assert len(markdown.encode()) <= LONGEST_BYTES
    assert markdown.endswith(CUT)
    assert "## Latency" in markdown
    assert "--é" not in markdown


def stored_report(document: RecordsDocument, folder: Path) -> Report:
    store = Store.open(f"sqlite:///{folder / 'e.db'}")
    new = NewComparison(ID, document.plan.model.name, "{}", "0" * 64, document.plan.model_dump_json())
    store.comparisons.add(new)
    for record in document.records:
        store.records.append(ID, record)
    assert document.verdict is not None
    store.comparisons.claim(Lease("test"))
    store.comparisons.judge(ID)
    store.comparisons.succeed(ID, document.verdict.model_dump_json(), document.verdict.overall.word)
    stored = store.comparisons.get(ID)
    assert stored is not None
    report = build_report(stored, store.records)
    store.database.close()
    return report


def documents() -> dict[str, RecordsDocument]:
    """A real run, and simulated ones that end with other words."""
    found = {"measured": RecordsDocument.model_validate_json(lzma.decompress(MEASURED.read_bytes()))}
    plan = make.plan()
    rng = np.random.default_rng(5)
    cases: dict[str, list[list[Record]]] = {
        "ship": [
            make.launches(plan, 3),
            make.treatment(),
            make.equal_passes(),
            make.blocks(plan, 3, rng, effect=-0.02),
        ],
        "block": [
            make.launches(plan, 3),
            make.treatment(),
            make.equal_passes(),
            make.blocks(plan, 3, rng, effect=0.05),
        ],
        "treatment_inactive": [make.launches(plan, 1), make.treatment(60.0, 60.0)],
        "inconclusive": [make.launches(plan, 1), make.treatment(), make.blocks(plan, 1, rng)],
    }
    for name, parts in cases.items():
        records = Records(records=(make.questions(), *(record for part in parts for record in part)))
        verdict = judge(records, plan)
        assert verdict.overall.word == name
        found[name] = RecordsDocument(plan=plan, records=records.records, verdict=verdict)
    return found


@pytest.mark.parametrize("name", ["measured", "ship", "block", "treatment_inactive", "inconclusive"])
def test_the_json_report_is_as_published(name: str, tmp_path: Path) -> None:
    report = json.loads(to_json(stored_report(documents()[name], tmp_path)))
    schema = json.loads(SCHEMA.read_text())
    jsonschema.validate(report, schema, cls=jsonschema.Draft202012Validator)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report | {"verdict": {}}, schema, cls=jsonschema.Draft202012Validator)


AGAIN = """
import hashlib, sys
from equipoise_service.report import FORMATS, Report
report = Report.model_validate_json(open(sys.argv[1]).read())
print(*(f"{name} {hashlib.sha256(FORMATS[name](report).encode()).hexdigest()}" for name in sorted(FORMATS)), sep="\\n")
"""


def test_the_same_record_gives_the_same_bytes_whatever_the_process(tmp_path: Path) -> None:
    document = documents()["measured"]
    first, second = (stored_report(document, tmp_path / name) for name in ("a", "b"))
    # The database stamps its own times; everything else comes out of the record.
    same = {name: getattr(first, name) for name in ("created_at", "started_at", "finished_at")}
    assert second.model_copy(update=same) == first
    (tmp_path / "report.json").write_text(to_json(first))
    expected = [f"{name} {hashlib.sha256(FORMATS[name](first).encode()).hexdigest()}" for name in sorted(FORMATS)]
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "LC_ALL": "C", "TZ": "Asia/Tokyo"}
        command = [sys.executable, "-c", AGAIN, str(tmp_path / "report.json")]
        printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        assert printed.splitlines() == expected
