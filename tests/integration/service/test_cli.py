"""The command line over simulated engines, started by the real launcher: exit codes and documents."""

import json
import re
import shlex
import subprocess
import sys
from datetime import datetime
from importlib.metadata import version as package_version
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from equipoise_service.cli import main
from equipoise_service.profiles import PROFILES
from equipoise_service.store import Store
from tests.integration.service.command import QUICK, Command, command_in, engines_below, id_in
from tests.integration.service.served import Serving, clean_environment, variables_of


class Blocked(NamedTuple):
    """A finished comparison that blocks, what the command printed, and the folder it is in."""

    id: str
    out: str
    folder: Path


@pytest.fixture(scope="module")
def blocked(tmp_path_factory: pytest.TempPathFactory) -> Blocked:
    folder = tmp_path_factory.mktemp("blocked")
    environment = clean_environment() | variables_of(folder, effect={"persistent": 0.05})
    command = [sys.executable, "-m", "equipoise_service", "compare", "m", *QUICK, "--pairs-max", "3"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    return Blocked(id_in(done.stderr), done.stdout, folder)


@pytest.fixture
def beside(blocked: Blocked, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command over the data folder of the finished comparison."""
    monkeypatch.chdir(blocked.folder)
    return command_in(blocked.folder, monkeypatch)


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


NOBODY = "01890000-0000-7000-8000-000000000000"
"""An id that no comparison has."""


@pytest.mark.parametrize("command", [["report", NOBODY], ["judge", NOBODY], ["gate", "--comparison", NOBODY]])
def test_an_unknown_id_is_wrong_use_and_says_what_lists_them(
    beside: Command, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert beside(*command) == 64
    told = capsys.readouterr()
    assert f"there is no comparison '{NOBODY}'" in told.out + told.err
    assert "`equipoise report`" in told.out.replace("\\", "") + told.err


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


def test_an_engine_that_does_not_start_is_an_error_with_its_log(
    equipoise: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert equipoise("compare", "m", *QUICK, failures=[{"kind": "crash_at_start", "role": "B"}]) == 3
    said = capsys.readouterr().err
    assert "is failed: arm B, stage start" in said
    assert "exited with status 3" in said
    assert engines_below(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["compare", "m", "--nonsense"], "No such option"),
        (["compare", "m", "--pairs-max", "many"], "valid integer"),
        (["compare", "m", "--pairs-max", "0"], "/pairs_max"),
        (["compare", "m", "--batch-sizes", "1,x"], "/batch_sizes/1"),
        (["compare", "m", "--stress", "--pairs-max", "1"], "stress is followed by a second pass"),
        (["compare", "m", "--preset", "none"], "known: attention-backend, flag"),
        (["compare", "m", "--candidate", "{"], "not JSON"),
        (["compare", "m", "--model", "n"], "named twice"),
        (["compare", "--model", "m", "--preset", "none"], "known: attention-backend, flag"),
        (["compare", "m", "--candidate", "[]"], "JSON object"),
        (["compare", "m", "--margin-latency", "small"], "a share such as 0.5%, not 'small'"),
        (["compare", "m", "--margin-latency", "1pp"], "a share such as 0.5%, not '1pp'"),
        (["compare", "m", "--margin-accuracy-pp", "200"], "0.0001 to 90 points, such as 1pp; not '200'"),
        (["plan", "--margin", "2%"], "percentage points such as 1pp, not '2%'"),
        (["compare", "m", "--batch-sizes", "1,4"], "primary_batch 16 is none of batch_sizes [1, 4]; name one of them"),
        (["plan", "--effect", "-1"], "such as -1.64%; '-1' is -100%"),
        (["plan", "--effect", "nan%"], "such as -1.64%"),
        (["plan", "--margin-latency", "200%"], "such as 0.5%"),
        (["plan", "--start-s", "inf"], "needs seconds between 0 and 1,000,000, not inf"),
        (["plan", "--blocks-s", "nan"], "needs seconds"),
        (["plan", "--pass-s", "-1"], "needs seconds"),
        (["judge"], "Missing argument"),
        (["nonsense"], "No such command"),
        pytest.param(["report", "x"], "no database", marks=pytest.mark.sqlite),
        (["report", "x", "--url", "127.0.0.1:9"], "such as http://"),
        (["report", "--url", "http://x:y"], "no address"),
        (["judge", "x"], "neither a file nor the id"),
        (["judge", "/"], "cannot be read"),
        (["judge", __file__], "does not hold records"),
        (["compare", "m", "--request", "/nowhere.json"], "cannot be read"),
        (["compare", "m", "--request", "/dev/null"], "not JSON"),
        (["gate", "m", "--policy", "/nowhere.yaml"], "/nowhere.yaml"),
        (["gate", "m", "--output", "/dev/null"], "cannot be written"),
    ],
)
def test_wrong_use_is_64(
    equipoise: Command, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert equipoise(*arguments) == 64
    told = capsys.readouterr()
    assert says in told.out + told.err


@pytest.mark.parametrize("content", [b"{", b"\xfd7zXZ\x00", b'{"plan": 1}', b"\xff"])
@pytest.mark.parametrize("name", ["records.json", "records.json.xz"])
def test_a_file_without_records_is_wrong_use(
    equipoise: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    assert equipoise("judge", str(tmp_path / name)) == 64
    assert f"{name} does not hold records" in capsys.readouterr().err


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder from which simulated engines are asked."""
    profile = PROFILES["simulated"].model_copy(update={"question_set": str(tmp_path)})
    monkeypatch.setitem(PROFILES, "simulated", profile)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "test.jsonl"),
        ({"test.jsonl": "", "train.jsonl": ""}, "no question"),
        ({"test.jsonl": "{\n", "train.jsonl": ""}, "test.jsonl"),
    ],
)
def test_questions_that_cannot_be_asked_are_wrong_use(
    equipoise: Command, questions: Path, capsys: pytest.CaptureFixture[str], files: dict[str, str], says: str
) -> None:
    """The same code as a preset, a model or an id that is not there."""
    for name, text in files.items():
        (questions / name).write_text(text)
    assert equipoise("compare", "m") == 64
    assert says in capsys.readouterr().err


