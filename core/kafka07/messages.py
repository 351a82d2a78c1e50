"""Messages of Kafka 0.6 and 0.7 (their magic 0 and 1): neither offset nor key nor timestamp, and a place in bytes.

    Message = LENGTH int32, of all that follows
              magic int8, 0 or 1
              compression int8: 0 none, 1 gzip, 2 snappy (magic 1 only)
              CRC-32 uint32, of the payload alone
              payload

Not to be mixed up with the magic 0 and 1 of 0.8 and later (`core.records.message_set`), which are other layouts.
A compressed message holds messages as its payload.

The place of a message is where 0.7 would have it in its log: its address. So a message takes 9 or 10 bytes and its
payload, whatever the log holds it in; keys, headers and times have no place, a null value is an empty payload, and
nothing is compressed on the way out: what a codec makes of the same bytes differs from one of its versions to the
next, and addresses must not.

Compaction leaves a hole, and a 0.7 client finds the next message by adding up lengths. So a hole is shown as fillers
that together are exactly as long. In magic 1 they are empty compressed messages if these fit, so that clients with
compression show nothing. Otherwise they are payloads of zeros.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from struct import Struct

from core.errors import BrokerError, ErrorCode
from core.kafka07.index import MAGICS
from core.records.batch import check_crc, record_bytes
from core.records.compression import GZIP, NONE, SNAPPY, decompress
from core.records.header import BatchHeader, Buffer
from core.records.message_set import MAX_MESSAGES, MessageFields, MessageGroup, corrupt_message
from core.records.record import NO_TIMESTAMP
from core.records.record_codec import plain_values

# Bytes of a message without its payload, LENGTH included, by magic.
OVERHEAD = (9, 10)

_LENGTH = Struct(">i")
_HEAD_0 = Struct(">ibI")
_HEAD_1 = Struct(">ibbI")
_CRC = Struct(">I")
# Bits of the compression byte that name the codec.
_CODEC_BITS = 0x03
_MAX_DEPTH = 3

# A hole is filled by messages of this size: small enough for any client's fetch.
FILLER_BYTES = 512
# RFC 1952: deflate, a comment that ends with the first zero, no time, unknown system; then an empty final block,
# the CRC and the size of nothing.
_GZIP_HEAD = b"\x1f\x8b\x08\x10" + bytes(5) + b"\xff"
_GZIP_TAIL = b"\x00\x03\x00" + bytes(8)
_LEAST_GZIP = OVERHEAD[1] + len(_GZIP_HEAD) + len(_GZIP_TAIL)


def parse_messages(buffer: Buffer, *, max_bytes: int) -> list[MessageGroup]:
    """Return all messages of a PRODUCE, in groups of what one wrapper held, or of neighbours without one.

    `max_bytes` bounds what all wrappers together may decompress to. Raises BrokerError CORRUPT_MESSAGE for a
    length, a magic, a codec or a checksum that is wrong; INVALID_RECORD beyond `max_bytes`, `MAX_MESSAGES` or the
    depth of wrappers in wrappers.
    """
    opener = _Opener(max_bytes)
    groups: list[MessageGroup] = []
    run: MessageGroup | None = None
    for codec, payload in _walk(buffer):
        if codec:
            messages = opener.open(codec, payload, depth=1)
            if messages:
                groups.append(MessageGroup(codec, 0, messages))
            run = None
            continue
        if run is None:
            run = MessageGroup(NONE, 0, [])
            groups.append(run)
        opener.count()
        run.messages.append((0, NO_TIMESTAMP, None, bytes(payload)))
    return groups


def encode_message(magic: int, payload: bytes, codec: int = NONE) -> bytes:
    """Return one message; magic 0 has no place for a codec."""
    if magic:
        return _HEAD_1.pack(len(payload) + 6, magic, codec, zlib.crc32(payload)) + payload
    return _HEAD_0.pack(len(payload) + 5, magic, zlib.crc32(payload)) + payload


def shown_payloads(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int
) -> tuple[Sequence[int], list[bytes]]:
    """Return what a batch shows to 0.7: the offsets of its records, and their payloads; none for a control batch.

    Raises BrokerError CORRUPT_MESSAGE or INVALID_RECORD for a batch that cannot be read.
    """
    if header.is_control or not header.record_count:
        return (), []
    if not check_crc(buffer, position, header):
        raise BrokerError(
            ErrorCode.CORRUPT_MESSAGE, "The checksum of a batch is wrong: the disk has changed it."
        )
    return plain_values(header, record_bytes(buffer, position, header, max_bytes=max_bytes))


def filler_start(magic: int, size: int, length: int) -> bytes:
    """Return the first `length` bytes of empty messages of exactly `size` bytes together, without making all.

    A size below a message's, which no reader that adds up lengths can ask for, is filled with zeros.
    """
    if size < OVERHEAD[magic]:
        return bytes(min(size, length))
    parts = []
    made = 0
    for one in _filler_sizes(magic, size):
        if made >= length:
            break
        parts.append(_one_filler(magic, one))
        made += one
    return b"".join(parts)[:length]


def _filler_sizes(magic: int, size: int) -> Iterator[int]:
    """Full ones, and one or two that take the rest: nothing shorter than a message may be left over."""
    while size >= FILLER_BYTES + OVERHEAD[magic]:
        yield FILLER_BYTES
        size -= FILLER_BYTES
    if size > FILLER_BYTES:
        yield size - OVERHEAD[magic]
        size = OVERHEAD[magic]
    if size:
        yield size


@cache
def _one_filler(magic: int, size: int) -> bytes:
    if magic and size >= _LEAST_GZIP:
        room = b" " * (size - _LEAST_GZIP)
        return encode_message(magic, _GZIP_HEAD + room + _GZIP_TAIL, GZIP)
    return encode_message(magic, bytes(size - OVERHEAD[magic]))


class _Opener:
    """Opens the wrappers of one set, with one limit on bytes and one on messages over all of them."""

    def __init__(self, max_bytes: int) -> None:
        self._bytes_left = max_bytes
        self._messages_left = MAX_MESSAGES

    def count(self) -> None:
        self._messages_left -= 1
        if self._messages_left < 0:
            raise _refused(f"it holds more than {MAX_MESSAGES} messages")

    def open(self, codec: int, payload: Buffer, depth: int) -> list[MessageFields]:
        """Return the messages inside a wrapper, those of wrappers inside it in their place."""
        if depth > _MAX_DEPTH:
            raise _refused(f"compressed messages lie more than {_MAX_DEPTH} deep in one another")
        data = decompress(codec, payload, self._bytes_left)
        self._bytes_left -= len(data)
        messages: list[MessageFields] = []
        for inner_codec, inner in _walk(data):
            self.count()
            if inner_codec:
                messages += self.open(inner_codec, inner, depth + 1)
            else:
                messages.append((0, NO_TIMESTAMP, None, bytes(inner)))
        return messages


def _walk(buffer: Buffer) -> Iterator[tuple[int, memoryview]]:
    """Yield each message of one level, checksum checked: codec and payload."""
    view = memoryview(buffer)
    position, end = 0, len(view)
    while position < end:
        left = end - position - _LENGTH.size
        if left < 0:
            raise corrupt_message(position, "it ends within a length")
        (length,) = _LENGTH.unpack_from(view, position)
        if not OVERHEAD[0] - 4 <= length <= left:
            raise corrupt_message(position, f"its length is {length}, {left} bytes are left")
        magic = view[position + 4]
        if magic not in MAGICS or length < OVERHEAD[magic] - 4:
            raise corrupt_message(position, f"its magic is {magic}, its length {length}")
        codec = view[position + 5] & _CODEC_BITS if magic else NONE
        if codec > SNAPPY:
            raise corrupt_message(position, f"there is no codec {codec}")
        payload_at = position + OVERHEAD[magic]
        stop = position + 4 + length
        payload = view[payload_at:stop]
        if zlib.crc32(payload) != _CRC.unpack_from(view, payload_at - 4)[0]:
            raise corrupt_message(position, "its checksum is wrong")
        yield codec, payload
        position = stop


def _refused(why: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_RECORD, f"The messages are refused: {why}.")
