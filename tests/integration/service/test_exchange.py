"""Exports and imports over a stored database with a comparison in each status, and a real run's record."""

import hashlib
import io
import json
import lzma
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import update

from equipoise_evals.judge import canonical_json
from equipoise_service.cli import main
from equipoise_service.exchange.archive import MANIFEST, new_export
from equipoise_service.exchange.importing import import_export
from equipoise_service.interchange import RecordsDocument, texts_of
from equipoise_service.report import MEDIA_TYPES, report_text
from equipoise_service.store import Lease, ListFilter, NewComparison, Store
from equipoise_service.store.tables import comparisons
from tests.integration.service.stored_database import restore
from tests.support import stored as keep
from tests.support.worlds import every_word

ROOT = Path(__file__).resolve().parents[3]
MEASURED = ROOT / "docs" / "evidence" / "cpu-smollm2.records.json.xz"
MEASURED_ID = "01890000-0000-7000-8000-000000000000"
In = Callable[..., int]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> In:
    """Runs a command over a data folder, by its name."""

    def run(data: str, *arguments: str) -> int:
        monkeypatch.setenv("EQUIPOISE_DATA", str(tmp_path / data))
        return main(arguments)

    return run


@pytest.fixture
def here(tmp_path: Path) -> dict[str, str]:
    """Ids by model of the stored database in ``here``, with engine logs of one comparison."""
    folder = tmp_path / "here"
    folder.mkdir()
    ids = {str(one["model"]): str(one["id"]) for one in restore("0001", folder / "equipoise.db")}
    logs = folder / "engines" / ids["failed"] / "pair-001-B-1-0"
    logs.mkdir(parents=True)
    (logs / "engine.log").write_bytes(b"first\xff\nlast words\n")
    (logs / "steps.jsonl").write_text("{}\n")
    return ids


def opened(folder: Path) -> Store:
    return Store.open(f"sqlite:///{folder / 'equipoise.db'}")


def everything(folder: Path) -> dict[str, tuple[Any, ...]]:
    """What a database holds of each ended comparison, but for keys, claims, heartbeats and its records' numbers."""
    store = opened(folder)
    found = {}
    for item in store.comparisons.page(ListFilter(), 100).items:
        one = store.comparisons.get(item.id)
        assert one is not None
        parts = [(part.kind, part.payload) for part in store.records.parts(one.id)]
        if one.status != "queued":
            found[one.id] = (one._replace(claim=0, heartbeat_at=None), item, parts, store.events.after(one.id, 0))
    store.database.close()
    return found


