"""The SQLite schema: what the broker must remember beside the logs.

Tables only; the statements stand with whoever uses them. A change here comes with a new revision in
`migrations/versions` and a new `SCHEMA_REVISION`; a test holds that a fresh database and a migrated one are
the same.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, MetaData, String, Table, Text

SCHEMA_REVISION = "0001"

metadata = MetaData()

# Single values: cluster id, next producer id.
settings = Table(
    "settings",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", Text, nullable=False),
)

# One row a topic. `configs` is a JSON object of the overrides, as text; `version` rises with each change.
topics = Table(
    "topics",
    metadata,
    Column("name", String(249), primary_key=True),
    Column("topic_id", LargeBinary(16), nullable=False, unique=True),
    Column("partitions", Integer, nullable=False),
    Column("configs", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
)
