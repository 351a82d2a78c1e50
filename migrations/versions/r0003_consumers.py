"""Managed consumers and their positions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `consumers` and `consumer_positions`."""
    op.create_table(
        "consumers",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("nonce", sa.String(16), nullable=False),
        sa.Column("subscription", sa.LargeBinary, nullable=False),
        sa.Column("options", sa.LargeBinary, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("member_id", sa.String, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("outstanding", sa.LargeBinary, nullable=False),
        sa.Column("paused", sa.LargeBinary, nullable=False),
        sa.Column("deadline_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "consumer_positions",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("topic", sa.String, primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
