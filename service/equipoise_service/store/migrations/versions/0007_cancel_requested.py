"""When the cancellation of a comparison at work was asked for, so that the end of its service does not undo it."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; nobody knows of what was asked for before."""
    op.add_column("comparisons", sa.Column("cancel_requested_at", sa.DateTime(timezone=True)))
