"""Managed consumers in SQLite: rows in, rows out, no rules. A row is a tuple in the order of its table's columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from core.metadata.groups import Effect, Row, all_rows, many, upsert
from core.metadata.models import consumer_positions, consumers

_PUT_CONSUMER, _PUT_POSITION = upsert(consumers), upsert(consumer_positions)
# What a poll or an acknowledgement changes; the rest of the row stays.
PROGRESS_COLUMNS = ("member_id", "generation", "sequence", "outstanding", "paused", "deadline_ms")
_SET_PROGRESS = ", ".join(f"{name} = ?" for name in PROGRESS_COLUMNS)
_PROGRESS = f"UPDATE consumers SET {_SET_PROGRESS} WHERE group_id = ? AND name = ?"
_REMOVE_POSITION = (
    "DELETE FROM consumer_positions WHERE group_id = ? AND name = ? AND topic = ? AND partition = ?"
)


def put_consumer(row: Row) -> Effect:
    """The effect that stores a consumer, new or changed."""
    return many(_PUT_CONSUMER, [row])


def put_progress(group_id: str, name: str, values: Row) -> Effect:
    """The effect that stores the values of `PROGRESS_COLUMNS` of a consumer."""
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
        for table in ("consumers", "consumer_positions"):
            connection.exec_driver_sql(
                f"DELETE FROM {table} WHERE group_id = ? AND name = ?", (group_id, name)
            )

    return effect


def load_consumers(connection: Connection) -> tuple[list[Row], list[Row]]:
    """All consumers, and all positions."""
    return all_rows(connection, consumers, ""), all_rows(connection, consumer_positions, "")
