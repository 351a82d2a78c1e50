"""What a consumer's metadata and assignment say: the topics that it wants, the partitions that it owns.

Both belong to the clients. The broker reads the metadata for three things only: the expiry of offsets of topics that
no member reads any more (KIP-211), the refusal to delete offsets of topics that a member reads (KIP-496), and to show
it. It reads and writes assignments for the members that it hosts.
"""

from __future__ import annotations

from collections.abc import Iterable

from core.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from core.protocol.primitives import ProtocolError
from core.types import TopicPartition

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(protocol_type: str | None, subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics that any member wants; None for other protocol types, and if a subscription is unreadable."""
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    wanted: set[str] = set()
    try:
        for metadata in subscriptions:
            wanted.update(decode_subscription(metadata).topics)
    except ProtocolError:
        return None
    return frozenset(wanted)


def wanted_topics(metadata: bytes) -> list[str] | None:
    """Return the topics in a consumer's metadata, sorted; None if it is not a consumer's."""
    found = subscribed_topics(CONSUMER_PROTOCOL_TYPE, (metadata,))
    return None if found is None else sorted(found)


def assignment_of(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode an assignment of these partitions in version 0, which every client can read."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return encode_assignment(Assignment([TopicPartitions(t, p) for t, p in topics.items()]), 0)


def assigned_partitions(assignment: bytes) -> frozenset[TopicPartition]:
    """Return the partitions of an assignment; none if it is unreadable."""
    try:
        topics = decode_assignment(assignment).assigned_partitions
    except ProtocolError:
        return frozenset()
    return frozenset(TopicPartition(t.topic, p) for t in topics for p in t.partitions)


def owned_partitions(assignment: bytes) -> list[TopicPartition]:
    """Return the partitions of an assignment, sorted; none if it is unreadable."""
    return sorted(assigned_partitions(assignment))


def subscription_of(topics: Iterable[str]) -> bytes:
    """Encode the metadata of a consumer of these topics in version 0, which every client can read."""
    return encode_subscription(Subscription(sorted(set(topics))), 0)
