"""Lists of comparisons: what a line shows, what it is narrowed to, how it is sorted and where the next page begins.

What a line shows stands in columns of its own, filled in when a comparison is accepted and when it ends, so that a list
reads neither plans nor verdicts nor records.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from sqlalchemy import Column, ColumnElement, CompoundSelect, Connection, Row, Select, and_, func, or_, select, union

from equipoise_service.store.status import Status
from equipoise_service.store.tables import comparisons, record_parts

Sort = Literal["newest", "oldest", "fastest", "slowest"]
"""By time, or by the effect on the step time of those whose effect was judged."""

UNJUDGED = ("treatment_inactive", "invalid")
"""Verdict words of runs whose numbers prove nothing, however large an effect they show."""


class Summary(NamedTuple):
    """One line of a list: columns that are small however long a comparison was.

    Attributes:
        arms: Names of both arms.
        machine: The device that it ran on; None until it has a verdict.
        effect: Effect on busy time at the primary batch.
        intervals: JSON of ``spark_of``.
    """

    id: str
    status: Status
    model: str
    model_name: str
    preset: str
    verdict_word: str | None
    headline: str | None
    reason: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    priority: int
    arms: str
    machine: str | None
    effect: float | None
    intervals: str | None


class ListFilter(NamedTuple):
    """What a list is narrowed to; None narrows nothing. ``until`` is the first instant that is not shown."""

    model: str | None = None
    verdict: str | None = None
    status: Status | None = None
    arms: str | None = None
    machine: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class Page(NamedTuple):
    """One page of a list; ``next_before`` is the id to go on from, None on the last page."""

    items: tuple[Summary, ...]
    next_before: str | None


class Facets(NamedTuple):
    """Every value that a list can be narrowed to, sorted."""

    models: tuple[str, ...]
    arms: tuple[str, ...]
    machines: tuple[str, ...]


def read_page(
    connection: Connection, chosen: ListFilter, limit: int, before: str | None = None, sort: Sort = "newest"
) -> Page:
    """Comparisons in the order asked for; ``before`` is the last id of the page before."""
    conditions = _conditions(chosen)
    order, beyond = _order(sort, before)
    conditions += beyond
    if chosen.model is not None:
        conditions = [_of_model(chosen.model, conditions, sort, limit)]
    query = select(*(comparisons.c[name] for name in Summary._fields)).where(*conditions)
    # One more than asked for tells whether there is a next page.
    rows = connection.execute(query.order_by(*order).limit(limit + 1))
    found = [_summary(row) for row in rows]
    items = tuple(found[:limit])
    return Page(items, items[-1].id if len(found) > limit else None)


def read_facets(connection: Connection) -> Facets:
    """Read off indexes, one a column."""
    columns = (comparisons.c.model_name, comparisons.c.arms, comparisons.c.machine)
    return Facets(*(tuple(sorted(filter(None, _values(connection, column)))) for column in columns))


def _values(connection: Connection, column: Column[str]) -> Sequence[str | None]:
    """The distinct values of an indexed column, each found from the one before: DISTINCT would walk every row."""
    least = select(func.min(column).label("value"))
    values = least.cte("values_of_column", recursive=True)
    following = select(func.min(column)).where(column > values.c.value).scalar_subquery()
    values = values.union_all(select(following).where(values.c.value.is_not(None)))
    return connection.scalars(select(values.c.value)).all()


def read_declared_aa(connection: Connection, limit: int) -> tuple[Summary, ...]:
    """The newest comparisons with a verdict in which both arms were meant to be the same."""
    declared = comparisons.c.request.contains('"declared_aa":true', autoescape=True)
    query = select(*(comparisons.c[name] for name in Summary._fields))
    query = query.where(comparisons.c.verdict_word.is_not(None), declared).order_by(comparisons.c.id.desc())
    return tuple(_summary(row) for row in connection.execute(query.limit(limit)))


def _summary(row: Row[Any]) -> Summary:
    values = tuple(row)
    return Summary(values[0], Status(values[1]), *values[2:])


def accepted_columns(plan: str, request: str, model: str) -> dict[str, str]:
    """The columns of a line that are known when a comparison is accepted; the arguments are stored texts."""
    planned = json.loads(plan)
    arms = planned.get("arms", {})
    names = [arms.get(role, {}).get("name", "") for role in ("baseline", "candidate")]
    return {
        "model_name": planned.get("model", {}).get("name", model),
        "preset": json.loads(request).get("preset", ""),
        "arms": " → ".join(filter(None, names)),
    }


def verdict_columns(connection: Connection, comparison_id: str, verdict: str) -> dict[str, Any]:
    """The columns of a line that are known with the verdict, which is canonical JSON."""
    found = json.loads(verdict)
    spark = spark_of(found)
    return {
        "headline": found.get("headline"),
        "machine": _machine(connection, comparison_id),
        "effect": spark.get("latency", [None])[0],
        "intervals": json.dumps(spark, separators=(",", ":")) if spark else None,
    }


def spark_of(verdict: dict[str, Any]) -> dict[str, list[float | None]]:
    """Estimate, lower and upper limit and margin of each half that was measured.

    Latency as shares of the step time, accuracy in percentage points; limits are None where there is no interval.
    """
    spark = {}
    if verdict.get("latency"):
        evidence = verdict["latency"]["evidence"]
        interval = evidence["busy"]["interval"] or {"low": None, "high": None}
        spark["latency"] = [evidence["busy"]["effect"], interval["low"], interval["high"], evidence["margin"]]
    if verdict.get("accuracy"):
        evidence = verdict["accuracy"]["evidence"]
        interval = evidence["interval_pp"]
        spark["accuracy"] = [evidence["difference_pp"], interval["low"], interval["high"], evidence["margin_pp"]]
    return spark


def _machine(connection: Connection, comparison_id: str) -> str | None:
    """The device as the first engine attested it."""
    query = select(record_parts.c.payload).where(
        record_parts.c.comparison_id == comparison_id, record_parts.c.kind == "launch"
    )
    launch = connection.scalar(query.order_by(record_parts.c.seq).limit(1))
    device = json.loads(launch)["attestation"].get("device") if launch else None
    if isinstance(device, dict):
        return str(device.get("name") or device.get("type") or "") or None
    return device if isinstance(device, str) else None


def _conditions(chosen: ListFilter) -> list[ColumnElement[bool]]:
    c = comparisons.c
    wanted: tuple[tuple[Column[Any], object], ...] = (
        (c.verdict_word, chosen.verdict),
        (c.status, chosen.status),
        (c.arms, chosen.arms),
        (c.machine, chosen.machine),
    )
    conditions: list[ColumnElement[bool]] = [column == value for column, value in wanted if value is not None]
    if chosen.since is not None:
        conditions.append(c.created_at >= chosen.since)
    if chosen.until is not None:
        conditions.append(c.created_at < chosen.until)
    return conditions


def _order(sort: Sort, before: str | None) -> tuple[list[ColumnElement[Any]], list[ColumnElement[bool]]]:
    """The order, and the conditions of what lies in it, beyond the row ``before``."""
    identity, effect = comparisons.c.id, comparisons.c.effect
    match sort:
        case "newest":
            return [identity.desc()], [identity < before] if before else []
        case "oldest":
            return [identity], [identity > before] if before else []
    last = select(effect).where(identity == before).scalar_subquery()
    beyond = effect > last if sort == "fastest" else effect < last
    order: list[ColumnElement[Any]] = [effect.asc() if sort == "fastest" else effect.desc(), identity]
    judged = comparisons.c.verdict_word.not_in(UNJUDGED)
    return order, [
        effect.is_not(None),
        judged,
        *([or_(beyond, and_(effect == last, identity > before))] if before else []),
    ]


def _of_model(name: str, conditions: Sequence[ColumnElement[bool]], sort: Sort, limit: int) -> ColumnElement[bool]:
    """Asked for by this name or planned under it: who sees the embedded model's name may filter by it."""
    if sort == "newest":
        return comparisons.c.id.in_(_newest_of_model(name, conditions, limit + 1))
    return and_(or_(comparisons.c.model == name, comparisons.c.model_name == name), *conditions)


def _newest_of_model(
    name: str, conditions: Sequence[ColumnElement[bool]], limit: int
) -> CompoundSelect[tuple[str]] | Select[tuple[str]]:
    """Each half is read off an index of its own, however many comparisons there are; an OR would sort them all."""
    halves = [
        select(comparisons.c.id)
        .where(column == name, *conditions)
        .order_by(comparisons.c.id.desc())
        .limit(limit)
        .subquery()
        for column in (comparisons.c.model, comparisons.c.model_name)
    ]
    return union(*(select(half.c.id) for half in halves))
