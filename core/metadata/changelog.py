"""Changes of the database as data: the statements of a transaction with their values, for other brokers to repeat.

    MessagePack: [statement, rows] for each, a row being the array of its values; or the whole database, which
    begins with a statement that is empty: ["", [[table, columns…], …]], followed by the inserts.

A broker that repeats the transactions in their order, from the beginning or from a copy of the database on, gets the
same database. Times and random values are in the transactions: no statement asks SQLite for them.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection

from core.metadata.models import metadata

Change = tuple[str, list[Sequence[Any]]]
"""A statement, and the rows of values with which it was executed."""

# The setting that says up to which transaction the database has come; each broker's own.
APPLIED = "local.metadata.applied"
LOCAL_PREFIX = "local."
WHOLE = ""
_WRITES = re.compile(r"\s*(INSERT|UPDATE|DELETE|REPLACE)\b", re.IGNORECASE)
_OF_TOPICS = re.compile(
    r"\b(topics|settings|broker_configs|users|scram_credentials|tokens|acls)\b", re.IGNORECASE
)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[tuple[str, list[list[Any]]]])


class RecordingConnection(sqlite3.Connection):
    """A connection that notes what is written over it, unless it is `silent`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.silent = False
        self._changes: list[Change] = []

    def cursor(self, factory: Any = None) -> Any:
        """A cursor that notes what is written over it."""
        return super().cursor(factory or _RecordingCursor)

    def take(self) -> list[Change]:
        """What was noted since the last call."""
        taken, self._changes = self._changes, []
        return taken

    def note_all(self, changes: list[Change]) -> None:
        """Let these be written, whatever they are, and executed by the others only."""
        self._changes += changes

    def note(self, statement: str, rows: list[Sequence[Any]]) -> None:
        """Something is written."""
        if not self.silent and rows and _WRITES.match(statement):
            self._changes.append((statement, rows))


class _RecordingCursor(sqlite3.Cursor):
    connection: RecordingConnection

    def execute(self, statement: str, values: Any = ()) -> _RecordingCursor:
        super().execute(statement, values)
        self.connection.note(statement, [tuple(values)])
        return self

    def executemany(self, statement: str, rows: Iterable[Any]) -> _RecordingCursor:
        kept = [tuple(row) for row in rows]
        super().executemany(statement, kept)
        self.connection.note(statement, list(kept))
        return self


def encode_changes(changes: list[Change]) -> bytes:
    """Changes as bytes."""
    return _encoder.encode(changes)


def decode_changes(data: bytes) -> list[tuple[str, list[list[Any]]]]:
    """Changes from bytes; ValueError if they are none."""
    return _decoder.decode(data)


def touch_topics(changes: Sequence[Change | tuple[str, list[list[Any]]]]) -> bool:
    """Whether any of the changes is about topics, settings, users or access rules: each broker has all of these."""
    return any(statement == WHOLE or _OF_TOPICS.search(statement) for statement, _ in changes)


def apply_changes(changes: Sequence[tuple[str, list[list[Any]]]]) -> Any:
    """The effect that repeats changes of another broker."""

    def effect(connection: Connection) -> None:
        cursor = connection.connection.cursor()
        for statement, rows in changes:
            if statement == WHOLE:
                _clear(cursor)
            else:
                cursor.executemany(statement, rows)
        cursor.close()

    return effect


def clear(connection: Connection) -> None:
    """The effect that forgets everything but what is this broker's own."""
    cursor = connection.connection.cursor()
    _clear(cursor)
    cursor.close()


def _clear(cursor: Any) -> None:
    for table in metadata.sorted_tables:
        where = f" WHERE name NOT LIKE '{LOCAL_PREFIX}%'" if table.name == "settings" else ""
        cursor.execute(f'DELETE FROM "{table.name}"{where}')


def whole_database(connection: Connection) -> list[Change]:
    """Return the database as changes. A broker that applies them has the same rows in the same order."""
    changes: list[Change] = [(WHOLE, [[]])]
    for table in metadata.sorted_tables:
        names = [column.name for column in table.columns]
        columns = ", ".join(f'"{name}"' for name in names)
        marks = ", ".join("?" * len(names))
        where = f" WHERE name NOT LIKE '{LOCAL_PREFIX}%'" if table.name == "settings" else ""
        order = "" if not table.dialect_options["sqlite"]["with_rowid"] else " ORDER BY rowid"
        rows = connection.exec_driver_sql(
            f'SELECT {columns} FROM "{table.name}"{where}{order}'
        ).cursor.fetchall()
        if rows:
            changes.append((f'INSERT INTO "{table.name}" ({columns}) VALUES ({marks})', list(rows)))
    return changes


def note_whole_database(connection: Connection) -> None:
    """The effect that changes nothing here, and gives the other brokers the whole database."""
    recording: Any = connection.connection.dbapi_connection
    recording.note_all(whole_database(connection))
