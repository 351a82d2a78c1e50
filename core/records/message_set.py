"""Message sets, magic 0 and 1: what Kafka wrote before 0.11, and what Produce v0–2 and Fetch v0–3 carry.

    MessageSet = [Message], without a count
    Message    = offset int64
                 size int32, of all that follows
                 CRC-32 uint32, of all that follows
                 magic int8, 0 or 1
                 attributes int8: codec 0–2 (none, gzip, snappy, lz4), bit 3 timestamp type (magic 1)
                 timestamp int64 (magic 1 only)
                 key, value: length int32 (−1: null) and bytes

A message with a codec is a wrapper: its value is a compressed message set. The offset of a wrapper is that of
its last inner message. Inner offsets are absolute in magic 0; in magic 1 they count from the first inner message,
so that a broker need not recompress to assign them (KIP-31). A wrapper of LogAppendTime gives its timestamp to all
inner messages (KIP-32). LZ4 frames inside magic 0 have a wrong header checksum, as Kafka always wrote it
(KIP-57): it is corrected for reading, and made wrong for writing.

One message per wrapper level was meant, and Kafka's broker refuses wrappers in wrappers; the guide calls sets
recursive, so they are read here, `_MAX_DEPTH` deep. Several wrappers in one set, which made brokers before 0.9
fail (KAFKA-1718), are read as well.

Sources: protocol guide 0.11, "Message sets", "Message format", "Compression".
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from core.errors import BrokerError, ErrorCode
from core.records.compression import GZIP, LZ4, compress, decompress
from core.records.header import CODEC_MASK, TIMESTAMP_TYPE_BIT, Buffer
from core.records.message_set_lz4 import break_checksum, mend_checksum
from core.records.record import LOG_APPEND_TIME, NO_TIMESTAMP

# Offset, timestamp, key, value.
MessageFields = tuple[int, int, bytes | None, bytes | None]

LAST_MESSAGE_SET_MAGIC = 1
# Messages in one set, wrapped ones too. An empty one takes 26 bytes and compresses to nearly nothing, but takes
# 300 bytes once it is read. 1 MB of uncompressed messages are 40,000 at most.
MAX_MESSAGES = 200_000
_MAX_DEPTH = 3
# Offset, size, CRC, magic, attributes, two lengths.
_LEAST_MESSAGE = 26

# Offset and size, which the size does not count.
ENTRY_OVERHEAD = 12
_MAGIC_AT = 16
# Offset, size, CRC, (magic), attributes, timestamp in magic 1, length of the key.
_FRONT_0 = Struct(">qiIxbi")
_FRONT_1 = Struct(">qiIxbqi")
_LENGTH = Struct(">i")
_ENTRY = Struct(">qiI")
_BODY_OF_MAGIC_1 = Struct(">bbq")
_PADDING = bytes(_FRONT_1.size)


class WrapperError(Exception):
    """A compressed message where none is to be opened."""


class MessageGroup(NamedTuple):
    """What belongs together in a set: the messages of one wrapper, or neighbours without one.

    `codec` is the wrapper's; `timestamp_type` that of the messages. Magic 0 has no timestamps: −1.
    """

    codec: int
    timestamp_type: int
    messages: list[MessageFields]


def parse_message_set(buffer: Buffer, *, max_bytes: int, open_wrappers: bool = True) -> list[MessageGroup]:
    """All messages of a set, with their absolute offsets, checked down to the inner checksums.

    `max_bytes` bounds what all wrappers together may decompress to. Raises BrokerError CORRUPT_MESSAGE for a set
    that is cut off or damaged; INVALID_RECORD beyond `max_bytes` or `MAX_MESSAGES`, for an empty wrapper, and for
    another magic inside; UNSUPPORTED_COMPRESSION_TYPE for a codec that these formats do not have. WrapperError at
    the first compressed message, without `open_wrappers`.
    """
    opener = _Opener(max_bytes)
    groups: list[MessageGroup] = []
    run: MessageGroup | None = None
    # A smaller buffer cannot hold this many, so its messages need not be counted.
    room = MAX_MESSAGES if len(buffer) > MAX_MESSAGES * _LEAST_MESSAGE else 0
    for offset, magic, attributes, timestamp, key, value in _walk(buffer):
        timestamp_type = LOG_APPEND_TIME if magic and attributes & TIMESTAMP_TYPE_BIT else 0
        if attributes & CODEC_MASK:
            if not open_wrappers:
                raise WrapperError
            messages = opener.open(offset, magic, attributes, timestamp, value, depth=1)
            groups.append(MessageGroup(attributes & CODEC_MASK, timestamp_type, messages))
            run = None
            continue
        if run is None or run.timestamp_type != timestamp_type:
            run = MessageGroup(0, timestamp_type, [])
            groups.append(run)
        run.messages.append((offset, timestamp, key, value))
        if room and len(run.messages) > room:
            raise _invalid(f"it holds more than {MAX_MESSAGES} messages")
    return groups


def encode_message(
    magic: int, offset: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    """One message with its offset and size in front. Magic 0 leaves the timestamp out."""
    body = b"".join(
        (
            _BODY_OF_MAGIC_1.pack(magic, attributes, timestamp) if magic else bytes((0, attributes)),
            _LENGTH.pack(-1 if key is None else len(key)),
            key or b"",
            _LENGTH.pack(-1 if value is None else len(value)),
            value or b"",
        )
    )
    return _ENTRY.pack(offset, len(body) + 4, zlib.crc32(body)) + body


def encode_plain(magic: int, timestamp_type: int, messages: Iterable[MessageFields]) -> bytes:
    """A set of these messages without a wrapper."""
    attributes = TIMESTAMP_TYPE_BIT if magic and timestamp_type else 0
    return b"".join(
        [
            encode_message(magic, offset, attributes, timestamp, key, value)
            for offset, timestamp, key, value in messages
        ]
    )


def wrap(
    magic: int, codec: int, timestamp_type: int, last_offset: int, max_timestamp: int, inner: Buffer
) -> bytes:
    """A wrapper around the set `inner`, whose offsets are as its magic wants them.

    These formats know no codec but gzip, snappy and lz4; anything else becomes gzip, which every client reads.
    """
    codec = codec if 0 < codec <= LZ4 else GZIP
    value = compress(codec, inner)
    if magic == 0 and codec == LZ4:
        value = break_checksum(value)
    attributes = codec | (TIMESTAMP_TYPE_BIT if magic and timestamp_type else 0)
    return encode_message(magic, last_offset, attributes, max_timestamp, None, value)


class _Opener:
    """Opens the wrappers of one set, with one limit on bytes and one on messages over all of them."""

    def __init__(self, max_bytes: int) -> None:
        self._bytes_left = max_bytes
        self._messages_left = MAX_MESSAGES

    def open(
        self, offset: int, magic: int, attributes: int, timestamp: int, value: bytes | None, depth: int
    ) -> list[MessageFields]:
        """The messages inside a wrapper, those of wrappers inside it in their place."""
        codec = attributes & CODEC_MASK
        data = self._decompress(codec, magic, value, depth)
        messages: list[MessageFields] = []
        for inner_offset, inner_magic, inner_attributes, inner_timestamp, key, inner_value in _walk(data):
            if inner_magic != magic:
                raise _invalid(f"a message of magic {inner_magic} lies inside one of magic {magic}")
            self._messages_left -= 1
            if not self._messages_left:
                raise _invalid(f"it holds more than {MAX_MESSAGES} messages")
            if inner_attributes & CODEC_MASK:
                messages += self.open(
                    inner_offset, inner_magic, inner_attributes, inner_timestamp, inner_value, depth + 1
                )
            else:
                messages.append((inner_offset, inner_timestamp, key, inner_value))
        if not messages:
            raise _invalid("a compressed message holds no messages")
        if magic == 0:
            return messages
        shift = offset - messages[-1][0]
        if attributes & TIMESTAMP_TYPE_BIT:
            return [(inner_offset + shift, timestamp, k, v) for inner_offset, _, k, v in messages]
        return [(inner_offset + shift, t, k, v) for inner_offset, t, k, v in messages] if shift else messages

    def _decompress(self, codec: int, magic: int, value: bytes | None, depth: int) -> Buffer:
        if value is None:
            raise _invalid("a compressed message has no value")
        if codec > LZ4:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"Messages of magic {magic} know gzip, snappy and lz4, not codec {codec}.",
            )
        if depth > _MAX_DEPTH:
            raise _invalid(f"compressed messages lie more than {_MAX_DEPTH} deep in one another")
        if magic == 0 and codec == LZ4:
            value = mend_checksum(value)
        data = decompress(codec, value, self._bytes_left)
        self._bytes_left -= len(data)
        return data


def _walk(buffer: Buffer) -> Iterator[tuple[int, int, int, int, bytes | None, bytes | None]]:
    """Each message of one level, checksum checked: offset, magic, attributes, timestamp, key, value."""
    # Zeros after the end, so that the first fields of a truncated message can be read as well.
    data = b"".join((buffer, _PADDING))
    view, position, end = memoryview(data), 0, len(buffer)
    unpack_0, unpack_1, unpack_length = _FRONT_0.unpack_from, _FRONT_1.unpack_from, _LENGTH.unpack_from
    crc32, timestamp, key, value = zlib.crc32, NO_TIMESTAMP, None, None
    while position < end:
        magic = data[position + _MAGIC_AT]
        if magic == 1:
            offset, size, crc, attributes, timestamp, key_length = unpack_1(data, position)
            value_at = position + _FRONT_1.size
        elif magic == 0:
            offset, size, crc, attributes, key_length = unpack_0(data, position)
            value_at, timestamp = position + _FRONT_0.size, NO_TIMESTAMP
        else:
            raise _wrong_magic(position, magic)
        stop = position + ENTRY_OVERHEAD + size
        if stop > end:
            raise corrupt_message(
                position, f"its size is {size}, {end - position - ENTRY_OVERHEAD} bytes are left"
            )
        if crc32(view[position + _MAGIC_AT : stop]) != crc:
            raise corrupt_message(position, "its checksum is wrong")
        if key_length >= 0:
            key = data[value_at : value_at + key_length]
            value_at += key_length
        else:
            key = None
        value_at += 4
        if value_at > stop or key_length < -1:
            raise corrupt_message(position, f"its key has {key_length} bytes")
        value_length: int = unpack_length(data, value_at - 4)[0]
        if value_at + value_length == stop and value_length >= 0:
            value = data[value_at:stop]
        elif value_at == stop and value_length == -1:
            value = None
        else:
            raise corrupt_message(position, f"its value has {value_length} bytes, {stop - value_at} are left")
        yield offset, magic, attributes, timestamp, key, value
        position = stop


def _wrong_magic(position: int, magic: int) -> BrokerError:
    if magic == LAST_MESSAGE_SET_MAGIC + 1:
        return _invalid(f"a record batch of magic {magic} lies among messages of magic 0 and 1")
    return corrupt_message(position, f"its magic is {magic}")


def _invalid(why: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_RECORD, f"The message set is refused: {why}.")


def corrupt_message(position: int, why: str) -> BrokerError:
    """Return the error for the message at this byte of its set; `why` is a clause without a full stop."""
    return BrokerError(
        ErrorCode.CORRUPT_MESSAGE,
        f"The message at byte {position} of its set is corrupt: {why}.",
        position=position,
    )