def test_an_item_that_is_wrong_is_said_once(equipoise: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert equipoise("compare", "m", "--parts", "speed") == 64
    said = capsys.readouterr().err
    assert "/parts/0: Input should be 'latency' or 'accuracy'" in said
    assert "at least" not in said


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


def test_an_unusable_setting_stops_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EQUIPOISE_PORT", "many")
    assert main(["doctor"]) == 64
    assert "EQUIPOISE_PORT" in capsys.readouterr().err
    monkeypatch.delenv("EQUIPOISE_PORT")
    monkeypatch.setenv("EQUIPOISE_DATA", "/dev/null/data")
    monkeypatch.setenv("EQUIPOISE_DEVICE", "simulated")
    for command in (["compare", "m"], ["serve", "--port", "0"]):
        assert main(command) == 64
        assert "EQUIPOISE_DATA: /dev/null/data cannot be made a folder" in capsys.readouterr().err


def test_nobody_at_the_address_is_an_error(equipoise: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert equipoise("compare", "m", "--url", "http://127.0.0.1:9") == 3
    assert "cannot reach the service" in capsys.readouterr().err


def test_a_crash_of_ours_is_never_a_verdict(
    equipoise: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("equipoise_service.cli.compare.body_of", crash)
    assert equipoise("compare", "m") == 3
    assert "ZeroDivisionError" in capsys.readouterr().err


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


def test_version_and_bare_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capfd.readouterr().out == f"equipoise {package_version('equipoise-service')}\n"
    assert main([]) == 64
    shown = capfd.readouterr()
    assert "Usage: equipoise" in shown.out
    assert shown.err == ""


def test_a_reader_that_goes_away_leaves_no_traceback() -> None:
    command = [sys.executable, "-m", "equipoise_service", "plan", "--pairs-max", "100"]
    with subprocess.Popen(command, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as ours:
        assert ours.stdout is not None
        assert ours.stderr is not None
        ours.stdout.close()
        assert ours.stderr.read() == b""
    assert ours.returncode == 3


def test_compare_uses_the_service_that_runs(
    tmp_path: Path, equipoise: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    with Serving(tmp_path, {}) as serving:
        assert equipoise("compare", "m", *QUICK) == 2
        said = capsys.readouterr().err
        assert f"using the service that runs at {serving.url}" in said
        page, hint = said.splitlines()[-2:]
        assert httpx.get(page.removesuffix(" is its page"), trust_env=False).is_success
        hint = hint.removesuffix(" prints all of it")
        printed = subprocess.run(["env", *shlex.split(hint)], capture_output=True, text=True, check=True).stdout
        assert printed.startswith("# Inconclusive: m")
        assert serving.get(f"/comparisons/{id_in(said)}")["status"] == "succeeded"
        assert equipoise("serve") == 3
        assert "is in use by process" in capsys.readouterr().err
