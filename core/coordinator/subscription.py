"""What the coordinator reads out of a consumer's metadata: the topics it wants.

The metadata belongs to the clients; the coordinator looks into it for two things only, the expiry of offsets
of topics that nobody reads any more (KIP-211) and the refusal to delete offsets of topics that somebody reads
(KIP-496). Layout of every version: version int16, topics as an array of strings, and then more; version 0 is a
prefix of all later ones, so that a newer client's metadata can be read too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

CONSUMER_PROTOCOL_TYPE = "consumer"

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def topics_of(metadata: bytes) -> frozenset[str] | None:
    """The topics of one subscription; None if the bytes are none."""
    try:
        _, count = _HEAD.unpack_from(metadata)
        position = _HEAD.size
        topics = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if length < 0 or position + length > len(metadata):
                return None
            topics.append(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics) if count >= 0 else None


def subscribed_topics(protocol_type: str | None, subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics that any member wants; None for other protocol types and where one subscription is unreadable."""
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    wanted: set[str] = set()
    for metadata in subscriptions:
        topics = topics_of(metadata)
        if topics is None:
            return None
        wanted |= topics
    return frozenset(wanted)
