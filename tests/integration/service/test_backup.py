"""Backups of a database that is being written to: one state of it, sound, opened again by the store."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from equipoise_service.cli import main
from equipoise_service.store import ListFilter, NewComparison, Store
from equipoise_service.store.backup import BackupFailed, back_up
from tests.integration.service.stored_database import DATABASES, revisions
from tests.support import records as make

ID = "01890000-0000-7000-8000-000000000000"

pytestmark = pytest.mark.sqlite


def a_store(path: Path) -> Store:
    store = Store.open(f"sqlite:///{path}")
    store.comparisons.add(NewComparison(ID, "m", '{"preset":"p","model":"m"}', "0" * 64, make.plan().model_dump_json()))
    return store


def test_a_backup_beside_a_writer_is_one_state_that_opens(tmp_path: Path) -> None:
    store = a_store(tmp_path / "live.db")
    ended, wrote = threading.Event(), threading.Semaphore(0)

    def write() -> None:
        while not ended.is_set():
            store.records.append(ID, make.launch(1, "A", "baseline"))
            wrote.release()

    def one_more() -> None:
        """Wait until something was written since it was asked last."""
        while wrote.acquire(blocking=False):
            pass
        assert wrote.acquire(timeout=60)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        made = []
        for n in range(5):
            one_more()
            made.append(back_up(tmp_path / "live.db", tmp_path / f"copy-{n}.db"))
    finally:
        ended.set()
        writer.join()
        written = len(store.records.load(ID).records)
        store.database.close()
    assert {one.comparisons for one in made} == {1}
    assert len({one.sha256 for one in made}) == 5
    counts = []
    for n in range(5):
        copy = Store.open(f"sqlite:///{tmp_path / f'copy-{n}.db'}")
        # Records are numbered without gaps, so a copy that tore a transaction would show.
        numbers = [part.seq for part in copy.records.parts(ID)]
        assert numbers == list(range(1, len(numbers) + 1))
        counts.append(len(numbers))
        copy.database.close()
    assert counts == sorted(counts)
    assert counts[-1] <= written


def test_a_backup_holds_what_is_still_in_the_log_and_is_one_private_file(tmp_path: Path) -> None:
    store = a_store(tmp_path / "live.db")
    assert (tmp_path / "live.db-wal").stat().st_size > 0
    (tmp_path / "copy").mkdir()
    made = back_up(tmp_path / "live.db", tmp_path / "copy" / "c.db")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["c.db"]
    assert (tmp_path / "copy" / "c.db").stat().st_mode & 0o777 == 0o600
    assert made.size == (tmp_path / "copy" / "c.db").stat().st_size
    store.database.close()
    copy = Store.open(f"sqlite:///{tmp_path / 'copy' / 'c.db'}")
    assert [one.id for one in copy.comparisons.page(ListFilter(), 10).items] == [ID]
    copy.database.close()


def test_an_older_database_is_copied_as_it_is(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "old.db")) as connection:
        connection.executescript((DATABASES / "0001.sql").read_text())
    assert back_up(tmp_path / "old.db", tmp_path / "copy.db").schema == "0001"
    assert revisions()[0] == "0001"


@pytest.mark.parametrize("harm", ["page", "orphan", "none"])
def test_a_copy_that_is_not_sound_leaves_nothing(tmp_path: Path, harm: str) -> None:
    a_store(tmp_path / "live.db").database.close()
    with closing(sqlite3.connect(tmp_path / "live.db")) as connection:
        if harm == "orphan":
            connection.execute("INSERT INTO events VALUES ('nobody', 1, '2026-01-01', 'status', '{}')")
            connection.commit()
        connection.execute("PRAGMA journal_mode=DELETE")
    if harm == "page":
        content = bytearray((tmp_path / "live.db").read_bytes())
        content[4096:8192] = b"\xff" * 4096
        (tmp_path / "live.db").write_bytes(content)
    target = tmp_path / "copy.db"
    if harm == "none":
        with pytest.raises(FileExistsError):
            back_up(tmp_path / "live.db", tmp_path / "live.db")
        with pytest.raises(BackupFailed, match="cannot be written"):
            back_up(tmp_path / "live.db", tmp_path / "no" / "copy.db")
        with pytest.raises(BackupFailed, match="unable to open"):
            back_up(tmp_path / "nothing.db", target)
    else:
        with pytest.raises(BackupFailed, match="not sound|malformed" if harm == "page" else "belong to no comparison"):
            back_up(tmp_path / "live.db", target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["live.db"]


def test_the_command_says_what_it_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EQUIPOISE_DATA", str(tmp_path / "data"))
    assert main(["backup", str(tmp_path / "copy.db")]) == 64
    assert "there is no database at" in capsys.readouterr().err
    a_store(tmp_path / "data" / "equipoise.db").database.close()
    assert main(["backup", str(tmp_path / "copy.db")]) == 0
    assert "copy.db: 1 comparisons, " in capsys.readouterr().out
    assert main(["backup", str(tmp_path / "copy.db")]) == 64
    assert "never takes the place" in capsys.readouterr().err
    assert main(["backup", str(tmp_path / "no" / "copy.db")]) == 3
    monkeypatch.setenv("EQUIPOISE_DATABASE_URL", "sqlite+aiosqlite:///x")
    assert main(["backup", str(tmp_path / "again.db")]) == 64
