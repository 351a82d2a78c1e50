"""The records inside a magic-2 batch: two functions around the C extension of `aiokafka.record`.

`encode_records` and `decode_records` are the whole interface. Where the extension is not built, the pure
functions of `record_codec_pure` do the same; a differential test holds both to equal bytes, records and
refusals.

What the extension would do wrong, and how this module prevents it:
- It reads up to ten bytes past the end of its buffer when a varint is cut off. So it gets a copy with zeros after it:
  the read ends there, and its bounds check then refuses the batch.
- It takes −1 as "no first timestamp yet", so a batch that begins with −1 gets wrong deltas. The header it
  writes shows that this happened; the pure encoder then does the work.
- It decompresses without a limit and compresses at level 9. It never sees a codec: see `core.records.batch`.
- It reads a timestamp of −1 as None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from struct import Struct
from typing import Any, NamedTuple

from core.records.header import CODEC_MASK, HEADER_SIZE, BatchHeader, Buffer
from core.records.record import NO_TIMESTAMP, NewRecord, Record
from core.records.record_codec_pure import (
    RecordFields,
    cannot_decode,
    cannot_encode,
    decode_records_pure,
    encode_records_pure,
    offsets_disagree,
)

__all__ = ["RecordFields", "decode_records", "encode_records", "extension", "plain_values"]

# What the extension's reader looks at: base offset, magic, attributes, last offset delta, base and max
# timestamp, record count.
_READER_HEADER = Struct(">q8xb4xhiqq14xi")
# The longest varint has ten bytes, so that many zeros end every read that runs over the end.
_PADDING = bytes(16)
_BASE_TIMESTAMP = Struct(">q")
_BASE_TIMESTAMP_AT = 27
# The builder refuses records above its batch size; ours is never the limit (max.message.bytes is).
_NO_SIZE_LIMIT = 2**62
_NO_HEADERS: list[object] = []


class Extension(NamedTuple):
    """The parts of the C extension that are used."""

    builder: Any
    batch: Any
    corrupt: type[Exception]


@cache
def extension() -> Extension | None:
    """The C extension; None where it is not built.

    Imported at the first record that is built or opened: its package brings a whole client, 6 MiB and 30 ms that
    a broker whose clients bring batches never needs.
    """
    from aiokafka.errors import CorruptRecordException
    from aiokafka.record import default_records

    batch = default_records.DefaultRecordBatch
    if "_crecords" not in batch.__module__:
        return None
    return Extension(default_records.DefaultRecordBatchBuilder, batch, CorruptRecordException)


def encode_of_one_time(timestamp: int, records: Sequence[NewRecord]) -> bytearray:
    """`encode_records` for records that follow each other and all get the same time, as most over HTTP do.

    Without a tuple for each it takes a fifth less.
    """
    compiled = extension()
    if compiled is None or timestamp == NO_TIMESTAMP:
        fields = [(i, timestamp, r.key, r.value, r.headers) for i, r in enumerate(records)]
        return encode_records(timestamp, fields)
    builder = compiled.builder(2, 0, 0, -1, -1, -1, _NO_SIZE_LIMIT)
    append = builder.append
    try:
        for offset_delta, record in enumerate(records):
            headers = record.headers
            append(
                offset_delta, timestamp, record.key, record.value, list(headers) if headers else _NO_HEADERS
            )
    except (UnicodeEncodeError, OverflowError) as error:
        raise cannot_encode(error) from None
    body: bytearray = builder.build()
    return body


def encode_records(base_timestamp: int, records: Iterable[RecordFields]) -> bytearray:
    """Return the uncompressed record bytes of a batch, after 61 bytes for the header that the caller writes.

    Each item is (offset delta, timestamp, key, value, headers). Raises BrokerError INVALID_RECORD for header
    names that have no UTF-8 form and for numbers beyond 64 bits.
    """
    compiled = extension()
    if compiled is None:
        return encode_records_pure(base_timestamp, records)
    records = records if isinstance(records, (list, tuple)) else list(records)
    builder = compiled.builder(2, 0, 0, -1, -1, -1, _NO_SIZE_LIMIT)
    append = builder.append
    # Deltas count from the first record's time. If that is not the base, one more record before it sets the base, and
    # is cut off at the end.
    extra = None
    try:
        if records and records[0][1] != base_timestamp:
            extra = append(0, base_timestamp, None, None, [])
        for offset_delta, timestamp, key, value, headers in records:
            append(offset_delta, timestamp, key, value, list(headers) if headers else _NO_HEADERS)
    except (UnicodeEncodeError, OverflowError) as error:
        raise cannot_encode(error) from None
    body: bytearray = builder.build()
    if base_timestamp == NO_TIMESTAMP:
        written: int = _BASE_TIMESTAMP.unpack_from(body, _BASE_TIMESTAMP_AT)[0]
        if written != NO_TIMESTAMP:
            return encode_records_pure(base_timestamp, records)
    if extra is not None:
        del body[HEADER_SIZE : HEADER_SIZE + extra.size]
    return body


def decode_records(header: BatchHeader, body: Buffer, first_offset: int, limit: int) -> Iterator[Record]:
    """The records that `body`, already decompressed, holds, from `first_offset` on, at most `limit`.

    Raises BrokerError CORRUPT_MESSAGE at the first that is not whole, or whose offset does not rise within the
    batch's own, and when there are not `header.record_count`. Bytes after the last requested record are not read.
    """
    compiled = extension()
    if compiled is None:
        yield from decode_records_pure(header, body, first_offset, limit)
        return
    timestamp_type, previous, last_offset = header.timestamp_type, header.base_offset - 1, header.last_offset
    try:
        for record in compiled.batch(_readable(header, body)):
            offset = record.offset
            if not previous < offset <= last_offset:
                raise offsets_disagree(header, offset)
            if offset >= first_offset:
                if not limit:
                    return
                limit -= 1
                timestamp, headers = record.timestamp, record.headers
                yield Record(
                    offset,
                    NO_TIMESTAMP if timestamp is None else timestamp,
                    timestamp_type,
                    record.key,
                    record.value,
                    tuple(headers) if headers else (),
                )
            previous = offset
    except UnicodeDecodeError:
        # A header name that is not UTF-8: the extension gives up, the pure reader replaces the bad bytes.
        yield from decode_records_pure(header, body, max(first_offset, previous + 1), limit)
    except (compiled.corrupt, ValueError, OverflowError, MemoryError) as error:
        raise cannot_decode(header, error) from None


def plain_values(header: BatchHeader, body: Buffer) -> tuple[Sequence[int], list[bytes]]:
    """The offsets and the values of all records in `body`, already decompressed; a null value is empty.

    For conversions to message sets that need nothing else: twice as fast as whole records. Raises BrokerError
    CORRUPT_MESSAGE for records without clear bounds.
    """
    compiled = extension()
    if compiled is not None and header.record_count == header.last_offset_delta + 1:
        try:
            values = [record.value or b"" for record in compiled.batch(_readable(header, body))]
        except UnicodeDecodeError:
            pass  # a header name that is not UTF-8: see `decode_records`
        except (compiled.corrupt, ValueError, OverflowError, MemoryError) as error:
            raise cannot_decode(header, error) from None
        else:
            return range(header.base_offset, header.base_offset + len(values)), values
    records = list(decode_records(header, body, 0, header.record_count))
    return [record.offset for record in records], [record.value or b"" for record in records]


def _readable(header: BatchHeader, body: Buffer) -> memoryview:
    """Return a batch for the extension's reader: uncompressed, with zeros after it."""
    front = _READER_HEADER.pack(
        header.base_offset,
        header.magic,
        header.attributes & ~CODEC_MASK,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.record_count,
    )
    return memoryview(b"".join((front, body, _PADDING)))[: HEADER_SIZE + len(body)]
