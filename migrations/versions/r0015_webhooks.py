"""Webhooks of queues."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `webhooks`."""
    op.create_table(
        "webhooks",
        sa.Column("queue", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("queue_created_ms", sa.BigInteger, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("settings", sa.LargeBinary, nullable=False),
        sa.Column("secrets", sa.LargeBinary, nullable=False),
        sa.Column("off_because", sa.Text, nullable=False),
        sa.Column("failing_since_ms", sa.BigInteger),
    )
