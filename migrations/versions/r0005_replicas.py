"""Which brokers hold a topic's replicas."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add `replicas` to `topics`: none of those that are there is replicated."""
    op.add_column("topics", sa.Column("replicas", sa.Text, nullable=False, server_default="[]"))
