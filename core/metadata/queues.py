"""Queues in SQLite: rows in, rows out, no rules. A row is a tuple in the order of its table's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection

from core.metadata.groups import Effect, Row, all_rows, many
from core.metadata.models import share_groups
from core.metadata.statements import sql

_PUT_GROUP, _LEASES = sql("share_groups.put/1"), sql("share_groups.leases/1")
_PUT_PARTITION, _PUT_UPDATE = sql("share_partitions.put/1"), sql("share_updates.put/1")
_REMOVE_UPDATES = sql("share_updates.delete/1")
_ADD_PARTITION = sql("share_partitions.add/1")
_PUT_ATTEMPT, _REMOVE_OLD_ATTEMPTS = sql("share_attempts.put/1"), sql("share_attempts.delete_old/1")
_REMOVE_OF_GROUP = (
    sql("share_attempts.delete_of_group/1"),
    sql("share_updates.delete_of_group/1"),
    sql("share_partitions.delete_of_group/1"),
)
_REMOVE_GROUP = sql("share_groups.delete/1")
_REMOVE_OF_TOPIC = (
    sql("share_updates.delete_of_topic/1"),
    sql("share_partitions.delete_of_topic/1"),
)
_REMOVE_OF_GROUP_TOPIC = (
    sql("share_updates.delete_of_group_topic/1"),
    sql("share_partitions.delete_of_group_topic/1"),
)
_OF_PARTITION = "WHERE group_id = ? AND topic_id = ? AND partition = ?"
_SNAPSHOT = f"SELECT snapshot FROM share_partitions {_OF_PARTITION}"
_SNAPSHOTS = "SELECT topic_id, partition, snapshot FROM share_partitions WHERE group_id = ?"
_ALL_UPDATES = (
    "SELECT topic_id, partition, seq, change FROM share_updates WHERE group_id = ?"
    " ORDER BY topic_id, partition, seq"
)
_UPDATES = f"SELECT change FROM share_updates {_OF_PARTITION}"
_ATTEMPTS = "SELECT attempt, until_ms, ranges FROM share_attempts WHERE group_id = ?"
# What is known of each partition without its blobs: the end is that of the newest change.
_PARTITIONS = (
    "SELECT group_id, topic_id, partition, start, nonce, max(tracked_end, coalesce((SELECT max(u.tracked_end)"
    " FROM share_updates u WHERE u.group_id = p.group_id AND u.topic_id = p.topic_id AND u.partition = p.partition),"
    " 0)) FROM share_partitions p"
)

# No change has a higher number.
_NEWEST = 2**63 - 1

Fold = Callable[[bytes, Sequence[bytes]], tuple[int, int, int, bytes]]
"""Makes one snapshot from an older one and the changes since; returns start, nonce and tracked end with it."""


def put_group(row: Row) -> Effect:
    """The effect that stores a queue, new or changed."""
    return many(_PUT_GROUP, [row])


def put_leases(group_id: str, leases: int) -> Effect:
    """The effect that reserves the numbers of leases below `leases`."""
    return many(_LEASES, [(leases, group_id)])


def remove_group(group_id: str) -> Effect:
    """The effect that forgets a queue with its partitions."""

    def effect(connection: Connection) -> None:
        for statement in (*_REMOVE_OF_GROUP, _REMOVE_GROUP):
            connection.exec_driver_sql(statement, (group_id,))

    return effect


def remove_group_topics(group_id: str, topic_ids: Iterable[bytes]) -> Effect:
    """The effect that forgets the partitions of topics in one queue."""
    rows = [(group_id, topic_id) for topic_id in topic_ids]

    def effect(connection: Connection) -> None:
        for statement in _REMOVE_OF_GROUP_TOPIC:
            for row in rows:
                connection.exec_driver_sql(statement, row)

    return effect


def remove_topics(topic_ids: Iterable[bytes]) -> Effect:
    """The effect that forgets the partitions of topics in all queues."""
    rows = [(topic_id,) for topic_id in topic_ids]

    def effect(connection: Connection) -> None:
        for statement in _REMOVE_OF_TOPIC:
            for row in rows:
                connection.exec_driver_sql(statement, row)

    return effect


def put_attempt(group_id: str, attempt: str, until_ms: int, ranges: bytes, now_ms: int) -> Effect:
    """The effect that stores a receive that may be repeated, and forgets those whose time is over."""

    def effect(connection: Connection) -> None:
        cursor = connection.connection.cursor()
        cursor.execute(_REMOVE_OLD_ATTEMPTS, (group_id, now_ms))
        cursor.execute(_PUT_ATTEMPT, (group_id, attempt, until_ms, ranges))
        cursor.close()

    return effect


def add_partitions(rows: Sequence[Row]) -> Effect:
    """The effect that stores partitions that are new; it changes none that is stored already."""
    return many(_ADD_PARTITION, rows)


def put_partitions(rows: Sequence[Row]) -> Effect:
    """The effect that stores partitions as they are now; the changes before it are forgotten."""

    def effect(connection: Connection) -> None:
        cursor = connection.connection.cursor()
        cursor.executemany(_REMOVE_UPDATES, [(*row[:3], _NEWEST) for row in rows])
        cursor.executemany(_PUT_PARTITION, rows)
        cursor.close()

    return effect


def put_updates(rows: Sequence[Row]) -> Effect:
    """The effect that stores changes of partitions."""
    return many(_PUT_UPDATE, rows)


def fold(group_id: str, topic_id: bytes, partition: int, up_to: int, merge: Fold) -> Effect:
    """The effect that makes one snapshot of a partition from the last one and the changes up to a number."""
    key = (group_id, topic_id, partition)

    def effect(connection: Connection) -> None:
        found = connection.exec_driver_sql(_SNAPSHOT, key).first()
        changes = connection.exec_driver_sql(
            f"{_UPDATES} AND seq <= ? ORDER BY seq", (*key, up_to)
        ).fetchall()
        if found is None or not changes:
            return
        merged = merge(found[0], [change for (change,) in changes])
        cursor = connection.connection.cursor()
        cursor.execute(_REMOVE_UPDATES, (*key, up_to))
        cursor.execute(_PUT_PARTITION, (*key, *merged))
        cursor.close()

    return effect


def load_groups(connection: Connection) -> list[Row]:
    """All queues."""
    return all_rows(connection, share_groups, "")


def load_partitions(connection: Connection) -> list[Any]:
    """(group id, topic id, partition, start, nonce, tracked end) of all partitions."""
    return list(connection.exec_driver_sql(_PARTITIONS).fetchall())


def load_attempts(group_id: str) -> Callable[[Connection], list[Any]]:
    """Return the query for (attempt, until, ranges) of a queue."""

    def query(connection: Connection) -> list[Any]:
        found = connection.exec_driver_sql(_ATTEMPTS, (group_id,))
        return list(found.fetchall())

    return query


def load_group(group_id: str) -> Callable[[Connection], tuple[list[Any], list[Any]]]:
    """Return the query for the snapshots of a queue, (topic id, partition, snapshot), and the changes since.

    The changes are (topic id, partition, seq, change), in the order of `seq` for each partition.
    """

    def query(connection: Connection) -> tuple[list[Any], list[Any]]:
        snapshots = connection.exec_driver_sql(_SNAPSHOTS, (group_id,)).fetchall()
        return list(snapshots), list(connection.exec_driver_sql(_ALL_UPDATES, (group_id,)).fetchall())

    return query
