"""Settings of single groups, in SQLite: rows in, rows out, no rules."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from core.metadata.groups import Effect, all_rows
from core.metadata.models import group_configs
from core.metadata.statements import sql

_PUT, _REMOVE = sql("group_configs.put/1"), sql("group_configs.delete/1")


def put_group_configs(group_id: str, changes: Mapping[str, str | None]) -> Effect:
    """The effect that stores settings of a group; None removes one."""
    stored = [(group_id, name, value) for name, value in changes.items() if value is not None]
    removed = [(group_id, name) for name, value in changes.items() if value is None]

    def effect(connection: Connection) -> None:
        cursor = connection.connection.cursor()
        if stored:
            cursor.executemany(_PUT, stored)
        if removed:
            cursor.executemany(_REMOVE, removed)
        cursor.close()

    return effect


def load_group_configs(connection: Connection) -> list[tuple[str, str, str]]:
    """All of them, as (group id, name, value)."""
    return [(row[0], row[1], row[2]) for row in all_rows(connection, group_configs, "")]
