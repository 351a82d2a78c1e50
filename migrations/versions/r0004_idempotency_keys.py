"""Idempotency keys of HTTP requests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `idempotency_keys`."""
    op.create_table(
        "idempotency_keys",
        sa.Column("digest", sa.LargeBinary(32), primary_key=True),
        sa.Column("fingerprint", sa.LargeBinary(32), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("plan", sa.LargeBinary, nullable=False),
        sa.Column("places", sa.LargeBinary, nullable=False),
        sa.Column("answer", sa.LargeBinary),
    )
    op.create_index("idempotency_keys_by_age", "idempotency_keys", ["created_ms", "size"])
    op.create_index(
        "idempotency_keys_open",
        "idempotency_keys",
        ["digest"],
        sqlite_where=sa.text("answer IS NULL"),
    )
