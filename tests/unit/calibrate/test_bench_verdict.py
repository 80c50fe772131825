"""What ``make bench-verdict`` writes and promises, from tallies; the simulations themselves run in the bench."""

import json
import lzma
from pathlib import Path

from equipoise_evals.calibrate.designs import COST_CELLS, REFERENCE, Tally
from tests.support.bench_verdict import HEADING, OURS, beside_the_method, broken_promises, recorded, section

EVIDENCE = Path(__file__).resolve().parents[3] / "docs" / "evidence"


def tally(mean_s: float, wrong: int = 0) -> Tally:
    return Tally(runs=100, right=100 - wrong, wrong=wrong, pairs=300, device_s=100 * mean_s, device_s_squared=0.0)


def tallies(ours_s: float, wrong: int = 0) -> dict[str, dict[str, Tally]]:
    return {cell.name: {REFERENCE: tally(1_500), OURS: tally(ours_s, wrong)} for cell in COST_CELLS}


def test_a_promise_is_a_share_of_the_reference_and_an_error_rate() -> None:
    assert broken_promises(tallies(300)) == []
    # 400 s of 1,500 s are less than a third, but more than 1/4.5.
    assert broken_promises(tallies(400)) == [
        f"{cell.name}: 1/3.75 of {REFERENCE}" for cell in COST_CELLS if cell.effect and cell.launch_sd <= 0.003
    ]
    # The exact 99 % bound of 15 in 100 lies above 5 %, that of 5 in 100 below.
    assert broken_promises(tallies(300, wrong=5)) == []
    assert len(broken_promises(tallies(300, wrong=15))) == len(COST_CELLS)


def test_the_section_takes_the_place_of_the_earlier_one() -> None:
    text = section(tallies(300), 12.0)
    page = beside_the_method("# Calibration\n\n| a | table |\n", text)
    assert page.count(HEADING) == 1
    assert page.startswith("# Calibration\n\n| a | table |\n\n" + HEADING)
    assert beside_the_method(page, section(tallies(400), 13.0)).count(HEADING) == 1


def test_the_calibration_has_the_table_beside_the_method() -> None:
    """The committed page; `make calibrate` writes it anew and puts the table back."""
    page = (EVIDENCE.parent / "calibration.md").read_text()
    assert HEADING in page
    kept = (EVIDENCE / "bench-verdict.md").read_text()
    assert [line for line in kept.splitlines() if line.startswith("|")] == [
        line for line in page.partition(HEADING)[2].splitlines() if line.startswith("|")
    ]


def test_recorded_runs_say_what_a_fixed_design_would_have_cost(tmp_path: Path) -> None:
    for suffix in ("json", "records.json.xz"):
        (tmp_path / f"llama.{suffix}").write_bytes((EVIDENCE / "h200" / f"verdict-8b-alone.{suffix}").read_bytes())
        # From before the stages of a launch pair were recorded.
        (tmp_path / f"old.{suffix}").write_bytes((EVIDENCE / "h200" / f"aa-baseline.{suffix}").read_bytes())
    (tmp_path / "failed.json").write_text("{}")  # without records
    head, _, *rows = recorded(tmp_path)
    assert head.count("|") == 8
    assert len(rows) == 1
    cells = [cell.strip() for cell in rows[0].split("|")[1:-1]]
    document = json.loads(lzma.decompress((tmp_path / "llama.records.json.xz").read_bytes()))
    cost = document["verdict"]["cost"]
    assert cells[:2] == ["llama", "NVIDIA H200"]
    assert cells[3:5] == [str(cost["launch_pairs"]), f"{cost['device_seconds']:.0f}"]
    assert float(cells[6]) > 10 * 2 * float(cells[5]) > float(cells[4])
