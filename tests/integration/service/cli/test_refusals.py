"""Wrong use, unusable settings and files, engines that do not start: codes and sentences."""

from importlib.metadata import version as package_version
from pathlib import Path

import pytest

from equipoise_service.cli import main
from equipoise_service.profiles import PROFILES
from tests.integration.service.cli.command import QUICK, Command, engines_below

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


def test_version_and_bare_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capfd.readouterr().out == f"equipoise {package_version('equipoise-service')}\n"
    assert main([]) == 64
    shown = capfd.readouterr()
    assert "Usage: equipoise" in shown.out
    assert shown.err == ""
