"""Webhooks in SQLite: rows in, rows out, no rules. A row is a tuple in the order of its table's columns."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from core.metadata.groups import Effect, Row, all_rows, many
from core.metadata.models import webhooks
from core.metadata.statements import sql

_PUT, _REMOVE = sql("webhooks.put/1"), sql("webhooks.delete/1")


def put_webhook(row: Row) -> Effect:
    """The effect that stores a webhook, new or changed."""
    return many(_PUT, [row])


def remove_webhooks(names: Sequence[tuple[str, str]]) -> Effect:
    """The effect that forgets webhooks, each by queue and name."""
    return many(_REMOVE, names)


def load_webhooks(connection: Connection) -> list[Row]:
    """All webhooks."""
    return all_rows(connection, webhooks, "")
