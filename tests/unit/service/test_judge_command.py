"""``equipoise judge`` over the stored evidence: tables for people, the verdict's bytes for everything else."""

import json
import sys
from pathlib import Path

import pytest

from equipoise_evals.judge import canonical_json
from equipoise_service.cli import main
from equipoise_service.cli.documents import records_of

EVIDENCE = str(Path(__file__).resolve().parents[3] / "docs" / "evidence" / "cpu-smollm2.records.json.xz")


@pytest.fixture(scope="module")
def stored() -> str:
    """The stored verdict's canonical JSON."""
    verdict = records_of(EVIDENCE, None).verdict
    assert verdict is not None
    return canonical_json(verdict)


def test_a_pipe_gets_the_stored_bytes(stored: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", EVIDENCE]) == 0
    assert capsys.readouterr().out == f"{stored}\n"


def test_a_terminal_gets_tables_unless_json_is_asked_for(
    stored: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["judge", EVIDENCE, "--check"]) == 0
    shown = capsys.readouterr()
    assert json.loads(stored)["overall"]["word"].capitalize() in shown.out
    assert "counted per step" in shown.out
    assert "schema_version" not in shown.out
    assert shown.err == "equal to the stored verdict\n"
    assert main(["judge", EVIDENCE, "--json"]) == 0
    assert capsys.readouterr().out == f"{stored}\n"
    assert main(["judge", EVIDENCE, "--output", str(tmp_path / "verdict.json")]) == 0
    assert (tmp_path / "verdict.json").read_text() == stored
    assert capsys.readouterr().out == ""
