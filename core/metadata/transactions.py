"""Transactional ids and decisions in SQLite: rows in, rows out, no rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

import msgspec
from sqlalchemy import Connection

from core.metadata.groups import Effect, many
from core.metadata.statements import sql

_PUT, _DELETE = sql("transactional_ids.put/1"), sql("transactional_ids.delete/1")
_DECIDE, _SETTLE = sql("transaction_decisions.put/1"), sql("transaction_decisions.delete/1")


class StoredPart(NamedTuple):
    """The records of a transaction in one partition."""

    topic: str
    topic_id: UUID
    partition: int
    first_offset: int


class TransactionalIdRow(NamedTuple):
    """One transactional id, as `core.transactions.transaction` knows it."""

    transactional_id: str
    producer_id: int
    epoch: int
    previous_id: int
    previous_epoch: int
    timeout_ms: int
    state: int
    updated_ms: int
    parts: list[StoredPart]


class DecisionRow(NamedTuple):
    """How one transaction ends, and the partitions that need its marker. `number` rises."""

    number: int
    producer_id: int
    epoch: int
    marker_epoch: int
    coordinator_epoch: int
    commit: bool
    parts: list[StoredPart]


def put_transactional_id(row: TransactionalIdRow) -> Effect:
    """Return the effect that stores a transactional id, new or changed."""
    return many(_PUT, [(*row[:-1], _encode(row.parts))])


def delete_transactional_ids(ids: Iterable[str]) -> Effect:
    """Return the effect that forgets some ids."""
    return many(_DELETE, [(one,) for one in ids])


def put_decision(row: DecisionRow) -> Effect:
    """Return the effect that stores how a transaction ends."""
    return many(_DECIDE, [(*row[:-1], _encode(row.parts))])


def delete_decisions(numbers: Iterable[int]) -> Effect:
    """Return the effect that forgets decisions whose markers are all on the disk."""
    return many(_SETTLE, [(one,) for one in numbers])


def load_transactions(connection: Connection) -> tuple[list[TransactionalIdRow], list[DecisionRow]]:
    """Return all ids, and the decisions in the order in which they were made."""
    ids = connection.exec_driver_sql(
        "SELECT transactional_id, producer_id, epoch, previous_id, previous_epoch, timeout_ms, state, updated_ms,"
        " parts FROM transactional_ids ORDER BY updated_ms"
    )
    decisions = connection.exec_driver_sql(
        'SELECT number, producer_id, epoch, marker_epoch, coordinator_epoch, "commit", parts'
        " FROM transaction_decisions ORDER BY number"
    )
    return (
        [TransactionalIdRow._make((*row[:-1], _decode(row[-1]))) for row in ids.cursor.fetchall()],
        [
            DecisionRow._make((*row[:-2], bool(row[-2]), _decode(row[-1])))
            for row in decisions.cursor.fetchall()
        ],
    )


def _encode(parts: list[StoredPart]) -> bytes:
    return msgspec.msgpack.encode(parts)


def _decode(data: bytes) -> list[StoredPart]:
    return msgspec.msgpack.decode(data, type=list[StoredPart]) if data else []
