"""Transactional ids, and how their transactions end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `transactional_ids` and `transaction_decisions`."""
    op.create_table(
        "transactional_ids",
        sa.Column("transactional_id", sa.String, primary_key=True),
        sa.Column("producer_id", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("previous_id", sa.BigInteger, nullable=False),
        sa.Column("previous_epoch", sa.Integer, nullable=False),
        sa.Column("timeout_ms", sa.Integer, nullable=False),
        sa.Column("state", sa.Integer, nullable=False),
        sa.Column("updated_ms", sa.BigInteger, nullable=False),
        sa.Column("parts", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "transaction_decisions",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("producer_id", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("marker_epoch", sa.Integer, nullable=False),
        sa.Column("coordinator_epoch", sa.Integer, nullable=False),
        sa.Column("commit", sa.Boolean, nullable=False),
        sa.Column("parts", sa.LargeBinary, nullable=False),
    )
