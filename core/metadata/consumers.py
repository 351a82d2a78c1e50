"""Managed consumers in SQLite: rows in, rows out, no rules. A row is a tuple in the order of its table's columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from core.metadata.groups import Effect, Row, all_rows, many
from core.metadata.models import consumer_positions, consumers
from core.metadata.statements import sql

_PUT_CONSUMER, _PUT_POSITION = sql("consumers.put/1"), sql("consumer_positions.put/1")
_PROGRESS = sql("consumers.progress/1")
_REMOVE_POSITION = sql("consumer_positions.delete/1")
_REMOVE_CONSUMER = (sql("consumers.delete/1"), sql("consumer_positions.delete_of_consumer/1"))


def put_consumer(row: Row) -> Effect:
    """The effect that stores a consumer, new or changed."""
    return many(_PUT_CONSUMER, [row])


def put_progress(group_id: str, name: str, values: Row) -> Effect:
    """The effect that stores the values of `core.metadata.statements.PROGRESS_COLUMNS` of a consumer."""
    return many(_PROGRESS, [(*values, group_id, name)])


def put_positions(rows: Sequence[Row]) -> Effect:
    """The effect that stores positions."""
    return many(_PUT_POSITION, rows)


def remove_positions(group_id: str, name: str, partitions: Iterable[tuple[str, int]]) -> Effect:
    """The effect that forgets some positions of a consumer."""
    return many(_REMOVE_POSITION, [(group_id, name, topic, partition) for topic, partition in partitions])


def remove_consumer(group_id: str, name: str) -> Effect:
    """The effect that forgets a consumer with its positions."""

    def effect(connection: Connection) -> None:
        for statement in _REMOVE_CONSUMER:
            connection.exec_driver_sql(statement, (group_id, name))

    return effect


def load_consumers(connection: Connection) -> tuple[list[Row], list[Row]]:
    """All consumers, and all positions."""
    return all_rows(connection, consumers, ""), all_rows(connection, consumer_positions, "")
