"""Pages and filters over comparisons."""

import pytest
from sqlalchemy import event

from equipoise_evals.model import ModelRef
from equipoise_service.store import (
    ListFilter,
    Status,
    Store,
)
from tests.support import records as make
from tests.support.store import add, lead_to, new


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("chosen", "index"),
    [
        (ListFilter(), "sqlite_autoindex_comparisons_1"),
        (ListFilter(status=Status.SUCCEEDED), "ix_comparisons_status_id"),
        (ListFilter(verdict="ship"), "ix_comparisons_verdict_word_id"),
        (ListFilter(model="m"), "ix_comparisons_model_name_id"),
        (ListFilter(model="m", status=Status.QUEUED), "ix_comparisons_"),
    ],
)
@pytest.mark.parametrize("before", [None, "ffffffff-0000-7000-8000-000000000000"])
def test_a_list_is_read_off_an_index_and_never_sorted_whole(
    store: Store, chosen: ListFilter, index: str, before: str | None
) -> None:
    """SQLite says how it would run the list's own statement; of 10,000 comparisons a sort takes a tenth of a second."""
    add(store)
    seen: list[tuple[str, object]] = []
    event.listen(
        store.database.engine,
        "before_cursor_execute",
        lambda connection, cursor, statement, parameters, *rest: seen.append((statement, parameters)),
    )
    store.comparisons.page(chosen, 50, before)
    statement, parameters = next(one for one in seen if one[0].startswith("SELECT"))
    with store.database.read() as connection:
        steps = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]  # type: ignore[arg-type] # the driver's
    assert any(index in step for step in steps), steps
    assert "SCAN comparisons" not in steps, steps
    # The newest of a model are merged out of two indexes, page by page, and sorted then.
    assert chosen.model or "USE TEMP B-TREE FOR ORDER BY" not in steps, steps


def test_pages_hold_everything_once_newest_first(store: Store) -> None:
    ids = [add(store) for _ in range(7)]
    seen: list[str] = []
    before: str | None = None
    for expected in (3, 3, 1):
        page = store.comparisons.page(ListFilter(), 3, before)
        assert len(page.items) == expected
        seen += [item.id for item in page.items]
        before = page.next_before
    assert before is None
    assert seen == ids[::-1]


def test_a_page_that_is_just_full_is_the_last(store: Store) -> None:
    for _ in range(3):
        add(store)
    assert store.comparisons.page(ListFilter(), 3).next_before is None


def test_filters_narrow_the_list(store: Store) -> None:
    shipped = lead_to(store, Status.SUCCEEDED)
    other = add(store, model="n")
    comparisons = store.comparisons

    def ids(chosen: ListFilter) -> list[str]:
        return [item.id for item in comparisons.page(chosen, 10).items]

    assert ids(ListFilter(model="n")) == [other]
    assert ids(ListFilter(verdict="ship")) == [shipped]
    assert ids(ListFilter(status=Status.QUEUED)) == [other]
    assert ids(ListFilter(model="n", verdict="ship")) == []


def test_a_model_is_found_by_the_name_asked_for_or_planned(store: Store) -> None:
    plan = make.plan(model=ModelRef(name='a "100%" é_model', source="hub", path="p", revision="r")).model_dump_json()
    planned = store.comparisons.add(new()._replace(model="asked", plan=plan))[0].id

    def ids(model: str) -> list[str]:
        return [item.id for item in store.comparisons.page(ListFilter(model=model), 10).items]

    assert ids("asked") == [planned]
    assert ids('a "100%" é_model') == [planned]
    assert ids('a "100x" é_model') == []
    assert ids("%") == []
