"""Writes the body of a Produce request without message objects: a gateway sends one for each record or two.

The layout is that of `messages/produce.py`, versions 3 to 12, without a transactional id; a test compares both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct

from core.protocol.apis import APIS
from core.protocol.primitives import uvarint

_OLD_HEAD = Struct(">hhii")  # null transactional id, acks, timeout, topics
_NEW_HEAD = Struct(">bhi")
_OLD_PARTITION = Struct(">ii")
_INDEX = Struct(">i")
_LENGTH = Struct(">h")

Buffer = bytes | bytearray
Batches = Mapping[str, Iterable[tuple[int, Buffer]]]
"""Batches by topic, each with the number of its partition."""


def produce_body(version: int, acks: int, timeout_ms: int, topics: Batches) -> list[Buffer]:
    """Return the body in pieces; a batch is a piece of its own, by reference."""
    if APIS[0].is_flexible(version):
        return _flexible(acks, timeout_ms, topics)
    out: list[Buffer] = [_OLD_HEAD.pack(-1, acks, timeout_ms, len(topics))]
    for topic, partitions in topics.items():
        name = topic.encode()
        inner: list[Buffer] = []
        count = 0
        for number, batch in partitions:
            count += 1
            inner += (_OLD_PARTITION.pack(number, len(batch)), batch)
        out += (_LENGTH.pack(len(name)) + name + _INDEX.pack(count), *inner)
    return out


def _flexible(acks: int, timeout_ms: int, topics: Batches) -> list[Buffer]:
    front = _NEW_HEAD.pack(0, acks, timeout_ms) + uvarint(len(topics) + 1)
    out: list[Buffer] = []
    for topic, partitions in topics.items():
        name = topic.encode()
        inner: list[Buffer] = []
        count = 0
        lead = b""
        for number, batch in partitions:
            count += 1
            inner += (lead + _INDEX.pack(number) + uvarint(len(batch) + 1), batch)
            # The tags of this partition, in front of the next one.
            lead = b"\0"
        out += (front + uvarint(len(name) + 1) + name + uvarint(count + 1), *inner)
        # The tags of the last partition and of the topic.
        front = b"\0\0" if count else b"\0"
    out.append(front + b"\0")
    return out
