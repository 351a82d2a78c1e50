"""Groups to whose members the broker assigns (KIP-848, KIP-932), settings of groups, queues and their webhooks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables of modern groups, share groups, webhooks and group configs."""
    _create_groups()
    _create_partitions()
    _create_the_rest()


def _create_groups() -> None:
    op.create_table(
        "modern_groups",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("group_type", sa.String, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("empty_since_ms", sa.BigInteger, nullable=False),
        sa.Column("details", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "modern_members",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("member_id", sa.String, primary_key=True),
        sa.Column("details", sa.LargeBinary, nullable=False),
    )
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


def _create_partitions() -> None:
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


def _create_the_rest() -> None:
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
    op.create_table(
        "group_configs",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("name", sa.String(249), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "share_dead_letters",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
    )
