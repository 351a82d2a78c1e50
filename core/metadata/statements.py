"""Every statement that changes the database, by its name: what a transaction may do, here and on other brokers.

In a cluster the other brokers get a transaction as names with arguments, never as SQL. A broker executes only
the statements of this file, so that another broker cannot bring it to execute anything else.

A name ends with a number. Neither the text of a statement nor the number of its arguments may change, because
metadata logs hold the name: a changed statement gets a new number, and the old one stays as long as logs may have it.
`tests/core/metadata/test_statements.py` compares the texts with those that logs have.

Older metadata logs have the texts themselves. They are read if they are equal to a text of this file, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table

from core.metadata import models
from core.metadata.models import metadata

# What a value of a row may be.
_ARGUMENTS = frozenset({type(None), bool, int, float, str, bytes})
# Names of settings that belong to one broker. Other brokers neither send nor change them.
LOCAL_PREFIX = "local."
# Rows of committed offsets in one statement: most commits are smaller, and SQLite keeps a statement of each size.
OFFSETS_AT_ONCE = 50
# The newest copying statements of tables that have changed.
_COPIES = {"tokens": 2}


class UnknownStatementError(ValueError):
    """A statement that is not in the registry, or arguments that do not fit it."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with its name. `arguments` is how many values a row has."""

    name: str
    text: str

    @property
    def arguments(self) -> int:
        """Return how many values a row has. No text has a question mark but those of its arguments."""
        return self.text.count("?")

    @property
    def of_settings(self) -> bool:
        """Return whether the statement changes single values; the first argument is then their name."""
        return self.name.startswith("settings.")


def upsert(table: Table) -> str:
    """Return the statement that stores a row of a table, new or changed."""
    names = [column.name for column in table.columns]
    keys = [column.name for column in table.primary_key.columns]
    updates = ", ".join(f'"{n}" = excluded."{n}"' for n in names if n not in keys)
    columns, marks = ", ".join(f'"{n}"' for n in names), ", ".join("?" * len(names))
    on = ", ".join(f'"{n}"' for n in keys)
    return (
        f'INSERT INTO "{table.name}" ({columns}) VALUES ({marks}) ON CONFLICT ({on}) DO UPDATE SET {updates}'
    )


def insert(table: Table) -> str:
    """Return the statement that stores a new row of a table."""
    names = [column.name for column in table.columns]
    columns, marks = ", ".join(f'"{name}"' for name in names), ", ".join("?" * len(names))
    return f'INSERT INTO "{table.name}" ({columns}) VALUES ({marks})'


def copy_of(table: Table) -> str:
    """Return the name of the statement by which a whole database is copied row by row."""
    return f"{table.name}.copy/{_COPIES.get(table.name, 1)}"


def _where(table: Table) -> str:
    return " AND ".join(f"{column.name} = ?" for column in table.columns)


