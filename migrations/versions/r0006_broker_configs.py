"""Settings of brokers that were changed at run time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `broker_configs`."""
    op.create_table(
        "broker_configs",
        sa.Column("broker", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(249), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
