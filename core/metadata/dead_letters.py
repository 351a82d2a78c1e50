"""The dead letters of queues in SQLite: rows in, rows out, no rules."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from core.metadata.groups import Effect, Row, all_rows, many
from core.metadata.models import share_dead_letters
from core.metadata.statements import sql

_PUT, _REMOVE = sql("share_dead_letters.put/1"), sql("share_dead_letters.delete/1")


def put_dead_letters(row: Row) -> Effect:
    """The effect that stores the row of a queue: name, time of its creation, state."""
    return many(_PUT, [row])


def remove_dead_letters(names: Sequence[str]) -> Effect:
    """The effect that forgets the rows of queues."""
    return many(_REMOVE, [(name,) for name in names])


def load_dead_letters(connection: Connection) -> list[Row]:
    """All rows."""
    return all_rows(connection, share_dead_letters, "")
