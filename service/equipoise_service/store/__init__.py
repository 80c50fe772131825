"""The store: comparisons, what was observed in them and what happened, in one SQL database.

Durable before acknowledged. It knows no engine, no HTTP and no statistics; what has ended changes only by being
resumed or removed.
"""

from typing import NamedTuple, Self

from equipoise_service.store.comparisons import Comparisons, NewComparison, Stored
from equipoise_service.store.database import Database, open_database
from equipoise_service.store.events import Event, Events
from equipoise_service.store.fence import Holder, LeaseLost
from equipoise_service.store.lists import UNJUDGED, Facets, ListFilter, Page, Sort, Summary
from equipoise_service.store.records import RecordParts, StoredRecorder
from equipoise_service.store.status import FINAL, InvalidTransition, Status
from equipoise_service.store.tokens import Token, Tokens
from equipoise_service.store.transitions import Lease, StoredError
from equipoise_service.store.webhooks import Delivery, Webhook, Webhooks

__all__ = [
    "FINAL",
    "UNJUDGED",
    "Comparisons",
    "Database",
    "Delivery",
    "Event",
    "Events",
    "Facets",
    "Holder",
    "InvalidTransition",
    "Lease",
    "LeaseLost",
    "ListFilter",
    "NewComparison",
    "Page",
    "RecordParts",
    "Sort",
    "Status",
    "Store",
    "Stored",
    "StoredError",
    "StoredRecorder",
    "Summary",
    "Token",
    "Tokens",
    "Webhook",
    "Webhooks",
    "open_database",
]


class Store(NamedTuple):
    """One database and what is kept in it."""

    database: Database
    comparisons: Comparisons
    records: RecordParts
    events: Events
    tokens: Tokens
    webhooks: Webhooks

    @classmethod
    def open(cls, url: str, *, migrated: bool = True) -> Self:
        """Open the database at this SQLAlchemy URL, migrated to the newest schema unless it must not be changed."""
        database = open_database(url, migrated=migrated)
        return cls(
            database,
            Comparisons(database),
            RecordParts(database),
            Events(database),
            Tokens(database),
            Webhooks(database),
        )
