"""Whose turn it is: the highest priority first, then the submitter who has least at work, then who waited longest.

A submitter is a token; requests without one are all of the same. With one submitter, this is the order of submission.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from equipoise_service.store.status import ACTIVE, Status
from equipoise_service.store.tables import comparisons

NEVER = datetime.min.replace(tzinfo=UTC)


class Waiting(NamedTuple):
    """The oldest comparison that one submitter has in the queue, at the highest priority that waits."""

    submitter: str
    comparison_id: str


def next_in_turn(connection: Connection) -> str | None:
    """The id of the queued comparison to begin next; None if none waits.

    Among the submitters of the highest priority that waits, the one with the fewest comparisons at work; among equals
    the one whose newest comparison was begun longest ago, so that they take turns where there is one slot; among
    equals the one whose oldest comparison is the older.
    """
    queued = comparisons.c.status == Status.QUEUED
    highest = select(func.max(comparisons.c.priority)).where(queued).scalar_subquery()
    oldest = select(comparisons.c.submitter, func.min(comparisons.c.id)).where(
        queued, comparisons.c.priority == highest
    )
    waiting = [Waiting(*row) for row in connection.execute(oldest.group_by(comparisons.c.submitter))]
    if len(waiting) <= 1:
        return waiting[0].comparison_id if waiting else None
    return fairest(waiting, *_shares(connection, [one.submitter for one in waiting])).comparison_id


def fairest(waiting: list[Waiting], at_work: Mapping[str, int], begun: Mapping[str, datetime]) -> Waiting:
    """Whose turn it is, by how many each has at work and when each had its newest begun."""
    return min(
        waiting,
        key=lambda one: (at_work.get(one.submitter, 0), begun.get(one.submitter, NEVER), one.comparison_id),
    )


def _shares(connection: Connection, submitters: list[str]) -> tuple[dict[str, int], dict[str, datetime]]:
    column = comparisons.c.submitter
    active = select(column, func.count()).where(comparisons.c.status.in_(ACTIVE)).group_by(column)
    newest = select(column, func.max(comparisons.c.started_at)).where(column.in_(submitters)).group_by(column)
    at_work = {str(submitter): int(count) for submitter, count in connection.execute(active)}
    begun = {str(submitter): at for submitter, at in connection.execute(newest) if at is not None}
    return at_work, begun
