"""Access rules."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `acls`."""
    op.create_table(
        "acls",
        sa.Column("resource_type", sa.Integer, primary_key=True),
        sa.Column("resource_name", sa.String, primary_key=True),
        sa.Column("pattern_type", sa.Integer, primary_key=True),
        sa.Column("principal", sa.String, primary_key=True),
        sa.Column("host", sa.String, primary_key=True),
        sa.Column("operation", sa.Integer, primary_key=True),
        sa.Column("permission", sa.Integer, primary_key=True),
        sqlite_with_rowid=False,
    )
