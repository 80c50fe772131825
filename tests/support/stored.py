"""Comparisons as they are in a database: any records, judged, whatever would have measured them."""

from sqlalchemy import insert, select

from equipoise_evals.judge import canonical_json, judge
from equipoise_evals.model import Plan, Records
from equipoise_service.ids import new_id
from equipoise_service.requests import CompareRequest
from equipoise_service.store import NewComparison, Store, Stored
from equipoise_service.store.tables import comparisons
from equipoise_service.store.transitions import Lease
from tests.support.worlds import every_word

LEASE = Lease(owner="tests", lease_s=60, job_s=600)


def add(store: Store, plan: Plan, records: Records | None = None) -> str:
    """A queued comparison with these records; its id."""
    request = CompareRequest(model=plan.model.name, declared_aa=plan.declared_aa)
    comparison_id = new_id()
    store.comparisons.add(
        NewComparison(comparison_id, plan.model.name, request.model_dump_json(), request.sha256, plan.model_dump_json())
    )
    for record in records.records if records else ():
        store.records.append(comparison_id, record)
    return comparison_id


def finish(store: Store, plan: Plan, records: Records) -> Stored:
    """A comparison that has come to its verdict."""
    comparison_id = add(store, plan, records)
    verdict = judge(records, plan)
    store.comparisons.claim(LEASE)
    store.comparisons.judge(comparison_id)
    store.comparisons.succeed(comparison_id, canonical_json(verdict), verdict.overall.word)
    stored = store.comparisons.get(comparison_id)
    assert stored is not None
    return stored


def fill(store: Store, many: int) -> None:
    """Copies of one comparison of each verdict's word, under 300 models."""
    ids = [finish(store, *world).id for world in every_word().values()]
    with store.database.write() as connection:
        rows = [dict(row) for row in connection.execute(select(comparisons)).mappings() if row["id"] in ids]
        copies = [{**rows[n % len(rows)], "id": new_id(), "model_name": f"model-{n % 300}"} for n in range(many)]
        connection.execute(insert(comparisons), copies)
