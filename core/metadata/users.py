"""Users, SCRAM credentials and tokens in SQLite: rows in, rows out, no rules.

A row is a tuple in the order of its table's columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from core.metadata.groups import Effect, Row, all_rows, many, upsert
from core.metadata.models import scram_credentials, tokens, users

_PUT_USER = "INSERT OR IGNORE INTO users (name, created_ms) VALUES (?, ?)"
_PUT_CREDENTIAL, _PUT_TOKEN = upsert(scram_credentials), upsert(tokens)
_REMOVE_CREDENTIAL = "DELETE FROM scram_credentials WHERE name = ? AND mechanism = ?"


def put_user(name: str, created_ms: int) -> Effect:
    """The effect that stores a user, unless there is one of that name."""
    return many(_PUT_USER, [(name, created_ms)])


def put_credentials(rows: Sequence[Row]) -> Effect:
    """The effect that stores SCRAM credentials, new or changed."""
    return many(_PUT_CREDENTIAL, rows)


def remove_credential(name: str, mechanism: int) -> Effect:
    """The effect that forgets a SCRAM credential."""
    return many(_REMOVE_CREDENTIAL, [(name, mechanism)])


def remove_user(name: str) -> Effect:
    """The effect that forgets a user with credentials and tokens."""

    def effect(connection: Connection) -> None:
        for table, column in (("users", "name"), ("scram_credentials", "name"), ("tokens", "owner")):
            connection.exec_driver_sql(f"DELETE FROM {table} WHERE {column} = ?", (name,))

    return effect


def put_token(row: Row) -> Effect:
    """The effect that stores a token."""
    return many(_PUT_TOKEN, [row])


def remove_tokens(token_ids: Sequence[str]) -> Effect:
    """The effect that forgets tokens."""
    return many("DELETE FROM tokens WHERE token_id = ?", [(one,) for one in token_ids])


def load_users(connection: Connection) -> tuple[list[Row], list[Row], list[Row]]:
    """All users, all SCRAM credentials, all tokens."""
    return (
        all_rows(connection, users, ""),
        all_rows(connection, scram_credentials, ""),
        all_rows(connection, tokens, ""),
    )
