"""How often a comparison was ever claimed, which tells a worker from its successor also after a resume."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; what is there was claimed as often as it was begun, or more often."""
    op.add_column("comparisons", sa.Column("claim", sa.Integer, nullable=False, server_default="0"))
    op.execute("UPDATE comparisons SET claim = attempt")
