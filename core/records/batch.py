"""Record batches, magic 2: walk over them, check them, stamp them, build them, read them.

A log and a binary produce only ever touch the header (`core.records.header` draws it); records are looked at
for REST, for compaction and for conversions alone. Nothing here checks what a client may write: that is
`core.records.validation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct

from crc32c import crc32c

from core.errors import BrokerError, ErrorCode
from core.records.compression import ZSTD, compress, decompress
from core.records.header import (
    CHECKSUMMED_FROM,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    INT32_MAX,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    read_header,
)
from core.records.record import LOG_APPEND_TIME, NewRecord, Record
from core.records.record_codec import RecordFields, decode_records, encode_of_one_time, encode_records

__all__ = [
    "HEADER",
    "HEADER_SIZE",
    "BatchHeader",
    "Buffer",
    "assign",
    "batches",
    "build_batch",
    "check_crc",
    "decode_all",
    "encode_batch",
    "iter_records",
    "read_header",
    "read_records",
    "rebuild_batch",
    "recompress",
    "set_log_append_time",
    "set_producer",
]

WritableBuffer = bytearray | memoryview

# What a record costs at least: length, attributes, two deltas, two lengths, header count. A count is believed
# only as far as the bytes go.
MIN_RECORD_SIZE = 7
# Records in one batch. The largest setting of librdkafka's batch.num.messages; seven bytes each compress so well
# that without a limit 60 KB could become nine million.
MAX_RECORDS = 1_000_000
NO_LIMIT = 2**63

_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH_AT = 12
_LEADER_EPOCH = Struct(">i")
_CRC_AT = 17
_CRC = Struct(">I")
_ATTRIBUTES_AT = 21
_ATTRIBUTES = Struct(">h")
_TIMESTAMPS_AT = 27
_TIMESTAMPS = Struct(">qq")
_PRODUCER_AT = 43
_PRODUCER = Struct(">qhi")


def batches(buffer: Buffer, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Each batch between `position` and `end`, as (where it begins, its header). Checksums are not checked.

    Raises BrokerError CORRUPT_MESSAGE, with `position` in its details, at the first batch that is not of
    magic 2, too short for its header, or longer than what is left.
    """
    end = len(buffer) if end is None else end
    while position < end:
        if end - position < HEADER_SIZE:
            raise _corrupt(position, f"a batch has {HEADER_SIZE} bytes at least, {end - position} are left")
        header = read_header(buffer, position)
        if header.magic != MAGIC:
            raise _corrupt(position, f"its magic is {header.magic}, not {MAGIC}")
        size = header.batch_length + LENGTH_OVERHEAD
        if size < HEADER_SIZE:
            raise _corrupt(position, f"its length is {header.batch_length}, less than its header")
        if size > end - position:
            raise _corrupt(position, f"its size is {size}, but {end - position} bytes are left")
        yield position, header
        position += size


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the CRC-32C of the batch at `position` is the one that its header states."""
    covered = memoryview(buffer)[
        position + CHECKSUMMED_FROM : position + header.batch_length + LENGTH_OVERHEAD
    ]
    return crc32c(covered) == header.crc


def assign(buffer: WritableBuffer, position: int, *, base_offset: int, leader_epoch: int) -> None:
    """Write what the broker decides, in place. The checksum stays right: it does not cover these fields."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_AT, leader_epoch)


def set_log_append_time(buffer: WritableBuffer, position: int, now_ms: int) -> None:
    """Give every record of the batch the broker's time, in place, by the header alone; new CRC.

    Readers take the max timestamp for every record then. The base timestamp is set as well: clients that do
    not know of timestamp types add the deltas to it, and are then off by milliseconds only.
    """
    header = read_header(buffer, position)
    attributes = header.attributes | TIMESTAMP_TYPE_BIT
    _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_AT, attributes)
    _TIMESTAMPS.pack_into(buffer, position + _TIMESTAMPS_AT, now_ms, now_ms)
    _write_crc(buffer, position, header.size)


