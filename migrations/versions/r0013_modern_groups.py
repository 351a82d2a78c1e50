"""Groups to whose members the broker assigns (KIP-848, KIP-932)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `modern_groups` and `modern_members`."""
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
