"""The query of a list, for programs and for the page alike."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Literal

from pydantic import Field, model_validator

from equipoise_evals.model import Frozen
from equipoise_service.api.views import ComparisonList
from equipoise_service.errors import InvalidCursor
from equipoise_service.ids import is_id
from equipoise_service.service import Service
from equipoise_service.store import ListFilter, Sort, Status

VerdictWord = Literal["ship", "neutral", "block", "inconclusive", "treatment_inactive", "invalid"]


class ListQuery(Frozen):
    """The query of the list. A cursor comes from ``next_cursor`` of the page before."""

    limit: int = Field(default=50, ge=1, le=200)
    cursor: str | None = None
    model: str | None = Field(default=None, max_length=1_000)
    verdict: VerdictWord | None = None
    status: Status | None = None
    arms: str | None = Field(default=None, max_length=1_000, description="Names of both arms, as a list shows them.")
    machine: str | None = Field(default=None, max_length=1_000, description="The device, as a list shows it.")
    since: date | None = Field(default=None, description="First day, in UTC.")
    until: date | None = Field(default=None, description="Last day, in UTC.")
    sort: Sort = "newest"

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, query: object) -> object:
        """A form also sends the fields that nobody filled in."""
        return {name: value for name, value in query.items() if value != ""} if isinstance(query, dict) else query

    @property
    def chosen(self) -> ListFilter:
        """What the store narrows a list to."""
        after = None if self.until in {None, date.max} else _midnight(self.until, days=1)
        return ListFilter(self.model, self.verdict, self.status, self.arms, self.machine, _midnight(self.since), after)


def list_of(query: ListQuery, service: Service) -> ComparisonList:
    """One page of a list.

    Raises:
        InvalidCursor: The cursor is none of ours.
    """
    if query.cursor is not None and not is_id(query.cursor):
        raise InvalidCursor(query.cursor)
    return ComparisonList.of(service.store.comparisons.page(query.chosen, query.limit, query.cursor, query.sort))


def _midnight(day: date | None, days: int = 0) -> datetime | None:
    return None if day is None else datetime.combine(day + timedelta(days), time.min, UTC)
