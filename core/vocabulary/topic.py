"""Topics and their settings, as listeners and surfaces see them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from core.errors import BrokerError, ErrorCode
from core.topic_config import TopicConfig

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
MAX_TOPIC_NAME = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION unless `name` is legal: 1 to 249 of a–z A–Z 0–9 . _ -, not "." or ".."."""
    if name in ("", ".", "..") or len(name) > MAX_TOPIC_NAME or not _LEGAL_NAME.fullmatch(name):
        shown = name if len(name) <= MAX_TOPIC_NAME else name[:60] + "…"
        raise BrokerError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Illegal topic name {shown!r}: it must have 1 to {MAX_TOPIC_NAME} characters out of a-z, A-Z, 0-9, "
            "'.', '_' and '-', and be neither '.' nor '..'.",
        )


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic. `overrides` are its own settings as text; `version` rises with each change of the topic."""

    name: str
    topic_id: UUID
    partitions: int
    overrides: dict[str, str]
    config: TopicConfig
    created_ms: int
    version: int
    # Broker ids, the same for all partitions, the preferred leader first. Empty on a broker without peers.
    replicas: tuple[int, ...] = ()

    @property
    def internal(self) -> bool:
        """Whether the topic belongs to the broker and not to users."""
        return self.name in INTERNAL_TOPICS


def check_partition(topic: TopicInfo, partition: int) -> None:
    """Raise UNKNOWN_TOPIC_OR_PARTITION unless the topic has a partition of that number."""
    if not 0 <= partition < topic.partitions:
        raise BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Topic {topic.name!r} has no partition {partition}; it has {topic.partitions}, counted from 0.",
            topic=topic.name,
            partition=partition,
        )


class Synonym(NamedTuple):
    """A value that a setting has at one level, under the name that it has there."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting of a topic or of the broker, with the value in force.

    `source` is "topic", "group", or a level of `core.broker.broker_configs`. `synonyms` are the values at all
    levels, the one in force first.
    """

    name: str
    value: str | None
    source: str
    type: str
    doc: str
    synonyms: tuple[Synonym, ...] = ()
    read_only: bool = False
