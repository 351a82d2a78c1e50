"""What a client may write: the rules that a produced batch must keep before it may enter a log.

The rules are those of Kafka's broker for magic 2, and they are checked here once for every listener and surface:

    one whole batch per partition and request, and nothing after it      INVALID_RECORD, CORRUPT_MESSAGE
    checksum right                                                       CORRUPT_MESSAGE
    not larger than max.message.bytes, after recompression too           MESSAGE_TOO_LARGE
    a codec that exists                                                  UNSUPPORTED_COMPRESSION_TYPE
    a batch of a transaction comes with a transactional id               TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    no control batch, no delete horizon: only brokers write these        INVALID_RECORD
    record count = last offset delta + 1, from 1 to `MAX_RECORDS`        INVALID_RECORD
    a producer id comes with an epoch and a sequence                     INVALID_RECORD
    the producer's time, within the topic's bounds around now            INVALID_TIMESTAMP, per record
    a key for every record of a compacted topic                          INVALID_RECORD, per record

The base offset that the client wrote is ignored; the log writes its own.

**What is not checked.** The records inside are read only when a rule needs them: keys on a compacted topic, a lower
bound on timestamps, a batch whose header names a time out of bounds. For a usual topic the checksum and the header
are all: reading 160 records would cost as much as everything else a 16 KB produce does. So a malicious client can
store a batch with a right checksum whose records are garbage, or a max timestamp that its records do not have. It
harms readers of that topic alone, and no reader here breaks on it: `read_records` refuses such a batch with
CORRUPT_MESSAGE, and its header is enough to skip it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from core.errors import BrokerError, ErrorCode
from core.records.batch import MAX_RECORDS, check_crc, iter_records, recompress, set_log_append_time
from core.records.compression import CODECS, ZSTD
from core.records.header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    read_header,
)
from core.records.record import NO_TIMESTAMP
from core.topic_config import LONG_MAX, TopicConfig

# Record errors in one answer, at most. A batch may hold 10⁵ records.
MAX_RECORD_ERRORS = 100
_MAGIC_AT = 16
_REFUSED_BITS = TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT | TIMESTAMP_TYPE_BIT


class ProduceBatches(NamedTuple):
    """What may be appended: bytes that the log writes offsets into, and the headers of the batches in it.

    `buffer` is the client's own memory where nothing had to change, else a new one. `log_append_time` is the
    time that the records got, −1 if they keep their own.
    """

    buffer: bytearray | memoryview
    headers: tuple[BatchHeader, ...]
    log_append_time: int = NO_TIMESTAMP


def validate_produce(
    records: Buffer,
    config: TopicConfig,
    *,
    now_ms: int,
    max_decompressed_bytes: int,
    built: bool = False,
    transactional: bool = False,
) -> ProduceBatches:
    """Check one partition's data of a Produce request (magic 2) against the rules above.

    `records` should be writable: offsets, and with LogAppendTime the time, are written in place; what is not
    writable is copied. A batch that we have `built` ourselves a moment ago has the right checksum and a header
    that fits; for one record, to look at them costs a fortieth of a request over HTTP. `transactional`: the batch may
    belong to a transaction; the caller checks to which. Raises BrokerError as the table says; its details carry
    `record_errors`, a list of (index in the batch, message), where single records are to blame.
    """
    header = _read_whole(records, config)
    if not built:
        # Before what the header says is believed: a flipped bit must be CORRUPT_MESSAGE, which is tried again.
        if not check_crc(records, 0, header):
            raise BrokerError(
                ErrorCode.CORRUPT_MESSAGE, f"The batch's checksum is not {header.crc:#010x}, as it states."
            )
        _check_header(header, _REFUSED_BITS ^ TRANSACTIONAL_BIT if transactional else _REFUSED_BITS)
    if must_see_records(header.max_timestamp, config, now_ms):
        _check_inside(records, header, config, now_ms, max_decompressed_bytes)
    buffer = records
    if config.compression_type != "producer":
        codec = CODECS[config.compression_type]
        if codec != header.codec:
            level = config.compression_level
            buffer = recompress(records, 0, header, codec, max_bytes=max_decompressed_bytes, level=level)
            header = read_header(buffer)
            check_size(header.size, config)
    if isinstance(buffer, bytes) or (isinstance(buffer, memoryview) and buffer.readonly):
        buffer = bytearray(buffer)
    if config.message_timestamp_type == "CreateTime":
        return ProduceBatches(buffer, (header,))
    set_log_append_time(buffer, 0, now_ms)
    return ProduceBatches(buffer, (read_header(buffer),), now_ms)


def must_see_records(max_timestamp: int, config: TopicConfig, now_ms: int) -> bool:
    """Whether a rule of the topic can only be checked record by record, with this time as the latest."""
    if config.message_timestamp_type == "CreateTime" and (
        max_timestamp - now_ms > config.message_timestamp_after_max_ms
        or config.message_timestamp_before_max_ms != LONG_MAX
    ):
        return True
    return config.compacted


def check_records(records: Iterable[tuple[int, bytes | None]], config: TopicConfig, now_ms: int) -> None:
    """Check the rules for single records, each given as (timestamp, key).

    Raises BrokerError INVALID_TIMESTAMP or INVALID_RECORD with `record_errors` in its details, as Kafka does
    from Produce v8 on; the timestamps win when both are wrong.
    """
    own_time = config.message_timestamp_type == "CreateTime"
    earliest = now_ms - config.message_timestamp_before_max_ms if own_time else -LONG_MAX
    latest = now_ms + config.message_timestamp_after_max_ms if own_time else LONG_MAX
    compacted = config.compacted
    errors: list[tuple[int, str]] = []
    refused = late = index = 0
    for index, (timestamp, key) in enumerate(records):
        out_of_bounds = not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP
        if not out_of_bounds and (key is not None or not compacted):
            continue
        refused += 1
        late += out_of_bounds
        if len(errors) < MAX_RECORD_ERRORS:
            why = f"has timestamp {timestamp}, which is not between {earliest} and {latest}"
            errors.append(
                (
                    index,
                    f"Record {index} {why if out_of_bounds else 'has no key; a compacted topic needs one'}.",
                )
            )
    if errors:
        raise BrokerError(
            ErrorCode.INVALID_TIMESTAMP if late else ErrorCode.INVALID_RECORD,
            f"{refused} of {index + 1} records were refused, the first because: {errors[0][1]}",
            record_errors=errors,
        )


def check_size(size: int, config: TopicConfig) -> None:
    """Raise BrokerError MESSAGE_TOO_LARGE for a batch of more bytes than the topic's max.message.bytes."""
    if size > config.max_message_bytes:
        raise BrokerError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch has {size} bytes; max.message.bytes is {config.max_message_bytes}.",
            size=size,
            limit=config.max_message_bytes,
        )


