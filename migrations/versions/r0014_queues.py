"""Queues (share groups): their settings, and what is known of the records of their partitions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `share_groups`, `share_attempts`, `share_partitions` and `share_updates`."""
    op.create_table(
        "share_groups",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("settings", sa.LargeBinary, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("leases", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "share_attempts",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("attempt", sa.String, primary_key=True),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
        sa.Column("ranges", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "share_partitions",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("topic_id", sa.LargeBinary(16), primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True),
        sa.Column("start", sa.BigInteger, nullable=False),
        sa.Column("nonce", sa.BigInteger, nullable=False),
        sa.Column("tracked_end", sa.BigInteger, nullable=False),
        sa.Column("snapshot", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "share_updates",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("topic_id", sa.LargeBinary(16), primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True),
        sa.Column("tracked_end", sa.BigInteger, nullable=False),
        sa.Column("change", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
