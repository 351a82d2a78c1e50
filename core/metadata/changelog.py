"""Changes of the database as data: the statements of a transaction with their values, for other brokers to repeat.

    MessagePack: [1, [[name, rows], …]]; a row is the array of its values. A name is one of
    `core.metadata.statements`. A whole database begins with the empty name, ["", [[]]], followed by its rows.
    Older: [[text, rows], …] with the SQL of the statement, which must be equal to a text of that registry.

A broker executes no statement that it does not know itself: `decode_changes` refuses the whole transaction.

A broker that repeats the transactions in their order, from the beginning or from a copy of the database on, gets the
same database. Times and random values are in the transactions: no statement asks SQLite for them.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection

from core.metadata.models import metadata
from core.metadata.statements import (
    LOCAL_PREFIX,
    Statement,
    check_not_local,
    check_values,
    copy_of,
    sql,
    statement_named,
    statement_of,
)

Change = tuple[str, list[Sequence[Any]]]
"""A statement, and the rows of values with which it was executed."""

# The setting that says up to which transaction the database has come; each broker's own.
APPLIED = "local.metadata.applied"
WHOLE = ""
# The number with which a transaction begins, as MessagePack has it; an older one begins with an array.
_FORMAT = 1
_HEAD = b"\x92"
_NUMBERS = range(0x80)
# How MessagePack begins an array of two whose first element is the empty text: a whole database.
_WHOLE_PREFIX = b"\x92\xa0"
_WRITES = re.compile(r"\s*(INSERT|UPDATE|DELETE|REPLACE)\b", re.IGNORECASE)
_OF_TOPICS = re.compile(
    r"\b(topics|settings|broker_configs|users|scram_credentials|tokens|acls|client_quotas|group_configs)\b",
    re.IGNORECASE,
)
_encoder = msgspec.msgpack.Encoder()
_Changes = list[tuple[str, list[list[Any]]]]
_decoder = msgspec.msgpack.Decoder(tuple[int, _Changes])
_decoder_of_texts = msgspec.msgpack.Decoder(_Changes)


class RefusedChangeError(Exception):
    """A transaction of another broker that this broker does not execute."""


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


def encode_changes(changes: Sequence[Change]) -> bytes:
    """Return changes as bytes. Raises UnknownStatementError for a text that is not in the registry."""
    named = []
    for text, rows in changes:
        name = WHOLE
        if text != WHOLE:
            statement, rows = statement_of(text, rows)
            check_not_local(statement, rows)
            name = statement.name
        named.append((name, rows))
    return _encoder.encode((_FORMAT, named))


def decode_changes(data: bytes) -> list[Change]:
    """Return changes from bytes, with the texts of the registry. Raises RefusedChangeError."""
    try:
        if data[:1] == _HEAD and len(data) > 1 and data[1] in _NUMBERS:
            if data[1] != _FORMAT:
                raise RefusedChangeError(f"it has the format {data[1]}, which belongs to a later release")
            return [_known(one, rows, statement_named) for one, rows in _decoder.decode(data)[1]]
        return [_known(one, rows, statement_of) for one, rows in _decoder_of_texts.decode(data)]
    except (ValueError, RecursionError) as error:
        raise RefusedChangeError(str(error)) from None


def _known(
    one: str,
    rows: list[list[Any]],
    find: Callable[[str, Sequence[Sequence[Any]]], tuple[Statement, list[Sequence[Any]]]],
) -> Change:
    if one == WHOLE:
        return WHOLE, [[]]
    statement, single = find(one, rows)
    check_values(single)
    check_not_local(statement, single)
    return statement.text, single


def is_whole(data: bytes) -> bool:
    """Return whether encoded changes begin with a whole database."""
    # The array of changes has a head of one, three or five bytes, by its length.
    return _WHOLE_PREFIX in data[2:9]


def touch_topics(changes: Sequence[Change]) -> bool:
    """Whether any of the changes is about topics, settings, users or access rules: each broker has all of these."""
    return any(statement == WHOLE or _OF_TOPICS.search(statement) for statement, _ in changes)


def apply_changes(changes: Sequence[Change]) -> Any:
    """The effect that repeats changes of another broker, as `decode_changes` has made them."""

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
        columns = ", ".join(f'"{column.name}"' for column in table.columns)
        where = f" WHERE name NOT LIKE '{LOCAL_PREFIX}%'" if table.name == "settings" else ""
        order = "" if not table.dialect_options["sqlite"]["with_rowid"] else " ORDER BY rowid"
        rows = connection.exec_driver_sql(
            f'SELECT {columns} FROM "{table.name}"{where}{order}'
        ).cursor.fetchall()
        if rows:
            changes.append((sql(copy_of(table)), list(rows)))
    return changes


def note_whole_database(connection: Connection) -> None:
    """The effect that changes nothing here, and gives the other brokers the whole database."""
    recording: Any = connection.connection.dbapi_connection
    recording.note_all(whole_database(connection))
