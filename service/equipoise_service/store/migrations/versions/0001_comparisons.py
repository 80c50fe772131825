"""Comparisons, their records and their events."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to 0001.

    The tables are written out again and not taken from ``tables.py``: what this revision means must never change.
    """
    op.create_table(
        "comparisons",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("verdict", sa.Text),
        sa.Column("verdict_word", sa.String(32)),
        sa.Column("error", sa.Text),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.Column("idempotency_key", sa.String(255)),
        sa.Column("request_sha256", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_comparisons")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_comparisons_idempotency_key")),
        sa.CheckConstraint("(verdict IS NULL) = (verdict_word IS NULL)", name=op.f("ck_comparisons_verdict_has_word")),
        sa.CheckConstraint(
            "(verdict IS NOT NULL) = (status = 'succeeded')", name=op.f("ck_comparisons_only_succeeded_has_verdict")
        ),
    )
    for column in ("status", "model", "verdict_word"):
        op.create_index(op.f(f"ix_comparisons_{column}_id"), "comparisons", [column, "id"])
    op.create_table(
        "record_parts",
        sa.Column("comparison_id", sa.String(36), nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("payload", sa.Text),
        sa.Column("payload_zlib", sa.LargeBinary),
        sa.PrimaryKeyConstraint("comparison_id", "seq", name=op.f("pk_record_parts")),
        sa.ForeignKeyConstraint(
            ["comparison_id"], ["comparisons.id"], ondelete="CASCADE", name=op.f("fk_record_parts_comparison_id")
        ),
        sa.CheckConstraint("(payload IS NULL) <> (payload_zlib IS NULL)", name=op.f("ck_record_parts_one_payload")),
    )
    op.create_table(
        "events",
        sa.Column("comparison_id", sa.String(36), nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("comparison_id", "seq", name=op.f("pk_events")),
        sa.ForeignKeyConstraint(
            ["comparison_id"], ["comparisons.id"], ondelete="CASCADE", name=op.f("fk_events_comparison_id")
        ),
    )
