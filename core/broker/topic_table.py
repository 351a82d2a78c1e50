"""The topics that exist, by name and by id."""

from __future__ import annotations

from collections.abc import ValuesView
from uuid import UUID

from core.changes import TopicChanges
from core.errors import BrokerError, ErrorCode
from core.vocabulary.topic import TopicInfo


class TopicTable:
    """The topics of one broker. Each change of the table is noted in `changes`. Touched on the event loop only."""

    def __init__(self, changes: TopicChanges) -> None:
        self._changes = changes
        self._topics: dict[str, TopicInfo] = {}
        self._names: dict[UUID, str] = {}

    def find(self, name: str) -> TopicInfo | None:
        """Return the topic of that name; None if there is none."""
        return self._topics.get(name)

    def get(self, name: str) -> TopicInfo:
        """Return the topic of that name. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        found = self._topics.get(name)
        if found is None:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic named {name!r}.", topic=name
            )
        return found

    def name_of(self, topic_id: UUID) -> str:
        """Return the name that belongs to a topic id. Raises UNKNOWN_TOPIC_ID."""
        name = self._names.get(topic_id)
        if name is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with the id {topic_id}.")
        return name

    def all(self) -> ValuesView[TopicInfo]:
        """Return all topics, in no order."""
        return self._topics.values()

    def put(self, info: TopicInfo) -> None:
        """Add a topic, or replace the topic of that name."""
        self._topics[info.name] = info
        self._names[info.topic_id] = info.name
        self._changes.topics_changed()
        self._changes.touch(info.name)

    def replace(self, changed: list[TopicInfo]) -> None:
        """Replace topics whose defaults have changed. Waits for records are not woken."""
        for info in changed:
            self._topics[info.name] = info
        self._changes.topics_changed()

    def remove(self, info: TopicInfo) -> None:
        """Remove a topic."""
        del self._topics[info.name]
        del self._names[info.topic_id]
        self._changes.topics_changed()
        self._changes.forget(info.name)
