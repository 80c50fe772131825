"""Facets of a list, however many comparisons there are."""

import pytest
from sqlalchemy import event

from equipoise_service.store import Store
from tests.support.store import add


@pytest.mark.sqlite
def test_facets_are_found_from_index_to_index_and_no_row_is_walked(store: Store) -> None:
    add(store)
    seen: list[str] = []
    event.listen(
        store.database.engine,
        "before_cursor_execute",
        lambda connection, cursor, statement, *rest: seen.append(statement),
    )
    assert store.comparisons.facets().models == ("m",)
    statements = [statement for statement in seen if "RECURSIVE" in statement]
    assert len(statements) == 3
    with store.database.read() as connection:
        for statement in statements:
            steps = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}")]
            assert any("SEARCH comparisons USING COVERING INDEX" in step for step in steps), steps
            assert not any(step.startswith("SCAN comparisons") for step in steps), steps
