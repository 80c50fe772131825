"""What commands answer, print and write of comparisons that end with a verdict."""

import json
import re
from datetime import datetime
from pathlib import Path

import pytest

from equipoise_service.store import Store
from tests.integration.service.cli.command import QUICK, Blocked, Command
from tests.integration.service.served import Serving


def test_a_slower_candidate_blocks(blocked: Blocked) -> None:
    assert "Block" in blocked.out
    assert "slower" in blocked.out


def test_judging_again_gives_the_stored_bytes(
    blocked: Blocked, beside: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert beside("judge", blocked.id, "--check") == 0
    judged = capsys.readouterr()
    assert json.loads(judged.out)["overall"]["word"] == "block"
    assert "equal to the stored verdict" in judged.err
    store = Store.open(f"sqlite:///{blocked.folder / 'data' / 'equipoise.db'}")
    stored = store.comparisons.get(blocked.id)
    store.database.close()
    assert stored is not None
    assert judged.out == f"{stored.verdict}\n"


def test_reports_by_id(blocked: Blocked, beside: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert beside("report", blocked.id) == 0
    assert capsys.readouterr().out.startswith("# Block: m\n")
    assert beside("report", blocked.id, "--format", "csv", "--output", str(tmp_path / "r.csv")) == 0
    assert (tmp_path / "r.csv").read_text().startswith("comparison_id,model,verdict,")
    assert beside("report", blocked.id, "--format", "records", "-o", str(tmp_path / "r.json")) == 0
    assert beside("judge", str(tmp_path / "r.json"), "--check") == 0


def test_a_report_without_an_id_lists_the_latest(
    blocked: Blocked, beside: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert beside("report") == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["id", "submitted", "(UTC)", "verdict", "model"]
    comparison_id, day, _, verdict, model = line.split()
    assert (comparison_id, verdict, model) == (blocked.id, "block", "m")
    assert datetime.fromisoformat(day).year >= 2024
    with Serving(blocked.folder, {}) as serving:
        assert beside("report", "--url", serving.url) == 0
        assert capsys.readouterr().out.splitlines() == [head, line]
    assert beside("report", "--format", "csv") == 64
    assert "needs the ID" in capsys.readouterr().err


def test_where_nothing_was_compared_the_list_is_empty_and_nothing_is_made(
    equipoise: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert equipoise("report") == 0
    told = capsys.readouterr()
    assert (told.out, "no comparisons here yet" in told.err) == ("", True)
    assert not (tmp_path / "data").exists()


def test_a_half_that_was_left_out_is_undecided(equipoise: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert equipoise("compare", "m", *QUICK, "--json", effect={"persistent": -0.05}) == 2
    view = json.loads(capsys.readouterr().out)
    assert (view["status"], view["verdict"]["overall"]["word"]) == ("succeeded", "inconclusive")


def test_a_dry_run_says_the_cost_and_starts_nothing(equipoise: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert equipoise("compare", "--dry-run", "--parts", "latency", "--pairs-max", "4") == 0
    assert re.search(r"3 to 4 launch pairs, [\d.]+ to [\d.]+ minutes of the device", capsys.readouterr().out)
    assert equipoise("compare", "--dry-run", "--json", "--pairs-max", "4") == 0
    assert json.loads(capsys.readouterr().out)["estimate"]["basis"] == "profile"
    assert equipoise("report") == 0
    assert "embedded" not in capsys.readouterr().out


def test_the_same_arm_on_both_sides_is_inactive(equipoise: Command, capsys: pytest.CaptureFixture[str]) -> None:
    same = '{"scratch": "persistent"}'
    assert equipoise("compare", "m", *QUICK, "--baseline", same, "--candidate", same) == 2
    assert "Treatment inactive" in capsys.readouterr().out


def test_a_margin_may_be_given_in_percent(
    equipoise: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    margins = ("--margin-latency", "1%", "--margin-accuracy-pp", "2pp")
    assert equipoise("compare", "m", *QUICK, *margins, "--json", effect={"persistent": -0.05}) == 2
    view = json.loads(capsys.readouterr().out)
    assert view["plan"]["latency"]["margin"] == 0.01
    assert view["request"]["margin_accuracy_pp"] == 2.0


def test_a_plan_says_what_it_rests_on_and_what_would_decide(
    equipoise: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert equipoise("plan", "--effect", "-1%", "--launch-sd", "1%") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Step time -1.00%, launches that differ by 1.00%" in said
    assert "latency needs about 14 launch pairs (--pairs-max 14)" in said
    assert equipoise("plan", "--pairs-max", "20") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "may stop at 3, 4, 5, 6, 8, 10 and 20 pairs only: the allowed error is spent over exactly these looks" in said
    )
    assert equipoise("plan", "--pairs-max", "3") == 0
    assert "may stop at 3 pairs only" in capsys.readouterr().out


def test_a_request_can_come_from_a_file_and_options_win(
    equipoise: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "request.json"
    file.write_text('{"model": "from-file", "preset": "persistent-buffer", "pairs_max": 0}')
    assert equipoise("compare", "--request", str(file), "--preset", "none") == 64
    said = capsys.readouterr().err
    assert "/pairs_max" in said
    file.write_text("{}")
    assert equipoise("compare", "--request", str(file), "--preset", "none") == 64
    assert "'none'" in capsys.readouterr().err


def test_records_that_give_another_verdict_fail_the_check(
    blocked: Blocked, beside: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with Serving(blocked.folder, {}) as serving:
        document = serving.get(f"/comparisons/{blocked.id}/records")
        assert beside("judge", blocked.id, "--url", serving.url, "--check") == 0
        assert beside("report", blocked.id, "--url", serving.url, "--format", "records") == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1]) == document
        assert beside("report", blocked.id, "--url", serving.url) == 0
        assert "# Block: m" in capsys.readouterr().out
    file = tmp_path / "records.json"
    file.write_text(json.dumps(document))
    assert beside("judge", str(file), "--check") == 0
    document["verdict"]["headline"] = "Ship it."
    file.write_text(json.dumps(document))
    assert beside("judge", str(file)) == 0
    assert beside("judge", str(file), "--check") == 3
    assert "not the stored verdict" in capsys.readouterr().err
    document["verdict"] = None
    file.write_text(json.dumps(document))
    assert beside("judge", str(file), "--check") == 3
    assert "no stored verdict" in capsys.readouterr().err


def test_doctor_finds_nothing_wrong_here(equipoise: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert equipoise("doctor", "--json") == 0
    found = {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert found["engine environment"]["state"] == "ok"
    assert found["engine processes"]["detail"] == "0 of this data folder's service"
    assert "simulated" in found["device"]["detail"]
    assert equipoise("doctor") == 0
    assert "engine processes: 0 of" in capsys.readouterr().out
