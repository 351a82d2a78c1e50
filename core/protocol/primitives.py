"""The few ways in which the Kafka protocol writes a value, and the one error for bytes that are none of them.

    int8 … int64, float64   big-endian
    uvarint                 7 bits per byte, lowest first; the top bit says that another byte follows
    string                  int16 length, UTF-8            compact: uvarint length + 1, 0 is null
    bytes, records          int32 length, bytes            compact: uvarint length + 1, 0 is null
    array                   int32 count, elements          compact: uvarint count + 1, 0 is null
    tag section             uvarint count, then per field: uvarint tag, uvarint size, value (KIP-482)

The codec compiles most of this inline; what stands here is the rare branch and what headers need.
"""

from __future__ import annotations

from functools import lru_cache
from uuid import UUID

from core.protocol.frame import MAX_TAGS

NIL = UUID(int=0)
"""The UUID of nothing: what a version without topic ids, or an unknown topic, carries."""


class ProtocolError(Exception):
    """Bytes that are no message, or a message that a version cannot carry. The text names the field."""


def uvarint(value: int) -> bytes:
    """`value` (0 … 2³²−1) as an unsigned varint."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80,)) + uvarint(value >> 7)


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """The unsigned varint at `position`, and the position after it."""
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    return rest_of_uvarint(buffer, position + 1, first)


def rest_of_uvarint(buffer: memoryview, position: int, first: int) -> tuple[int, int]:
    """Read the rest of a varint whose `first` byte has the continuation bit.

    Five bytes at most, and no more than 2³¹: lengths are signed 32-bit numbers plus one.
    """
    second = buffer[position]
    if second < 0x80:
        return first & 0x7F | second << 7, position + 1
    third = buffer[position + 1]
    value = first & 0x7F | (second & 0x7F) << 7 | (third & 0x7F) << 14
    if third < 0x80:
        return value, position + 2
    fourth = buffer[position + 2]
    value |= (fourth & 0x7F) << 21
    if fourth < 0x80:
        return value, position + 3
    value |= buffer[position + 3] << 28
    if value > 0x8000_0000:
        raise ProtocolError("a varint above 2³¹")
    return value, position + 4


def skip_tags(buffer: memoryview, position: int, size: int, count: int) -> int:
    """The position after `count` tagged fields, none of which is known here."""
    if count > MAX_TAGS or 2 * count > size - position:
        raise ProtocolError(f"{count} tagged fields")
    for _ in range(count):
        _tag, position = read_uvarint(buffer, position)
        length, position = read_uvarint(buffer, position)
        position += length
        if position > size:
            raise ProtocolError("a tagged field longer than its frame")
    return position


@lru_cache(maxsize=16_384)
def uuid_of(raw: bytes) -> UUID:
    """The UUID of 16 bytes. Remembered, because topic ids come again with every request."""
    return UUID(bytes=raw)