def _read_whole(records: Buffer, config: TopicConfig) -> BatchHeader:
    """The header of the one batch that fills the buffer, of the right magic and no larger than allowed."""
    size = len(records)
    if size < HEADER_SIZE:
        if not size:
            raise _invalid("there must be one record batch per partition, there is none")
        if size > _MAGIC_AT and records[_MAGIC_AT] < MAGIC:
            raise _old_magic(records[_MAGIC_AT])
        raise _corrupt(f"it has {HEADER_SIZE} bytes at least, {size} are there")
    header = read_header(records)
    magic = header.magic
    if magic != MAGIC:
        raise _old_magic(magic) if 0 <= magic < MAGIC else _corrupt(f"its magic is {magic}")
    batch_size = header.batch_length + LENGTH_OVERHEAD
    if batch_size != size:
        raise _wrong_size(records, batch_size)
    check_size(batch_size, config)
    return header


def _check_header(header: BatchHeader, refused_bits: int) -> None:
    attributes, count = header.attributes, header.record_count
    if attributes & refused_bits:
        raise _refused_attributes(attributes)
    if header.last_offset_delta + 1 != count or not 1 <= count <= MAX_RECORDS:
        raise _invalid(
            f"it says it holds {count} records, but its last offset delta is {header.last_offset_delta}"
        )
    if header.codec > ZSTD:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"There is no compression codec {header.codec}; 4 is the last.",
        )
    if attributes & TRANSACTIONAL_BIT and header.producer_id == NO_PRODUCER_ID:
        raise _invalid("a batch of a transaction needs a producer id")
    if header.producer_id != NO_PRODUCER_ID and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise _invalid(
            f"producer id {header.producer_id} needs an epoch and a sequence, not {header.producer_epoch} "
            f"and {header.base_sequence}"
        )


def _wrong_size(records: Buffer, batch_size: int) -> BrokerError:
    size = len(records)
    if not HEADER_SIZE <= batch_size < size:
        return _corrupt(f"it says it has {batch_size} bytes, {size} are there")
    if size - batch_size > _MAGIC_AT:
        return _invalid(
            "there must be exactly one record batch per partition, something follows the first one"
        )
    return _corrupt(f"{size - batch_size} bytes follow it")


def _refused_attributes(attributes: int) -> BrokerError:
    if attributes & TRANSACTIONAL_BIT:
        # As Kafka answers without a transactional id. Stored, it would be a transaction that nothing can end.
        return BrokerError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "The batch belongs to a transaction, but the request has no transactional.id.",
        )
    if attributes & TIMESTAMP_TYPE_BIT:
        return BrokerError(
            ErrorCode.INVALID_TIMESTAMP,
            "A producer may not mark its timestamps as LogAppendTime; only the topic may.",
        )
    return _invalid("clients may not write control batches or delete horizons")


def _check_inside(
    records: Buffer, header: BatchHeader, config: TopicConfig, now_ms: int, max_bytes: int
) -> None:
    inside = iter_records(records, 0, header._replace(base_offset=0), max_bytes=max_bytes)
    check_records(((record.timestamp, record.key) for record in inside), config, now_ms)
    latest = now_ms + config.message_timestamp_after_max_ms
    if header.max_timestamp > latest and config.message_timestamp_type == "CreateTime":
        raise BrokerError(
            ErrorCode.INVALID_TIMESTAMP,
            f"The batch's max timestamp {header.max_timestamp} is above {latest}, but no record has it.",
        )


def _old_magic(magic: int) -> BrokerError:
    return _invalid(f"its magic is {magic}; from Produce version 3 on only magic {MAGIC} is allowed")


def _invalid(why: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_RECORD, f"The record batch is refused: {why}.")


def _corrupt(why: str) -> BrokerError:
    return BrokerError(ErrorCode.CORRUPT_MESSAGE, f"The record batch is corrupt: {why}.")
