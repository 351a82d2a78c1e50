"""Users, SCRAM credentials and tokens in SQLite: rows in, rows out, no rules.

A row is a tuple in the order of its table's columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from core.metadata.groups import Effect, Row, all_rows, many
from core.metadata.models import scram_credentials, tokens, users
from core.metadata.statements import sql

_PUT_USER, _PUT_CREDENTIAL = sql("users.put/1"), sql("scram_credentials.put/1")
_PUT_TOKEN, _REMOVE_TOKEN = sql("tokens.put/2"), sql("tokens.delete/1")
_REMOVE_CREDENTIAL = sql("scram_credentials.delete/1")
_REMOVE_USER = (
    sql("users.delete/1"), sql("scram_credentials.delete_of_user/1"), sql("tokens.delete_of_user/1"),
)  # fmt: skip


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
        for statement in _REMOVE_USER:
            connection.exec_driver_sql(statement, (name,))

    return effect


def put_token(row: Row) -> Effect:
    """The effect that stores a token."""
    return many(_PUT_TOKEN, [row])


def remove_tokens(token_ids: Sequence[str]) -> Effect:
    """The effect that forgets tokens."""
    return many(_REMOVE_TOKEN, [(one,) for one in token_ids])


def load_users(connection: Connection) -> tuple[list[Row], list[Row], list[Row]]:
    """All users, all SCRAM credentials, all tokens."""
    return (
        all_rows(connection, users, ""),
        all_rows(connection, scram_credentials, ""),
        all_rows(connection, tokens, ""),
    )
