"""The queue's columns (priority, attempt, lease, heartbeat, deadline) and what a list shows, in columns of its own."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ACTIVE = "status IN ('running', 'judging')"


def upgrade() -> None:
    """Add the columns, fill in what lists show of comparisons that are there, and let one owner work on one at most."""
    for column in (
        sa.Column("priority", sa.Integer, nullable=False, server_default="0"),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_until", sa.DateTime(timezone=True)),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True)),
        sa.Column("deadline_at", sa.DateTime(timezone=True)),
        sa.Column("model_name", sa.Text, nullable=False, server_default=sa.text("''")),
        sa.Column("preset", sa.String(80), nullable=False, server_default=sa.text("''")),
        sa.Column("headline", sa.Text),
        sa.Column("reason", sa.Text),
    ):
        op.add_column("comparisons", column)
    _fill_in()
    op.create_index(op.f("ix_comparisons_status_priority_id"), "comparisons", ["status", "priority", "id"])
    op.create_index(op.f("ix_comparisons_model_name_id"), "comparisons", ["model_name", "id"])
    op.create_index(op.f("ix_comparisons_request_sha256"), "comparisons", ["request_sha256"])
    op.create_index(
        op.f("uq_comparisons_lease_owner_active"),
        "comparisons",
        ["lease_owner"],
        unique=True,
        sqlite_where=sa.text(ACTIVE),
        postgresql_where=sa.text(ACTIVE),
    )


def _fill_in() -> None:
    table = sa.table("comparisons", *(sa.column(name) for name in (
        "id", "request", "plan", "verdict", "error", "model_name", "preset", "headline", "reason",
    )))  # fmt: skip
    connection = op.get_bind()
    for row in connection.execute(sa.select(table)).mappings().all():
        verdict = json.loads(row["verdict"]) if row["verdict"] else {}
        connection.execute(
            sa.update(table)
            .where(table.c.id == row["id"])
            .values(
                model_name=json.loads(row["plan"])["model"]["name"],
                preset=json.loads(row["request"])["preset"],
                headline=verdict.get("headline"),
                reason=json.loads(row["error"])["reason"] if row["error"] else None,
            )
        )