@pytest.mark.parametrize("name", ["all.tar.zst", "all"])
def test_all_of_a_database_arrives_with_ids_and_bytes(
    tmp_path: Path, here: dict[str, str], command: In, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    target = tmp_path / name
    assert command("here", "export", str(target)) == 0
    assert f"{target}: 4 comparisons, " in capsys.readouterr().err
    assert command("there", "import", str(target)) == 0
    said = capsys.readouterr()
    assert set(said.out.split()) == {one for model, one in here.items() if model != "queued"}
    assert "imported 4 comparisons" in said.err
    assert everything(tmp_path / "there") == everything(tmp_path / "here")
    log = tmp_path / "there" / "engines" / here["failed"] / "pair-001-B-1-0"
    assert [path.name for path in log.iterdir()] == ["engine.log"]
    assert (log / "engine.log").read_bytes() == b"first\xff\nlast words\n"
    # What it is called does not change, nor does what it says.
    for ending in ("json", "csv", "md"):
        for data in ("here", "there"):
            assert command(data, "report", here["succeeded"], "-f", ending, "-o", str(tmp_path / data / "r")) == 0
        assert (tmp_path / "here" / "r").read_bytes() == (tmp_path / "there" / "r").read_bytes()
    # Once more changes nothing, and what was imported is exported as the same bytes.
    assert command("there", "import", str(target)) == 0
    assert "imported 0 comparisons; 4 were here already, unchanged" in capsys.readouterr().err
    assert command("there", "export", str(tmp_path / f"again-{name}")) == 0
    assert digest_of(tmp_path / f"again-{name}") == digest_of(target)


def test_a_copy_that_breaks_off_imports_nothing(
    tmp_path: Path, here: dict[str, str], command: In, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("here", "export", str(tmp_path / "all")) == 0
    there = opened(tmp_path / "there")
    engines = tmp_path / "there" / "engines"

    def full(source: Path, target: Path) -> None:
        target.mkdir(parents=True)
        (target / "half").touch()
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copytree", full)
        with pytest.raises(OSError, match="No space left"):
            import_export(tmp_path / "all", there, engines)
    assert there.comparisons.page(ListFilter(), 100).items == ()
    # The next import brings whole logs.
    import_export(tmp_path / "all", there, engines)
    assert (engines / here["failed"] / "pair-001-B-1-0" / "engine.log").exists()
    assert [path.name for path in engines.iterdir()] == [here["failed"]]
    there.database.close()


def digest_of(path: Path) -> str:
    return hashlib.sha256((path / MANIFEST if path.is_dir() else path).read_bytes()).hexdigest()


@pytest.fixture
def measured(tmp_path: Path, command: In) -> Path:
    """A real run's comparison in ``here``, exported as a folder."""
    document = RecordsDocument.model_validate_json(lzma.decompress(MEASURED.read_bytes()))
    assert document.verdict is not None
    store = opened(tmp_path / "here")
    plan = document.plan.model_dump_json()
    store.comparisons.add(NewComparison(MEASURED_ID, "embedded", '{"model":"embedded"}', "0" * 64, plan))
    for record in document.records:
        store.records.append(MEASURED_ID, record)
    store.comparisons.claim(Lease("test"))
    store.comparisons.judge(MEASURED_ID)
    store.comparisons.succeed(MEASURED_ID, canonical_json(document.verdict), document.verdict.overall.word)
    store.database.close()
    assert command("here", "export", str(tmp_path / "one"), MEASURED_ID, "--no-logs") == 0
    return tmp_path / "one"


def test_a_real_run_arrives_and_its_verdict_is_derived_again(
    tmp_path: Path, measured: Path, command: In, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("there", "import", str(measured), "--check") == 0
    assert command("there", "judge", MEASURED_ID, "--check", "-o", str(tmp_path / "verdict.json")) == 0
    assert everything(tmp_path / "there") == everything(tmp_path / "here")
    # Its records can be judged without any database.
    assert command("none", "judge", str(measured / "comparisons" / MEASURED_ID / "records.json"), "--check") == 0
    assert "equal to the stored verdict" in capsys.readouterr().err


def test_a_verdict_that_does_not_follow_is_refused_on_demand(
    tmp_path: Path, measured: Path, command: In, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"comparisons/{MEASURED_ID}/records.json"
    text = (measured / path).read_bytes()
    headline = json.loads(text)["verdict"]["headline"]
    changed(measured, path, replaced(text, json.dumps(headline)[1:-1], "All is well"), manifest=True)
    said = refused(tmp_path, command, capsys, measured, "--check")
    assert "its verdict does not follow from its records" in said
    assert command("there", "import", str(measured)) == 0


def changed(export: Path, path: str, content: bytes | None, *, manifest: bool) -> None:
    """Change or remove a file of an exported folder, and bring the manifest in line or not."""
    file = export / path
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    if manifest:
        document = json.loads((export / MANIFEST).read_text())
        document["files"] = [one for one in document["files"] if one["path"] != path]
        if content is not None:
            sha256 = hashlib.sha256(content).hexdigest()
            document["files"].append({"path": path, "size": len(content), "sha256": sha256})
        (export / MANIFEST).write_text(json.dumps(document))


@pytest.fixture
def export(tmp_path: Path, here: dict[str, str], command: In) -> Path:
    """All of ``here`` as a folder."""
    assert command("here", "export", str(tmp_path / "export")) == 0
    return tmp_path / "export"


def refused(tmp_path: Path, command: In, capsys: pytest.CaptureFixture[str], source: Path, *options: str) -> str:
    """What the command says on refusing; nothing has arrived."""
    capsys.readouterr()
    assert command("there", "import", str(source), *options) == 64
    said = capsys.readouterr().err
    assert said.startswith("equipoise: nothing was imported: ")
    assert everything(tmp_path / "there") == {}
    assert not (tmp_path / "there" / "engines").exists()
    return said


@pytest.mark.parametrize("file", ["records.json", "comparison.json", "events.jsonl", "report.md"])
def test_one_changed_byte_anywhere_refuses_all_of_it(
    tmp_path: Path, here: dict[str, str], export: Path, command: In, capsys: pytest.CaptureFixture[str], *, file: str
) -> None:
    path = f"comparisons/{here['succeeded']}/{file}"
    content = bytearray((export / path).read_bytes())
    content[-2] ^= 1
    changed(export, path, bytes(content), manifest=False)
    assert f"{path} is not what was exported: its SHA-256 is" in refused(tmp_path, command, capsys, export)


def test_files_that_are_missing_added_or_links_are_refused(
    tmp_path: Path, here: dict[str, str], export: Path, command: In, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"comparisons/{here['failed']}/events.jsonl"
    content = (export / path).read_bytes()
    changed(export, path, None, manifest=False)
    assert f"{path} is missing" in refused(tmp_path, command, capsys, export)
    (export / path).write_bytes(content)
    (export / "comparisons" / here["failed"] / "more.txt").write_text("")
    assert "more.txt is not in the manifest" in refused(tmp_path, command, capsys, export)
    (export / "comparisons" / here["failed"] / "more.txt").unlink()
    (export / path).unlink()
    (export / path).symlink_to("/etc/hostname")
    assert "is a link; an export holds files only" in refused(tmp_path, command, capsys, export)


def replaced(text: bytes, old: str, new: str) -> bytes:
    assert old.encode() in text
    return text.replace(old.encode(), new.encode(), 1)


@pytest.mark.parametrize(
    ("model", "file", "old", "new", "says"),
    [
        ("failed", "comparison.json", '"failed",', '"running",', "it is running, and only what has ended is exported"),
        ("failed", "comparison.json", '"status": "failed"', '"status": "succeeded"', "is succeeded and has no verdict"),
        ("succeeded", "comparison.json", '"status": "succeeded"', '"status": "failed"', "is failed and has a verdict"),
        ("failed", "comparison.json", '"status": "failed"', '"status": "gone"', "status: Input should be"),
        ("failed", "comparison.json", '"id": "', '"id": "0', "it calls itself 00"),
        ("failed", "records.json", '{"schema_version":1', '{ "schema_version":1', "is expected at character 0"),
        ("failed", "records.json", '"kind":"stop"', '"kind":"stap"', "records."),
        ("failed", "events.jsonl", '"seq":1', '"seq":0', "seq: Input should be greater"),
    ],
)  # fmt: skip
def test_files_that_agree_with_a_forged_manifest_must_still_be_a_comparison(
    tmp_path: Path, here: dict[str, str], export: Path, command: In, capsys: pytest.CaptureFixture[str], *,
    model: str, file: str, old: str, new: str, says: str,
) -> None:  # fmt: skip
    path = f"comparisons/{here[model]}/{file}"
    changed(export, path, replaced((export / path).read_bytes(), old, new), manifest=True)
    assert says in refused(tmp_path, command, capsys, export)


def test_another_comparison_of_the_same_id_is_refused(
    tmp_path: Path, here: dict[str, str], export: Path, command: In, capsys: pytest.CaptureFixture[str]
) -> None:
    store = opened(tmp_path / "here")
    with store.database.write() as connection:
        connection.execute(update(comparisons).where(comparisons.c.id == here["failed"]).values(model="other"))
    store.database.close()
    before = everything(tmp_path / "here")
    assert command("here", "import", str(export)) == 64
    assert f"{here['failed']} is here already, and it differs" in capsys.readouterr().err
    assert everything(tmp_path / "here") == before


def archive_with(path: Path, *members: tarfile.TarInfo) -> Path:
    with pa.CompressedOutputStream(str(path), "zstd") as compressed, tarfile.open(fileobj=compressed, mode="w|") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    info.size = 1 if kind == tarfile.REGTYPE else 0
    return info


@pytest.mark.parametrize(
    "bad",
    [
        member("../outside"),
        member("/outside"),
        member("export/../../outside"),
        member("export/link", tarfile.SYMTYPE, "/etc"),
        member("export/device", tarfile.CHRTYPE),
    ],
    ids=lambda bad: bad.name,
)
def test_archives_that_reach_out_of_their_folder_are_refused(
    tmp_path: Path, command: In, capsys: pytest.CaptureFixture[str], bad: tarfile.TarInfo
) -> None:
    source = archive_with(tmp_path / "bad.tar.zst", bad)
    # An absolute name is taken as a relative one, so that it is only no export.
    says = "has no manifest.json" if bad.name.startswith("/") else "is no archive as `equipoise export` writes them"
    assert says in refused(tmp_path, command, capsys, source)
    assert not Path("/outside").exists()
    assert not (tmp_path / "outside").exists()


def test_what_is_no_export_is_said(
    tmp_path: Path, here: dict[str, str], export: Path, command: In, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "there is no" in refused(tmp_path, command, capsys, tmp_path / "nothing.tar.zst")
    (tmp_path / "text.tar.zst").write_text("text")
    assert "is no archive as" in refused(tmp_path, command, capsys, tmp_path / "text.tar.zst")
    whole = archive_with(tmp_path / "w.tar.zst", member("export/a"))
    (tmp_path / "half.tar.zst").write_bytes(whole.read_bytes()[:-20])
    refused(tmp_path, command, capsys, tmp_path / "half.tar.zst")
    assert "has no manifest.json" in refused(tmp_path, command, capsys, whole)
    (export / MANIFEST).write_text('{"format":"equipoise-export","version":2,"comparisons":[],"files":[]}')
    assert "manifest.json is not an export's: Input should be 1" in refused(tmp_path, command, capsys, export)


def test_only_what_has_ended_and_only_to_a_new_place(
    tmp_path: Path, here: dict[str, str], export: Path, command: In, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("here", "export", str(tmp_path / "q"), here["queued"]) == 64
    assert "is queued; only one that has ended can be exported" in capsys.readouterr().err
    assert command("here", "export", str(tmp_path / "q"), MEASURED_ID) == 64
    assert command("here", "export", str(export)) == 64
    assert "never takes the place of anything" in capsys.readouterr().err
    assert command("here", "export", str(tmp_path / "no" / "q")) == 64
    assert command("here", "export", str(tmp_path / "two"), here["failed"], here["succeeded"], here["failed"]) == 0
    both = sorted([here["failed"], here["succeeded"]])
    assert json.loads((tmp_path / "two" / MANIFEST).read_text())["comparisons"] == both
    left = {path.name for path in tmp_path.iterdir()}
    assert not any(name.startswith(".") or name == "q" for name in left), left


def test_what_appears_at_the_target_meanwhile_keeps_its_place(tmp_path: Path) -> None:
    target = tmp_path / "x.tar.zst"
    with pytest.raises(FileExistsError), new_export(target):
        target.write_text("somebody else's")
    assert target.read_text() == "somebody else's"
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_texts_come_apart_as_they_were_written() -> None:
    text = (
        '{"schema_version":1,"comparison_id":"a","plan":{"x":1.0e3},"records":[{"kind":"k","n":1.50}],"verdict":null}'
    )
    assert texts_of(text) == ("a", '{"x":1.0e3}', (("k", '{"kind":"k","n":1.50}'),), None)
    assert texts_of(text.replace('[{"kind":"k","n":1.50}]', "[]")).records == ()
    for broken in (text[:-1], f"{text} ", text.replace("[{", "[,{"), text.replace("}]", "},]")):
        with pytest.raises(ValueError, match=r"expected|Expecting|after the document"):
            texts_of(broken)


def test_samples_as_tables_hold_every_answer_and_step(
    tmp_path: Path, here: dict[str, str], command: In, capsys: pytest.CaptureFixture[str]
) -> None:
    document = RecordsDocument.model_validate_json(lzma.decompress(MEASURED.read_bytes()))
    store = opened(tmp_path / "measured")
    store.comparisons.add(NewComparison(MEASURED_ID, "m", "{}", "0" * 64, document.plan.model_dump_json()))
    for record in document.records:
        store.records.append(MEASURED_ID, record)
    store.comparisons.cancel(MEASURED_ID, "for this test")
    store.database.close()
    raw = json.loads(lzma.decompress(MEASURED.read_bytes()))["records"]
    assert command("measured", "export", str(tmp_path / "tables"), "--format", "parquet") == 0
    tables = {name: pq.read_table(tmp_path / "tables" / f"{name}.parquet") for name in ("answers", "requests", "steps")}
    passes = [one for one in raw if one["kind"] == "pass"]
    blocks = [one for one in raw if one["kind"] == "block"]
    answers = [answer for one in passes for answer in one["answers"]]
    assert tables["answers"]["text"].to_pylist() == [answer["text"] for answer in answers]
    assert tables["answers"]["output_ids"].to_pylist() == [answer["output_ids"] for answer in answers]
    busy = [us for one in blocks for us in one["steps"]["busy_us"]]
    period = [us for one in blocks for us in one["steps"]["period_us"]]
    assert tables["steps"]["busy_us"].to_pylist() == busy
    assert tables["steps"]["period_us"].to_pylist() == period
    assert None in period
    assert tables["steps"]["role"].to_pylist() == [one["role"] for one in blocks for _ in one["steps"]["busy_us"]]
    assert all(tables["steps"]["counts"].to_pylist())
    timings = [request["tpot_us"] for one in blocks for request in one["client"]]
    assert tables["requests"]["tpot_us"].to_pylist() == timings
    said = capsys.readouterr().err
    assert f"{len(answers)} answers, {len(timings)} requests, {len(busy)} steps" in said
    assert command("measured", "export", str(tmp_path / "tables"), "--format", "parquet") == 64
    # Several comparisons make the same tables; those without a sample add no row.
    assert command("here", "export", str(tmp_path / "all"), "-f", "parquet") == 0
    steps = pq.read_table(tmp_path / "all" / "steps.parquet")
    assert here["succeeded"] in set(steps["comparison_id"].to_pylist())
    assert here["cancelled"] not in set(steps["comparison_id"].to_pylist())


def test_every_format_of_a_report_is_exported(tmp_path: Path, command: In) -> None:
    folder = tmp_path / "judged"
    folder.mkdir()
    store = opened(folder)
    stored = keep.finish(store, *every_word()["ship"])
    assert command("judged", "export", str(tmp_path / "out"), stored.id) == 0
    written = tmp_path / "out" / "comparisons" / stored.id
    assert {file.suffix[1:] for file in written.glob("report.*")} == set(MEDIA_TYPES)
    for ending in MEDIA_TYPES:
        assert (written / f"report.{ending}").read_bytes().decode() == report_text(ending, stored, store.records)
    store.database.close()


@pytest.mark.sqlite
def test_where_there_is_no_database_there_is_nothing_to_export(tmp_path: Path, command: In) -> None:
    assert command("none", "export", str(tmp_path / "q")) == 64
