"""Offsets of consumer groups that open transactions have staged."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `pending_offsets`."""
    op.create_table(
        "pending_offsets",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("topic_id", sa.LargeBinary(16), primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True),
        sa.Column("producer_id", sa.BigInteger, primary_key=True),
        sa.Column("producer_epoch", sa.Integer, nullable=False),
        sa.Column("committed_offset", sa.BigInteger, nullable=False),
        sa.Column("leader_epoch", sa.Integer, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("commit_ms", sa.BigInteger, nullable=False),
        sa.Column("commit_seq", sa.BigInteger, nullable=False),
        sa.Column("superseded", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("pending_offsets_by_producer", "pending_offsets", ["producer_id"])