# What a poll or an acknowledgement of a managed consumer changes; the rest of the row stays.
PROGRESS_COLUMNS = ("member_id", "generation", "sequence", "outstanding", "paused", "deadline_ms")
_TEXTS: dict[str, str] = {
    "settings.put/1": "INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET"
    " value = excluded.value",
    "settings.delete/1": "DELETE FROM settings WHERE settings.name = ?",
    "topics.put/1": "INSERT INTO topics (name, topic_id, partitions, configs, created_ms, version, replicas)"
    " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET topic_id = excluded.topic_id,"
    " partitions = excluded.partitions, configs = excluded.configs, created_ms = excluded.created_ms,"
    " version = excluded.version, replicas = excluded.replicas",
    "topics.delete/1": "DELETE FROM topics WHERE topics.name = ?",
    "broker_configs.put/1": upsert(models.broker_configs),
    "broker_configs.delete/1": "DELETE FROM broker_configs WHERE broker = ? AND name = ?",
    "acls.put/1": f"INSERT OR REPLACE INTO acls VALUES ({', '.join('?' * len(models.acls.columns))})",
    "acls.delete/1": f"DELETE FROM acls WHERE {_where(models.acls)}",
    "users.put/1": "INSERT OR IGNORE INTO users (name, created_ms) VALUES (?, ?)",
    "users.delete/1": "DELETE FROM users WHERE name = ?",
    "scram_credentials.put/1": upsert(models.scram_credentials),
    "scram_credentials.delete/1": "DELETE FROM scram_credentials WHERE name = ? AND mechanism = ?",
    "scram_credentials.delete_of_user/1": "DELETE FROM scram_credentials WHERE name = ?",
    # Before tokens had a scope.
    "tokens.put/1": 'INSERT INTO "tokens" ("token_id", "owner", "description", "digest", "created_ms", "expires_ms")'
    ' VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT ("token_id") DO UPDATE SET "owner" = excluded."owner",'
    ' "description" = excluded."description", "digest" = excluded."digest", "created_ms" = excluded."created_ms",'
    ' "expires_ms" = excluded."expires_ms"',
    "tokens.copy/1": 'INSERT INTO "tokens" ("token_id", "owner", "description", "digest", "created_ms", "expires_ms")'
    " VALUES (?, ?, ?, ?, ?, ?)",
    "tokens.put/2": upsert(models.tokens),
    "tokens.delete/1": "DELETE FROM tokens WHERE token_id = ?",
    "tokens.delete_of_user/1": "DELETE FROM tokens WHERE owner = ?",
    "client_quotas.put/1": upsert(models.client_quotas),
    "client_quotas.delete/1": "DELETE FROM client_quotas WHERE entity = ? AND name = ?",
    "groups.put/1": upsert(models.groups),
    "groups.delete/1": "DELETE FROM groups WHERE group_id = ?",
    "group_members.put/1": upsert(models.group_members),
    "group_members.delete/1": "DELETE FROM group_members WHERE group_id = ? AND member_id = ?",
    "group_members.delete_of_group/1": "DELETE FROM group_members WHERE group_id = ?",
    "modern_groups.put/1": upsert(models.modern_groups),
    "modern_groups.delete/1": "DELETE FROM modern_groups WHERE group_id = ?",
    "modern_members.put/1": upsert(models.modern_members),
    "modern_members.delete/1": "DELETE FROM modern_members WHERE group_id = ? AND member_id = ?",
    "modern_members.delete_of_group/1": "DELETE FROM modern_members WHERE group_id = ?",
    "group_configs.put/1": upsert(models.group_configs),
    "group_configs.delete/1": "DELETE FROM group_configs WHERE group_id = ? AND name = ?",
    "committed_offsets.put/1": 'INSERT OR REPLACE INTO "committed_offsets" VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
    "committed_offsets.delete/1": "DELETE FROM committed_offsets WHERE group_id = ? AND topic = ? AND partition = ?",
    "committed_offsets.delete_of_group/1": "DELETE FROM committed_offsets WHERE group_id = ?",
    "pending_offsets.put/1": upsert(models.pending_offsets),
    "pending_offsets.supersede/1": "UPDATE pending_offsets SET superseded = 1 WHERE group_id = ? AND topic_id = ?"
    " AND partition = ? AND commit_seq < ?",
    # The topic by its id: a topic that was deleted and created again has other offsets.
    "pending_offsets.commit/1": "INSERT OR REPLACE INTO committed_offsets SELECT group_id, name, partition,"
    " committed_offset, leader_epoch, metadata, commit_ms, -1 FROM pending_offsets"
    " JOIN topics ON topics.topic_id = pending_offsets.topic_id"
    " WHERE producer_id = ? AND producer_epoch = ? AND superseded = 0",
    "pending_offsets.delete/1": "DELETE FROM pending_offsets WHERE group_id = ? AND topic_id = ? AND partition = ?",
    "pending_offsets.delete_of_producer/1": "DELETE FROM pending_offsets WHERE producer_id = ?",
    "pending_offsets.delete_of_group/1": "DELETE FROM pending_offsets WHERE group_id = ?",
    "consumers.put/1": upsert(models.consumers),
    "consumers.progress/1": f"UPDATE consumers SET {', '.join(f'{name} = ?' for name in PROGRESS_COLUMNS)}"
    " WHERE group_id = ? AND name = ?",
    "consumers.delete/1": "DELETE FROM consumers WHERE group_id = ? AND name = ?",
    "consumer_positions.put/1": upsert(models.consumer_positions),
    "consumer_positions.delete/1": "DELETE FROM consumer_positions WHERE group_id = ? AND name = ? AND topic = ?"
    " AND partition = ?",
    "consumer_positions.delete_of_consumer/1": "DELETE FROM consumer_positions WHERE group_id = ? AND name = ?",
    "idempotency_keys.bind/1": "INSERT INTO idempotency_keys"
    " (digest, fingerprint, created_ms, size, plan, places, answer) VALUES (?, ?, ?, ?, ?, x'', NULL)"
    " ON CONFLICT (digest) DO UPDATE SET fingerprint = excluded.fingerprint,"
    " created_ms = excluded.created_ms, size = excluded.size, plan = excluded.plan, places = x'', answer = NULL"
    " WHERE created_ms < ?",
    "idempotency_keys.answer/1": "UPDATE idempotency_keys SET answer = ?, size = size + ? WHERE digest = ?",
    "idempotency_keys.places/1": "UPDATE idempotency_keys SET places = ? WHERE digest = ?",
    "idempotency_keys.delete/1": "DELETE FROM idempotency_keys WHERE digest = ?",
    "idempotency_keys.delete_oldest/1": "DELETE FROM idempotency_keys WHERE rowid IN"
    " (SELECT rowid FROM idempotency_keys WHERE created_ms < ? AND (answer IS NOT NULL OR created_ms < ?)"
    " ORDER BY created_ms LIMIT ?)",
    "transactional_ids.put/1": upsert(models.transactional_ids),
    "transactional_ids.delete/1": "DELETE FROM transactional_ids WHERE transactional_id = ?",
    "transaction_decisions.put/1": upsert(models.transaction_decisions),
    "transaction_decisions.delete/1": "DELETE FROM transaction_decisions WHERE number = ?",
    # Numbers of leases are reserved by the next statement alone.
    "share_groups.put/1": "INSERT INTO share_groups (group_id, settings, version, paused, created_ms, leases)"
    " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (group_id) DO UPDATE SET settings = excluded.settings,"
    " version = excluded.version, paused = excluded.paused",
    "share_groups.leases/1": "UPDATE share_groups SET leases = ? WHERE group_id = ?",
    "share_groups.delete/1": "DELETE FROM share_groups WHERE group_id = ?",
    "share_attempts.put/1": upsert(models.share_attempts),
    "share_attempts.delete_old/1": "DELETE FROM share_attempts WHERE group_id = ? AND until_ms < ?",
    "share_attempts.delete_of_group/1": "DELETE FROM share_attempts WHERE group_id = ?",
    # A new partition of a queue, once, with its first change.
    "share_partitions.add/1": "INSERT OR IGNORE INTO share_partitions (group_id, topic_id, partition, start, nonce,"
    " tracked_end, snapshot) VALUES (?, ?, ?, ?, ?, ?, ?)",
    "share_partitions.put/1": upsert(models.share_partitions),
    "share_partitions.delete_of_group/1": "DELETE FROM share_partitions WHERE group_id = ?",
    "share_partitions.delete_of_topic/1": "DELETE FROM share_partitions WHERE topic_id = ?",
    "share_partitions.delete_of_group_topic/1": "DELETE FROM share_partitions WHERE group_id = ? AND topic_id = ?",
    "share_updates.delete_of_group_topic/1": "DELETE FROM share_updates WHERE group_id = ? AND topic_id = ?",
    "share_updates.put/1": upsert(models.share_updates),
    "share_updates.delete/1": "DELETE FROM share_updates WHERE group_id = ? AND topic_id = ? AND partition = ?"
    " AND seq <= ?",
    "share_updates.delete_of_group/1": "DELETE FROM share_updates WHERE group_id = ?",
    "share_updates.delete_of_topic/1": "DELETE FROM share_updates WHERE topic_id = ?",
    "share_dead_letters.put/1": upsert(models.share_dead_letters),
    "share_dead_letters.delete/1": "DELETE FROM share_dead_letters WHERE group_id = ?",
    "webhooks.put/1": upsert(models.webhooks),
    "webhooks.delete/1": "DELETE FROM webhooks WHERE queue = ? AND name = ?",
    # What a whole database consists of.
    **{copy_of(table): insert(table) for table in metadata.sorted_tables},
}
STATEMENTS: dict[str, Statement] = {name: Statement(name, text) for name, text in _TEXTS.items()}
_BY_TEXT: dict[str, Statement] = {one.text: one for one in STATEMENTS.values()}


