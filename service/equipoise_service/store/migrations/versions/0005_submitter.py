"""Who submitted a comparison, so that submitters can take turns."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of what is there nobody knows the submitter."""
    op.add_column("comparisons", sa.Column("submitter", sa.Text, nullable=False, server_default=sa.text("''")))
    op.create_index(op.f("ix_comparisons_submitter_started_at"), "comparisons", ["submitter", "started_at"])