def set_producer(
    buffer: WritableBuffer, producer_id: int, producer_epoch: int, base_sequence: int, *, position: int = 0
) -> None:
    """Write the producer's id, epoch and sequence number into a batch, in place; new CRC."""
    header = read_header(buffer, position)
    _PRODUCER.pack_into(buffer, position + _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    _write_crc(buffer, position, header.size)


def build_batch(
    records: Sequence[NewRecord],
    *,
    now_ms: int,
    codec: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    base_offset: int = 0,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """One batch of `records`, in order, with consecutive offsets. A record without a time gets `now_ms`.

    Raises BrokerError INVALID_RECORD for an empty list, a header name without UTF-8 form or a time beyond 64
    bits; MESSAGE_TOO_LARGE beyond 2³¹ bytes.
    """
    if not records:
        raise BrokerError(ErrorCode.INVALID_RECORD, "A batch needs at least one record.")
    if all([record.timestamp is None for record in records]):  # noqa: C419 (a third of the time)
        first = latest = now_ms
        buffer = encode_of_one_time(now_ms, records)
    else:
        times = [now_ms if record.timestamp is None else record.timestamp for record in records]
        first, latest = times[0], max(times)
        buffer = encode_records(
            first, [(i, times[i], r.key, r.value, r.headers) for i, r in enumerate(records)]
        )
    count = len(records)
    attributes = (TRANSACTIONAL_BIT if transactional else 0) | (CONTROL_BIT if control else 0)
    # A BatchHeader, but for the time that its constructor takes.
    header = (
        base_offset, 0, -1, MAGIC, 0, attributes, count - 1, first, latest, producer_id, producer_epoch,
        base_sequence, count,
    )  # fmt: skip
    return _seal(header, count, buffer, codec)


def encode_batch(header: BatchHeader, records: Sequence[RecordFields], codec: int) -> bytearray:
    """A batch with the fields of `header`; its length, CRC, codec and record count follow from the rest."""
    return _seal(header, len(records), encode_records(header.base_timestamp, records), codec)


def rebuild_batch(
    header: BatchHeader, records: Sequence[Record], *, delete_horizon: int | None = None
) -> bytearray:
    """Return the batch of `header` with only these of its records, as compaction leaves it.

    Offsets, base and last one too, producer id, epoch and sequence, leader epoch, codec and flags stay. The
    max timestamp becomes that of the records that stay (KIP-534 and Kafka's cleaner); with LogAppendTime, or
    without records, it stays. `delete_horizon` is written if the batch has none yet, into the base timestamp,
    as KIP-534 says. An emptied batch keeps its place with a record count of 0, uncompressed.
    """
    if delete_horizon is not None and header.delete_horizon is None:
        header = header._replace(
            base_timestamp=delete_horizon, attributes=header.attributes | DELETE_HORIZON_BIT
        )
    if not records:
        return encode_batch(header, (), 0)
    if header.timestamp_type != LOG_APPEND_TIME:
        header = header._replace(max_timestamp=max([record.timestamp for record in records]))
    base_offset = header.base_offset
    fields = [(r.offset - base_offset, r.timestamp, r.key, r.value, r.headers) for r in records]
    return encode_batch(header, fields, header.codec)


def recompress(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    codec: int,
    *,
    max_bytes: int,
    level: int | None = None,
) -> bytearray:
    """The same batch with its records compressed by `codec`, at a level of it; they are not looked at.

    Raises BrokerError CORRUPT_MESSAGE when they cannot be decompressed, INVALID_RECORD above `max_bytes`.
    """
    out = bytearray(HEADER_SIZE)
    out += _decompressed(buffer, position, header, max_bytes)
    return _seal(header, header.record_count, out, codec, level)


def read_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    max_bytes: int,
    first_offset: int = 0,
    limit: int = NO_LIMIT,
) -> list[Record]:
    """The records of the batch at `position`, from `first_offset` on, at most `limit`.

    Raises what `iter_records` raises.
    """
    return list(
        iter_records(buffer, position, header, max_bytes=max_bytes, first_offset=first_offset, limit=limit)
    )


def iter_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    max_bytes: int,
    first_offset: int = 0,
    limit: int = NO_LIMIT,
) -> Iterator[Record]:
    """`read_records`, one by one: a batch may hold a million, and a list of them takes 130 MB.

    `max_bytes` bounds what the batch may decompress to. The checksum is not checked here. Raises BrokerError
    CORRUPT_MESSAGE for a batch that is not what its header says, INVALID_RECORD for one beyond `max_bytes` or
    `MAX_RECORDS`.
    """
    body = record_bytes(buffer, position, header, max_bytes=max_bytes)
    return decode_records(header, body, first_offset, limit)


