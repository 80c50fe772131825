"""The tables, in SQL that SQLite and PostgreSQL both have. Migrations lead here; a test compares the two.

JSON documents are kept as the text that was written: a database's own JSON type may reorder keys or round numbers, and
a verdict must come back byte for byte.
"""

from datetime import UTC, datetime

from sqlalchemy import (
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    text,
)


class UtcDateTime(TypeDecorator[datetime]):
    """An instant: aware on the way in, aware and in UTC on the way out, also where the database keeps no zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse an instant without a zone; convert any other to UTC."""
        del dialect
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Give the zone back that SQLite does not keep."""
        del dialect
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

comparisons = Table(
    "comparisons",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("status", String(16), nullable=False),
    Column("model", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("plan", Text, nullable=False),
    Column("verdict", Text),
    Column("verdict_word", String(32)),
    Column("error", Text),
    Column("created_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("finished_at", UtcDateTime),
    Column("idempotency_key", String(255), unique=True),
    Column("request_sha256", String(64), nullable=False),
    Column("priority", Integer, nullable=False, server_default="0"),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("claim", Integer, nullable=False, server_default="0"),
    Column("lease_owner", Text),
    Column("lease_until", UtcDateTime),
    Column("heartbeat_at", UtcDateTime),
    Column("deadline_at", UtcDateTime),
    Column("cancel_requested_at", UtcDateTime),
    Column("submitter", Text, nullable=False, server_default=text("''")),
    # What a list shows, so that it need not read plans and verdicts.
    Column("model_name", Text, nullable=False, server_default=text("''")),
    Column("preset", String(80), nullable=False, server_default=text("''")),
    Column("headline", Text),
    Column("reason", Text),
    Column("arms", Text, nullable=False, server_default=text("''")),
    Column("machine", Text),
    Column("effect", Float),
    Column("intervals", Text),
    CheckConstraint("(verdict IS NULL) = (verdict_word IS NULL)", name="verdict_has_word"),
    CheckConstraint("(verdict IS NOT NULL) = (status = 'succeeded')", name="only_succeeded_has_verdict"),
    Index(None, "status", "id"),
    Index(None, "arms", "id"),
    Index(None, "machine", "id"),
    Index(None, "effect", "id"),
    Index(None, "status", "priority", "id"),
    Index(None, "submitter", "started_at"),
    Index(None, "model", "id"),
    Index(None, "model_name", "id"),
    Index(None, "request_sha256"),
    Index(
        "uq_comparisons_lease_owner_active",
        "lease_owner",
        unique=True,
        sqlite_where=text("status IN ('running', 'judging')"),
        postgresql_where=text("status IN ('running', 'judging')"),
    ),
    Index(None, "verdict_word", "id"),
)

record_parts = Table(
    "record_parts",
    metadata,
    Column("comparison_id", ForeignKey("comparisons.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(32), nullable=False),
    Column("payload", Text),
    Column("payload_zlib", LargeBinary),
    CheckConstraint("(payload IS NULL) <> (payload_zlib IS NULL)", name="one_payload"),
)

events = Table(
    "events",
    metadata,
    Column("comparison_id", ForeignKey("comparisons.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", UtcDateTime, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("payload", Text, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("name", String(80), nullable=False),
    Column("scope", String(16), nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime),
    Column("revoked_at", UtcDateTime),
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("webhook_id", ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    Column("comparison_id", ForeignKey("comparisons.id", ondelete="CASCADE"), nullable=False),
    Column("body", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", UtcDateTime),
    Column("delivered_at", UtcDateTime),
    Column("last_error", Text),
    Index(None, "next_at"),
    Index(None, "webhook_id", "id"),
)
