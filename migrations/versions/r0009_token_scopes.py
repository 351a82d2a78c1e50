"""Scopes of tokens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add `scope` to `tokens`. A token from before has none: it has all rights of its owner."""
    op.add_column("tokens", sa.Column("scope", sa.Text, nullable=False, server_default=""))
