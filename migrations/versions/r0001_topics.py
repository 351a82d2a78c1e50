"""Topics and single values."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `settings` and `topics`."""
    op.create_table(
        "settings",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "topics",
        sa.Column("name", sa.String(249), primary_key=True),
        sa.Column("topic_id", sa.LargeBinary(16), nullable=False, unique=True),
        sa.Column("partitions", sa.Integer, nullable=False),
        sa.Column("configs", sa.Text, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
    )
