"""Groups, their members, committed offsets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `groups`, `group_members` and `committed_offsets`."""
    op.create_table(
        "groups",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("protocol_type", sa.String),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("protocol", sa.String),
        sa.Column("leader_id", sa.String),
        sa.Column("empty_since_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "group_members",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("member_id", sa.String, primary_key=True),
        sa.Column("group_instance_id", sa.String),
        sa.Column("client_id", sa.String, nullable=False),
        sa.Column("client_host", sa.String, nullable=False),
        sa.Column("session_timeout_ms", sa.Integer, nullable=False),
        sa.Column("rebalance_timeout_ms", sa.Integer, nullable=False),
        sa.Column("protocols", sa.LargeBinary, nullable=False),
        sa.Column("assignment", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "committed_offsets",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("topic", sa.String, primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True),
        sa.Column("committed_offset", sa.BigInteger, nullable=False),
        sa.Column("leader_epoch", sa.Integer, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("commit_ms", sa.BigInteger, nullable=False),
        sa.Column("expire_ms", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