def sql(name: str) -> str:
    """Return the text of a statement."""
    return STATEMENTS[name].text


def put_offsets_text(count: int) -> str:
    """Return one statement for many committed offsets: cheaper than one after the other."""
    first = sql("committed_offsets.put/1")
    _, _, marks = first.partition("VALUES ")
    return f"{first}{f', {marks}' * (count - 1)}"


# One statement for many rows is the same as its rows one after the other.
_BY_TEXT |= {
    put_offsets_text(count): STATEMENTS["committed_offsets.put/1"] for count in range(2, OFFSETS_AT_ONCE + 1)
}


def statement_of(text: str, rows: Sequence[Sequence[Any]]) -> tuple[Statement, list[Sequence[Any]]]:
    """Return the statement with this text, and its rows one by one. Raises UnknownStatementError."""
    found = _BY_TEXT.get(text)
    if found is None:
        raise UnknownStatementError(f"There is no such statement: {text[:80]!r}.")
    return found, list(_single_rows(found, rows))


def statement_named(name: str, rows: Sequence[Sequence[Any]]) -> tuple[Statement, list[Sequence[Any]]]:
    """Return the statement with this name, and its rows. Raises UnknownStatementError."""
    found = STATEMENTS.get(name)
    if found is None:
        raise UnknownStatementError(
            f"There is no statement {name[:80]!r}: it was written by a later release, or by no broker."
        )
    for row in rows:
        if len(row) != found.arguments:
            raise UnknownStatementError(f"{name} has {found.arguments} arguments, not {len(row)}.")
    return found, list(rows)


def check_values(rows: Sequence[Sequence[Any]]) -> None:
    """Raise UnknownStatementError for a value that is none of SQLite."""
    for row in rows:
        for value in row:
            if type(value) not in _ARGUMENTS:
                raise UnknownStatementError(f"A value of a row is of the type {type(value).__name__}.")


def check_not_local(statement: Statement, rows: Sequence[Sequence[Any]]) -> None:
    """Raise UnknownStatementError if the rows change a setting that belongs to one broker."""
    if not statement.of_settings:
        return
    for row in rows:
        if not isinstance(row[0], str) or row[0].startswith(LOCAL_PREFIX):
            raise UnknownStatementError(f"{statement.name} may not change {str(row[0])[:80]!r}.")


def _single_rows(statement: Statement, rows: Sequence[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    count = statement.arguments
    for row in rows:
        if not row or len(row) % count or (len(row) > count and statement.name != "committed_offsets.put/1"):
            raise UnknownStatementError(f"{statement.name} has {count} arguments, not {len(row)}.")
        for start in range(0, len(row), count):
            yield row[start : start + count]
