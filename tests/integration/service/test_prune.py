"""``equipoise prune`` over a stored database with a comparison in each status: what goes, what stays, what is freed."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import ColumnElement, update

from equipoise_service.cli import main
from equipoise_service.folder import holding
from equipoise_service.store import ListFilter, Status, Store
from equipoise_service.store.keeping import ended, remove
from equipoise_service.store.tables import comparisons
from tests.integration.service.stored_database import restore

ALL = {"succeeded", "failed", "interrupted", "cancelled", "queued"}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with the stored database, and a log of a megabyte beside each comparison."""
    folder = tmp_path / "data"
    folder.mkdir()
    ids = [one["id"] for one in restore("0001", folder / "equipoise.db")]
    change(folder, comparisons.c.model == "failed", finished_at=datetime(2020, 1, 1, tzinfo=UTC))
    for comparison_id in ids:
        log = folder / "engines" / comparison_id / "pair-001-A-1-0" / "engine.log"
        log.parent.mkdir(parents=True)
        log.write_bytes(b"x" * 1_000_000)
    monkeypatch.setenv("EQUIPOISE_DATA", str(folder))
    return folder


def change(data: Path, which: ColumnElement[bool], **values: Any) -> None:
    store = Store.open(f"sqlite:///{data / 'equipoise.db'}")
    with store.database.write() as connection:
        connection.execute(update(comparisons).where(which).values(**values))
    store.database.close()


def there(data: Path) -> set[str]:
    """Models of the comparisons that are there; each has its records, events and logs or none of them."""
    store = Store.open(f"sqlite:///{data / 'equipoise.db'}")
    found = {one.id: one.model for one in store.comparisons.page(ListFilter(), 100).items}
    with store.database.read() as connection:
        for query in ("SELECT comparison_id FROM record_parts", "SELECT comparison_id FROM events"):
            assert {row[0] for row in connection.exec_driver_sql(query)} <= set(found)
    store.database.close()
    assert {path.name for path in (data / "engines").iterdir()} == set(found)
    return set(found.values())


@pytest.mark.parametrize(
    ("arguments", "goes"),
    [
        (["--older-than", "365d"], {"failed"}),
        (["--verdict", "inconclusive"], {"succeeded"}),
        (["--verdict", "ship", "--verdict", "block"], set()),
        (["--status", "cancelled", "--status", "interrupted"], {"cancelled", "interrupted"}),
        (["--larger-than", "1MB"], {"succeeded", "failed", "interrupted", "cancelled"}),
        (["--down-to", "0B"], {"succeeded", "failed", "interrupted", "cancelled"}),
    ],
)
def test_nothing_goes_until_told_and_then_what_was_said(
    data: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], goes: set[str]
) -> None:
    assert main(["prune", *arguments]) == 0
    said = capsys.readouterr()
    assert {line.split()[-1] for line in said.out.splitlines()} == goes
    assert said.err.startswith(f"{len(goes)} of 4 ended comparisons, ")
    assert "nothing was removed" in said.err
    assert there(data) == ALL

    assert main(["prune", *arguments, "--apply"]) == 0
    again = capsys.readouterr()
    assert again.out == said.out
    assert f"removed {len(goes)} of 4 ended comparisons" in again.err
    assert there(data) == ALL - goes


@pytest.mark.sqlite
def test_the_file_shrinks_once_no_service_holds_it(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = data / "equipoise.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(
            "INSERT INTO record_parts SELECT id, 9999, 'block', NULL, zeroblob(5000000) FROM comparisons "
            "WHERE model = 'failed'"
        )
        connection.commit()
    with holding(data, "http://127.0.0.1:1"):
        assert main(["prune", "--larger-than", "4MB", "--apply"]) == 0
    said = capsys.readouterr().err
    assert "removed 1 of 4 ended comparisons, 6.0 MB" in said  # 5 of the blob, 1 of the log, and little else
    assert "a service works with" in said
    assert file.stat().st_size > 5_000_000
    assert main(["prune", "--older-than", "100w", "--apply"]) == 0
    said = capsys.readouterr().err
    assert "removed 0 of 3" in said
    assert "given back to the disk" in said
    assert file.stat().st_size < 1_000_000
    assert there(data) == ALL - {"failed"}


@pytest.mark.parametrize("status", ["running", "judging"])
def test_what_runs_is_neither_listed_nor_removed(data: Path, capsys: pytest.CaptureFixture[str], status: str) -> None:
    change(data, comparisons.c.model == "interrupted", status=status)
    assert main(["prune", "--down-to", "0B", "--apply"]) == 0
    assert "removed 3 of 3" in capsys.readouterr().err
    assert there(data) == {"interrupted", "queued"}


def test_what_was_queued_again_meanwhile_stays(data: Path) -> None:
    store = Store.open(f"sqlite:///{data / 'equipoise.db'}")
    failed = next(one for one in ended(store.database) if one.status is Status.FAILED)
    store.comparisons.resume(failed.id)
    assert not remove(store.database, failed.id, lambda: pytest.fail("its logs are still needed"))
    store.database.close()
    assert there(data) == ALL


def test_logs_that_cannot_be_removed_keep_their_comparison(data: Path) -> None:
    def fail() -> None:
        raise PermissionError

    store = Store.open(f"sqlite:///{data / 'equipoise.db'}")
    failed = next(one for one in ended(store.database) if one.status is Status.FAILED)
    with pytest.raises(PermissionError):
        remove(store.database, failed.id, fail)
    store.database.close()
    assert there(data) == ALL


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "say which"),
        (["--apply"], "say which"),
        (["--older-than", "soon"], "--older-than: 'soon' is no time"),
        (["--down-to", "1GiB"], "--down-to: '1GiB' is no size"),
        (["--status", "running"], "running"),
    ],
)
def test_wrong_use_removes_nothing(
    data: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["prune", *arguments]) == 64
    assert said in capsys.readouterr().err
    assert there(data) == ALL


@pytest.mark.sqlite
def test_no_database_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EQUIPOISE_DATA", str(tmp_path / "none"))
    assert main(["prune", "--older-than", "1d"]) == 64
    assert "there is no database at" in capsys.readouterr().err
