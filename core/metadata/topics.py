"""Topics and single values in SQLite: rows in, rows out, no rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.dialects.sqlite import insert

from core.metadata.models import settings, topics
from core.metadata.store import Rows

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


_insert_topic = insert(topics)
_UPSERT_TOPIC = _insert_topic.on_conflict_do_update(
    index_elements=[topics.c.name],
    set_={
        name: _insert_topic.excluded[name]
        for name in ("topic_id", "partitions", "configs", "created_ms", "version", "replicas")
    },
)
_insert_setting = insert(settings)
_UPSERT_SETTING = _insert_setting.on_conflict_do_update(
    index_elements=[settings.c.name], set_={"value": _insert_setting.excluded["value"]}
)


def put_topic(row: TopicRow) -> Rows:
    """The effect that stores a topic, new or changed."""
    return Rows(
        _UPSERT_TOPIC,
        [
            {
                "name": row.name,
                "topic_id": row.topic_id.bytes,
                "partitions": row.partitions,
                "configs": json.dumps(row.configs, sort_keys=True),
                "created_ms": row.created_ms,
                "version": row.version,
                "replicas": json.dumps(row.replicas),
            }
        ],
    )


def remove_topic(name: str) -> Callable[[Connection], None]:
    """The effect that forgets a topic."""

    def effect(connection: Connection) -> None:
        connection.execute(delete(topics).where(topics.c.name == name))

    return effect


def note_deletion(topic_id: UUID) -> Rows:
    """The effect that says that the files of a topic may go, once the topic is forgotten."""
    return put_setting(_DELETED + topic_id.hex, "")


def forget_deletions(topic_ids: Iterable[UUID]) -> Callable[[Connection], None]:
    """The effect that forgets this of topics whose files are out of the way."""
    names = [_DELETED + topic_id.hex for topic_id in topic_ids]

    def effect(connection: Connection) -> None:
        for name in names:
            connection.execute(delete(settings).where(settings.c.name == name))

    return effect


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


def put_setting(name: str, value: str) -> Rows:
    """The effect that stores a single value."""
    return Rows(_UPSERT_SETTING, [{"name": name, "value": value}])


def load_settings(connection: Connection) -> dict[str, str]:
    """All single values."""
    return {r.name: r.value for r in connection.execute(select(settings))}


def own_topics(broker_id: int) -> Callable[[Connection], None]:
    """The effect that says of the topics which no cluster knew so far that this broker holds them."""

    def effect(connection: Connection) -> None:
        statement = update(topics).where(topics.c.replicas == "[]").values(replicas=json.dumps([broker_id]))
        connection.execute(statement)

    return effect
