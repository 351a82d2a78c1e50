"""Access rules in SQLite: rows in, rows out, no rules of their own.

A row is a tuple in the order of the columns, the enumerations as their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from core.metadata.groups import Effect, Row, all_rows, many
from core.metadata.models import acls
from core.metadata.statements import sql

_PUT, _REMOVE = sql("acls.put/1"), sql("acls.delete/1")


def put_acls(rows: Sequence[Row]) -> Effect:
    """The effect that stores access rules; those that are there stay."""
    return many(_PUT, rows)


def remove_acls(rows: Sequence[Row]) -> Effect:
    """The effect that removes access rules."""
    return many(_REMOVE, rows)


def load_acls(connection: Connection) -> list[Row]:
    """All access rules."""
    return all_rows(connection, acls, "")