def record_bytes(buffer: Buffer, position: int, header: BatchHeader, *, max_bytes: int) -> Buffer:
    """Return the decompressed records of a batch for `decode_records`, for callers that read them in several steps.

    Raises what `iter_records` raises.
    """
    body = _decompressed(buffer, position, header, max_bytes)
    count = header.record_count
    if not 0 <= count <= len(body) // MIN_RECORD_SIZE:
        raise _corrupt(position, f"it says it holds {count} records in {len(body)} bytes")
    if count > MAX_RECORDS:
        raise BrokerError(
            ErrorCode.INVALID_RECORD,
            f"The batch holds {count} records; {MAX_RECORDS} is the limit.",
            limit=MAX_RECORDS,
        )
    return body


def decode_all(
    buffer: Buffer,
    position: int = 0,
    end: int | None = None,
    *,
    max_bytes: int,
    first_offset: int = 0,
    control: bool = False,
) -> Iterator[Record]:
    """Every record of every batch between `position` and `end`, from `first_offset` on.

    Transaction markers are left out unless `control`. One batch at a time is decompressed, to `max_bytes` at
    most. Raises what `batches` and `read_records` raise, after the records of the batches before.
    """
    for at, header in batches(buffer, position, end):
        if header.last_offset >= first_offset and (control or not header.is_control):
            yield from iter_records(buffer, at, header, max_bytes=max_bytes, first_offset=first_offset)


def _decompressed(buffer: Buffer, position: int, header: BatchHeader, max_bytes: int) -> Buffer:
    end = position + header.batch_length + LENGTH_OVERHEAD
    if header.batch_length + LENGTH_OVERHEAD < HEADER_SIZE or end > len(buffer):
        raise _corrupt(position, f"its length is {header.batch_length}")
    body = memoryview(buffer)[position + HEADER_SIZE : end]
    codec = header.attributes & CODEC_MASK
    # Some brokers leave the codec in the header of batches that compaction has emptied.
    return decompress(codec, body, max_bytes) if codec and body else body


def _seal(
    header: tuple[int, ...], count: int, buffer: bytearray, codec: int, level: int | None = None
) -> bytearray:
    """Compress the bytes after the first 61 of `buffer`, and write the header over these 61.

    Length, magic, checksum, codec and record count are written as they are now, not as `header` has them.
    """
    if codec:
        compressed = compress(codec, memoryview(buffer)[HEADER_SIZE:], level)
        buffer = bytearray(HEADER_SIZE)
        buffer += compressed
    size = len(buffer)
    if size > INT32_MAX:
        raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"A batch of {size} bytes has no form on the wire.")
    base_offset, _, leader_epoch, _, _, attributes, *rest, _ = header
    attributes = attributes & ~CODEC_MASK | codec
    HEADER.pack_into(
        buffer, 0, base_offset, size - LENGTH_OVERHEAD, leader_epoch, MAGIC, 0, attributes, *rest, count
    )
    _write_crc(buffer, 0, size)
    return buffer


def _write_crc(buffer: WritableBuffer, position: int, size: int) -> None:
    covered = memoryview(buffer)[position + CHECKSUMMED_FROM : position + size]
    _CRC.pack_into(buffer, position + _CRC_AT, crc32c(covered))


def _corrupt(position: int, why: str) -> BrokerError:
    return BrokerError(
        ErrorCode.CORRUPT_MESSAGE,
        f"The record batch at byte {position} is corrupt: {why}.",
        position=position,
    )


def carries_zstd(buffer: Buffer) -> bool:
    """Whether the first batch in `buffer`, if there is one of magic 2, is compressed with zstd."""
    if len(buffer) < HEADER_SIZE:
        return False
    header = read_header(buffer)
    return header.magic == MAGIC and header.codec == ZSTD
