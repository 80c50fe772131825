"""A database that any earlier version wrote opens, and everything in it is still there."""

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from equipoise_evals.model import Plan, Verdict
from equipoise_service.requests import CompareRequest
from equipoise_service.store import ListFilter, Status, Store
from equipoise_service.store.tables import metadata
from tests.integration.service.stored_database import DATABASES, restore, revisions

COUNTS = {
    "record_parts": "SELECT comparison_id, count(*) FROM record_parts GROUP BY 1",
    "events": "SELECT comparison_id, count(*) FROM events GROUP BY 1",
}


def test_every_version_has_its_stored_database() -> None:
    assert [path.stem for path in sorted(DATABASES.glob("*.sql"))] == revisions()


@pytest.mark.parametrize("revision", revisions())
def test_everything_in_a_stored_database_is_kept(tmp_path: Path, revision: str) -> None:
    path = tmp_path / "equipoise.db"
    verdicts = {row["id"]: row["verdict"] for row in restore(revision, path)}
    store = Store.open(f"sqlite:///{path}", migrated=False)
    with store.database.read() as reading:
        counts = {table: {row[0]: row[1] for row in reading.exec_driver_sql(query)} for table, query in COUNTS.items()}
    store.database.close()

    store = Store.open(f"sqlite:///{path}")
    lines = store.comparisons.page(ListFilter(), 100).items
    stored = [one for line in lines if (one := store.comparisons.get(line.id)) is not None]
    assert all(line.model_name == line.model and line.preset == "persistent-buffer" for line in lines)
    assert [line.id for line in lines if line.headline] == [one.id for one in stored if one.verdict]
    assert {one.model: one.status.value for one in stored} == {one: one for one in (
        "succeeded", "failed", "interrupted", "cancelled", "queued"
    )}  # fmt: skip
    for one in stored:
        assert one.verdict == verdicts[one.id]
        assert len(store.records.load(one.id).records) == counts["record_parts"].get(one.id, 0)
        assert len(store.events.after(one.id, 0)) == counts["events"][one.id]
        Plan.model_validate_json(one.plan)
        CompareRequest.model_validate_json(one.request)
        if one.status is Status.SUCCEEDED:
            assert one.verdict is not None
            assert Verdict.model_validate_json(one.verdict).overall.word == one.verdict_word
            assert counts["record_parts"][one.id] > 16
        else:
            assert (one.error is None) == (one.status is Status.QUEUED)
    kept = store.comparisons.by_key("kept")
    assert kept is not None
    assert kept.model == "queued"
    with store.database.read() as reading:
        context = MigrationContext.configure(reading, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    store.database.close()
