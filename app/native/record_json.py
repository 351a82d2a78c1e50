"""Records → JSON, the hot half of GET records; and what became of written ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
from msgspec import UNSET

from app.errors import STATUS_OF
from app.formats import Reader
from app.native.record_schemas import HeaderRead, RecordError, RecordPage, RecordRead, RecordWritten
from core.records.record import LOG_APPEND_TIME, NO_TIMESTAMP, Record
from core.types import TopicPartition
from core.vocabulary.records import ProduceResult, ReadResult

_encode = msgspec.json.Encoder().encode
# The first and last second that a datetime can hold.
_MIN_SECOND, _MAX_SECOND = -62_135_596_800, 253_402_300_799


@lru_cache(maxsize=256)
def _second(second: int) -> str:
    """A second in ISO 8601, without its end. Records that are read together share their seconds."""
    return datetime.fromtimestamp(second, UTC).isoformat()[:19]


def iso_time(ms: int) -> str | None:
    """UTC in ISO 8601 with milliseconds; None for "no timestamp" and for what no calendar holds."""
    second = ms // 1000
    if ms == NO_TIMESTAMP or not _MIN_SECOND <= second <= _MAX_SECOND:
        return None
    return f"{_second(second)}.{ms % 1000:03d}Z"


def record_page(tp: TopicPartition, result: ReadResult, reader: Reader, *, committed: bool = True) -> bytes:
    """The answer of a read as JSON. `committed` says how far it could read."""
    start, high_watermark, _, stable = result.offsets
    return _encode(
        RecordPage(
            records=_records(tp, result.records, reader),
            next_offset=result.next_offset,
            log_start_offset=start,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            caught_up=result.next_offset >= result.offsets.end(committed=committed),
        )
    )


def one_record(tp: TopicPartition, record: Record, reader: Reader) -> bytes:
    """One record as JSON."""
    return _encode(_records(tp, [record], reader)[0])


def places(results: Sequence[ProduceResult]) -> str:
    """Where records are that were all taken, as the items of a JSON array."""
    parts = []
    # What neighbours share: numbers cost most of the time of making such a text.
    last, last_ms, begin, end = None, None, "", ""
    for result in results:
        partition, timestamp = result.partition, result.timestamp
        if partition != last or timestamp != last_ms:
            last, last_ms = partition, timestamp
            iso = iso_time(timestamp)
            text = "null" if iso is None else f'"{iso}"'
            begin = f'{{"partition":{partition},"offset":'
            end = f',"timestamp":{text},"timestamp_ms":{timestamp}}}'
        parts.append(f"{begin}{result.offset}{end}")
    return ",".join(parts)


def written_record(result: ProduceResult) -> RecordWritten:
    """What became of one record, as a write answers it."""
    error = result.error
    if error is None:
        return RecordWritten(
            result.partition, result.offset, iso_time(result.timestamp), result.timestamp, UNSET
        )
    code = error.code
    reason = RecordError(STATUS_OF[code], error.message, code.name, int(code), code.retriable)
    return RecordWritten(result.partition, None, None, None, reason)


def record_texts(tp: TopicPartition, records: list[Record], reader: Reader) -> list[bytes]:
    """Each record as JSON by itself."""
    return [_encode(record) for record in _records(tp, records, reader)]


def _records(tp: TopicPartition, records: list[Record], reader: Reader) -> list[RecordRead]:
    topic, partition = tp
    embed, embed_header = reader.embed, reader.embed_header
    last_ms, iso = NO_TIMESTAMP, None
    read = []
    for record in records:
        ms = record.timestamp
        if ms != last_ms:
            last_ms, iso = ms, iso_time(ms)
        key, key_encoding = (None, None) if record.key is None else embed(record.key)
        value, value_encoding = (None, None) if record.value is None else embed(record.value)
        headers = []
        for name, data in record.headers:
            text, encoding = (None, None) if data is None else embed_header(data)
            headers.append(HeaderRead(name, text, encoding))  # type: ignore[arg-type]
        read.append(
            RecordRead(
                topic,
                partition,
                record.offset,
                iso,
                None if ms == NO_TIMESTAMP else ms,
                "LogAppendTime" if record.timestamp_type == LOG_APPEND_TIME else "CreateTime",
                key,
                key_encoding,
                value,
                value_encoding,
                headers,
            )
        )
    return read
