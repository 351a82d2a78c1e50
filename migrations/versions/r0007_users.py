"""Users, their SCRAM credentials and tokens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `users`, `scram_credentials` and `tokens`."""
    op.create_table(
        "users",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "scram_credentials",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("mechanism", sa.Integer, primary_key=True),
        sa.Column("salt", sa.LargeBinary, nullable=False),
        sa.Column("stored_key", sa.LargeBinary, nullable=False),
        sa.Column("server_key", sa.LargeBinary, nullable=False),
        sa.Column("iterations", sa.Integer, nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("token_id", sa.String(16), primary_key=True),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
    )
