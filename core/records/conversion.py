"""Old message formats on the way in and out: the log itself holds record batches of magic 2 alone.

| | up, Produce v0–2 | down, Fetch v0–3 |
|---|---|---|
| timestamp | magic 0: −1; magic 1: kept, under the topic's rules | magic 0: dropped; magic 1: kept with its type |
| key, value | kept, null too | kept, null too |
| headers | none | dropped |
| offsets | assigned by the log | kept, with the holes of compaction |
| compression | kept: each wrapper becomes one batch | each batch becomes one wrapper; zstd becomes gzip |
| control batches | – | never shown |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from core.errors import BrokerError, ErrorCode
from core.records.aborted import AbortedRecords
from core.records.batch import batches, encode_batch, iter_records, recompress, set_log_append_time
from core.records.compression import CODECS, GZIP, ZSTD
from core.records.header import (
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    Buffer,
    read_header,
)
from core.records.message_set import MessageFields, MessageGroup, encode_plain, parse_message_set, wrap
from core.records.record import LOG_APPEND_TIME, NO_TIMESTAMP, Record
from core.records.record_codec import RecordFields
from core.records.validation import ProduceBatches, check_records, check_size, must_see_records
from core.topic_config import TopicConfig
from core.types import AbortedTransaction

NO_LIMIT = 2**62
# What a message costs in magic 2 beside key and value, at most: seven varints.
_RECORD_OVERHEAD = 36


def up_convert(
    buffer: Buffer, config: TopicConfig, *, now_ms: int, max_bytes: int, open_wrappers: bool = True
) -> ProduceBatches:
    """The message set of a Produce v0–2 as batches of magic 2, checked against the rules of the topic.

    Neighbours without a wrapper become one batch, or as many as max.message.bytes asks for: it was a limit for
    single messages then. An empty set gives no batch; Kafka answers it without an error and with offset −1.
    `max_bytes` bounds what wrappers may decompress to. Raises what `parse_message_set` raises, and BrokerError
    MESSAGE_TOO_LARGE, INVALID_TIMESTAMP and INVALID_RECORD as `validate_produce` does.
    """
    groups = parse_message_set(buffer, max_bytes=max_bytes, open_wrappers=open_wrappers)
    return batches_of(groups, len(buffer), config, now_ms=now_ms)


def batches_of(
    groups: Sequence[MessageGroup], size: int, config: TopicConfig, *, now_ms: int
) -> ProduceBatches:
    """Messages of an old format as batches of magic 2, checked against the rules of the topic; see `up_convert`.

    `size` is what they took on the wire; a batch of them never takes twice as much.
    """
    _check_rules(groups, config, now_ms)
    own_time = config.message_timestamp_type == "CreateTime"
    out = bytearray()
    headers: list[BatchHeader] = []
    base_offset = 0
    for group in groups:
        codec = group.codec if config.compression_type == "producer" else CODECS[config.compression_type]
        for messages in _portions(group, size, config.max_message_bytes):
            batch = _batch(messages, codec, base_offset)
            check_size(len(batch), config)
            if not own_time:
                set_log_append_time(batch, 0, now_ms)
            headers.append(read_header(batch))
            out += batch
            base_offset += len(messages)
    return ProduceBatches(out, tuple(headers), NO_TIMESTAMP if own_time else now_ms)


def down_convert(
    buffer: Buffer,
    magic: int,
    *,
    first_offset: int,
    max_bytes: int,
    wanted_bytes: int = NO_LIMIT,
    aborted: Sequence[AbortedTransaction] = (),
) -> bytes:
    """Stored batches as a message set of `magic` 0 or 1, for a client that wants to read from `first_offset`.

    An uncompressed batch is converted from `first_offset` on. A compressed one is converted whole, as in Kafka, and
    clients skip the records before. Conversion ends once there are `wanted_bytes`. The result may be longer; the
    caller may cut it at any byte. An empty result means that these batches have no records for clients (control
    batches, emptied ones, those of transactions that were `aborted`): continue after them. `max_bytes` bounds the
    decompressed size of one batch.

    Raises BrokerError as `iter_records` does if the first batch is broken; a broken one after it ends the set.
    """
    out: list[bytes | bytearray] = []
    size = 0
    hidden = AbortedRecords(aborted)
    try:
        for position, header in batches(buffer):
            if hidden.hides(header) or not header.record_count or header.last_offset < first_offset:
                continue
            first = 0 if header.codec else first_offset
            records = iter_records(buffer, position, header, max_bytes=max_bytes, first_offset=first)
            part = _message_set(records, header, magic, wanted_bytes - size)
            out.append(part)
            size += len(part)
            if size >= wanted_bytes:
                break
    except BrokerError:
        if not size:
            raise
    return b"".join(out)


def without_zstd(buffer: bytes, *, max_bytes: int) -> bytes:
    """Stored batches for a client that reads magic 2 but not zstd: those that are zstd become gzip.

    `max_bytes` bounds what one batch may decompress to. Raises BrokerError as `recompress` does if the first
    batch is broken; a broken one after it ends the answer.
    """
    out: list[bytes | bytearray | memoryview] = []
    view = memoryview(buffer)
    try:
        for position, header in batches(buffer):
            if header.codec == ZSTD and header.record_count:
                out.append(recompress(buffer, position, header, GZIP, max_bytes=max_bytes))
            else:
                out.append(view[position : position + header.size])
    except BrokerError:
        if not out:
            raise
    return b"".join(out)


def _check_rules(groups: Sequence[MessageGroup], config: TopicConfig, now_ms: int) -> None:
    if any(group.timestamp_type == LOG_APPEND_TIME for group in groups):
        raise BrokerError(
            ErrorCode.INVALID_TIMESTAMP, "A producer may not mark its timestamps as LogAppendTime."
        )
    latest = max([message[1] for group in groups for message in group.messages], default=NO_TIMESTAMP)
    if must_see_records(latest, config, now_ms):
        every = ((timestamp, key) for group in groups for _, timestamp, key, _ in group.messages)
        check_records(every, config, now_ms)


def _portions(group: MessageGroup, set_size: int, limit: int) -> Iterator[list[MessageFields]]:
    """The messages of a group in runs that fit into batches of `limit` bytes; one alone may be larger."""
    messages = group.messages
    # A message has 26 bytes beside key and value in a set, and never twice as many in a batch.
    if group.codec or 2 * set_size + HEADER_SIZE <= limit:
        yield messages
        return
    sizes = [len(key or b"") + len(value or b"") + _RECORD_OVERHEAD for _, _, key, value in messages]
    first, size = 0, HEADER_SIZE
    for index, one in enumerate(sizes):
        if size + one > limit and index > first:
            yield messages[first:index]
            first, size = index, HEADER_SIZE
        size += one
    yield messages[first:]


def _batch(messages: list[MessageFields], codec: int, base_offset: int) -> bytearray:
    fields: list[RecordFields] = [
        (delta, timestamp, key, value, ()) for delta, (_, timestamp, key, value) in enumerate(messages)
    ]
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=len(fields) - 1,
        base_timestamp=fields[0][1],
        max_timestamp=max([item[1] for item in fields]),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
        record_count=len(fields),
    )
    return encode_batch(header, fields, codec)


def _message_set(
    records: Iterator[Record], header: BatchHeader, magic: int, wanted_bytes: int
) -> bytes | bytearray:
    timestamp_type = header.timestamp_type
    if not header.codec:
        return _plain_set(records, timestamp_type, magic, 0, wanted_bytes)
    every = list(records)
    # Inner offsets of magic 1 count from the first inner message.
    base_offset = every[0].offset if magic else 0
    inner = _plain_set(every, timestamp_type, magic, base_offset, NO_LIMIT)
    latest = max([record.timestamp for record in every])
    return wrap(magic, header.codec, timestamp_type, every[-1].offset, latest, inner)


def _plain_set(
    records: Iterable[Record], timestamp_type: int, magic: int, base_offset: int, wanted_bytes: int
) -> bytes | bytearray:
    if magic and timestamp_type == LOG_APPEND_TIME:
        # The extension writes no timestamp type. Topics with LogAppendTime and clients of 0.10 are rare together.
        return encode_plain(
            magic, timestamp_type, [(r.offset - base_offset, r.timestamp, r.key, r.value) for r in records]
        )
    # Imported here for the reason that `record_codec.extension` gives.
    from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

    builder = LegacyRecordBatchBuilder(magic, 0, NO_LIMIT)
    append, size = builder.append, 0
    for record in records:
        size += append(record.offset - base_offset, record.timestamp, record.key, record.value).size
        if size >= wanted_bytes:
            break
    built: bytearray = builder.build()
    return built
