"""What was redriven or purged of the dead letters of a queue."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `share_dead_letters`."""
    op.create_table(
        "share_dead_letters",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
    )
