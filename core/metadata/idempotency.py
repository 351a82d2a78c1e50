"""Idempotency keys in SQLite: rows in, rows out, no rules."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from core.metadata.groups import Effect, many
from core.metadata.statements import sql

# An answer of this many bytes or more is stored compressed. It has an offset for each record, and shrinks to a tenth.
COMPRESS_FROM = 1024
# What a row takes beside its plan and its answer: two digests, twice in an index, and SQLite's own.
ROW_BYTES = 250
# Rows that one step removes: digests lie all over the file, so that each costs up to 0.2 ms of the writer's time.
ROWS_AT_ONCE = 100
_PLAIN, _COMPRESSED = b"\0", b"\1"

_BIND, _REMOVE = sql("idempotency_keys.bind/1"), sql("idempotency_keys.delete/1")
_ANSWER, _PLACES = sql("idempotency_keys.answer/1"), sql("idempotency_keys.places/1")
_REMOVE_OLDEST = sql("idempotency_keys.delete_oldest/1")
_FIND = "SELECT fingerprint, plan, places, answer FROM idempotency_keys WHERE digest = ? AND created_ms >= ?"


class KeyRow(NamedTuple):
    """What is stored of a key. `answer` is None as long as the request is not done."""

    fingerprint: bytes
    plan: bytes
    places: bytes
    answer: bytes | None


class Totals(NamedTuple):
    """How many keys there are, and about how many bytes they take."""

    keys: int
    size: int


def bind(
    digest: bytes, fingerprint: bytes, plan: bytes, *, now_ms: int, expired_ms: int
) -> Callable[[Connection], KeyRow | None]:
    """The query that stores a new key with its plan, and answers None; or the row that is there already.

    A row from before `expired_ms` counts for nothing.
    """

    def query(connection: Connection) -> KeyRow | None:
        size = ROW_BYTES + len(plan)
        values = (digest, fingerprint, now_ms, size, plan, expired_ms)
        if _run(connection, _BIND, values) == 1:
            return None
        return find(digest, expired_ms=expired_ms)(connection)

    return query


def find(digest: bytes, *, expired_ms: int) -> Callable[[Connection], KeyRow | None]:
    """The query for a key that is not older than `expired_ms`."""

    def query(connection: Connection) -> KeyRow | None:
        row = connection.exec_driver_sql(_FIND, (digest, expired_ms)).cursor.fetchone()
        if row is None:
            return None
        fingerprint, plan, places, answer = row
        return KeyRow(fingerprint, plan, places, None if answer is None else _unpack(answer))

    return query


def put_answer(digest: bytes, answer: bytes) -> Effect:
    """The effect that stores the answer of a key: the request is done."""

    def effect(connection: Connection) -> None:
        packed = _pack(answer)
        _run(connection, _ANSWER, (packed, len(packed), digest))

    return effect


def put_places(rows: Sequence[tuple[bytes, bytes]]) -> Effect:
    """The effect that stores, for some digests, where their batches are."""
    return many(_PLACES, [(places, digest) for digest, places in rows])


def remove(digest: bytes) -> Effect:
    """The effect that forgets a key."""
    return many(_REMOVE, [(digest,)])


def remove_oldest(
    *, before_ms: int, expired_ms: int, limit: int = ROWS_AT_ONCE
) -> Callable[[Connection], int]:
    """The query that removes some of the oldest keys, and answers how many: `limit` and `ROWS_AT_ONCE` at most.

    Those from before `expired_ms`, and of those from before `before_ms` the ones that are answered.
    """

    def query(connection: Connection) -> int:
        return _run(connection, _REMOVE_OLDEST, (before_ms, expired_ms, min(limit, ROWS_AT_ONCE)))

    return query


def load_open(connection: Connection) -> list[tuple[bytes, bytes, bytes]]:
    """(digest, plan, places) of all keys without an answer."""
    result = connection.exec_driver_sql(
        "SELECT digest, plan, places FROM idempotency_keys WHERE answer IS NULL"
    )
    return list(result.cursor.fetchall())


def totals(connection: Connection) -> Totals:
    """How many keys there are, and their size."""
    row = connection.exec_driver_sql("SELECT count(*), coalesce(sum(size), 0) FROM idempotency_keys").one()
    return Totals(*row)


def _run(connection: Connection, statement: str, values: tuple[Any, ...]) -> int:
    cursor = connection.connection.cursor()
    try:
        cursor.execute(statement, values)
        return int(cursor.rowcount)
    finally:
        cursor.close()


def _pack(answer: bytes) -> bytes:
    return _PLAIN + answer if len(answer) < COMPRESS_FROM else _COMPRESSED + zlib.compress(answer, 1)


def _unpack(packed: bytes) -> bytes:
    return packed[1:] if packed[:1] == _PLAIN else zlib.decompress(packed[1:])
