"""Topics and single values in SQLite: rows in, rows out, no rules."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, select, update

from core.metadata.groups import Effect, many
from core.metadata.models import settings, topics
from core.metadata.statements import sql

# The single value that a deleted topic leaves until its files are out of the way: this and its id.
_DELETED = "deleted.topic."


class TopicRow(NamedTuple):
    """A topic as it is stored. `configs` holds the overrides only; `version` rises with each change."""

    name: str
    topic_id: UUID
    partitions: int
    configs: dict[str, str]
    created_ms: int
    version: int
    # Broker ids; empty for a topic with one replica, on whichever broker holds it.
    replicas: tuple[int, ...] = ()


_PUT_TOPIC, _REMOVE_TOPIC = sql("topics.put/1"), sql("topics.delete/1")
_PUT_SETTING, _REMOVE_SETTING = sql("settings.put/1"), sql("settings.delete/1")


def put_topic(row: TopicRow) -> Effect:
    """The effect that stores a topic, new or changed."""
    configs, replicas = json.dumps(row.configs, sort_keys=True), json.dumps(row.replicas)
    stored = (row.name, row.topic_id.bytes, row.partitions, configs, row.created_ms, row.version, replicas)
    return many(_PUT_TOPIC, [stored])


def remove_topic(name: str) -> Effect:
    """The effect that forgets a topic."""
    return many(_REMOVE_TOPIC, [(name,)])


def note_deletion(topic_id: UUID) -> Effect:
    """The effect that says that the files of a topic may go, once the topic is forgotten."""
    return put_setting(_DELETED + topic_id.hex, "")


def forget_deletions(topic_ids: Iterable[UUID]) -> Effect:
    """The effect that forgets this of topics whose files are out of the way."""
    return many(_REMOVE_SETTING, [(_DELETED + topic_id.hex,) for topic_id in topic_ids])


def deleted_topics(found: Mapping[str, str]) -> set[UUID]:
    """Of the single values: the topics that were deleted and whose files may still lie there."""
    return {UUID(hex=name.removeprefix(_DELETED)) for name in found if name.startswith(_DELETED)}


def load_topics(connection: Connection) -> list[TopicRow]:
    """All topics."""
    return [
        TopicRow(
            r.name,
            UUID(bytes=r.topic_id),
            r.partitions,
            json.loads(r.configs),
            r.created_ms,
            r.version,
            tuple(json.loads(r.replicas)),
        )
        for r in connection.execute(select(topics))
    ]


def put_setting(name: str, value: str) -> Effect:
    """The effect that stores a single value."""
    return many(_PUT_SETTING, [(name, value)])


def remove_setting(name: str) -> Effect:
    """The effect that forgets a single value."""
    return many(_REMOVE_SETTING, [(name,)])


def load_settings(connection: Connection) -> dict[str, str]:
    """All single values."""
    return {r.name: r.value for r in connection.execute(select(settings))}


def own_topics(broker_id: int) -> Effect:
    """The effect that says of the topics which no cluster knew so far that this broker holds them."""

    def effect(connection: Connection) -> None:
        statement = update(topics).where(topics.c.replicas == "[]").values(replicas=json.dumps([broker_id]))
        connection.execute(statement)

    return effect
