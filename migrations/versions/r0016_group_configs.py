"""Settings of single groups."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `group_configs`."""
    op.create_table(
        "group_configs",
        sa.Column("group_id", sa.String, primary_key=True),
        sa.Column("name", sa.String(249), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
