"""One record as a resource.

A record never changes, so its representations may be cached for good. Their ETag is strong: a digest of the
bytes themselves, because after a power loss another record may get the offset of one that was never on disk.

As bare bytes (`Accept: application/octet-stream`) the value is the body, and the other parts of the record are header
lines:

    X-Kafka-Topic, X-Kafka-Partition, X-Kafka-Offset, X-Kafka-Timestamp, X-Kafka-Timestamp-Type
    X-Kafka-Key               the key; no line when it is null
    X-Kafka-Header-<name>     one line for each header, in order
    X-Kafka-Null-Header       the name of a header whose value is null
    X-Kafka-Omitted           `key`, `headers`: there, but too large for header lines; read the record as JSON

Names and values in these lines are percent-encoded UTF-8 or bytes: everything but letters, digits and `-._~`;
in names the upper-case letters too, because HTTP does not keep case. So no byte of a record can end a line.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from urllib.parse import quote_from_bytes

from app.errors import Problem, from_broker, slug_of
from app.formats import Reader
from app.http.parameters import MAX_OFFSET, MAX_PARTITION
from app.http.request import Answer, Request, Scope, invalid_parameter, whole_number
from app.native.accept import choose
from app.native.record_json import one_record
from app.native.record_schemas import RecordQuery
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.facade import Facade
from core.records.record import LOG_APPEND_TIME, NO_TIMESTAMP, Record
from core.types import TopicPartition
from core.vocabulary.records import FetchRead

JSON, BYTES = b"application/json", b"application/octet-stream"
CACHE_FOR_GOOD = b"private, max-age=31536000, immutable"
# All lines about key and headers together: many clients and proxies take no more than 8 or 16 KiB of them.
_MAX_LINES = 6_000
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-._~")
_TOKEN = [b"%c" % byte if byte in _PLAIN else b"%%%02x" % byte for byte in range(256)]
_ATTACHED = (b"content-disposition", b"attachment")
_NOT_CACHED = {"cache-control": "no-store"}


class OneRecord:
    """The handler, over one broker."""

    def __init__(self, config: Config, acting: Callable[[Scope], Facade]) -> None:
        self._acting = acting
        self._readers = {name: Reader(name, config.http_max_json_depth) for name in Reader.NAMES}

    async def read(self, request: Request, segments: list[str]) -> Answer:
        """Read one record.

        A record never changes, so it may be cached for good. A record of a transaction is not there before the
        transaction has ended, and never if it was aborted. `Accept: application/octet-stream` gives its value as
        bare bytes, with key, headers and timestamp in `X-Kafka-*` header lines. 404 when it is not there yet, 410
        when it is no more: deleted, removed by compaction, or aborted (`next_offset` comes next).
        """
        tp = TopicPartition(segments[1], whole_number("partition", segments[3], 0, MAX_PARTITION))
        offset = whole_number("offset", segments[5], 0, MAX_OFFSET)
        media_type = choose(request.headers.get(b"accept", b""), (JSON, BYTES))
        encoding = request.query(RecordQuery.__struct_encode_fields__).get("encoding", "auto")
        if encoding not in self._readers:
            names = ", ".join(Reader.NAMES)
            raise invalid_parameter("encoding", f"encoding must be one of {names}, not {encoding[:40]!r}.")
        record = await self._find(self._acting(request.scope), tp, offset)
        lines: tuple[tuple[bytes, bytes], ...] = ()
        if media_type == BYTES:
            body = record.value or b""
            # A browser that is sent to this address must not show what a producer has written.
            lines = (_ATTACHED, *record_lines(tp, record))
            seen = b"\n".join(b"%b:%b" % line for line in lines) + b"\n\n" + body
        else:
            seen = body = one_record(tp, record, self._readers[encoding])
        etag = b'"%b"' % blake2b(media_type + b"\0" + seen, digest_size=16).hexdigest().encode()
        headers = ((b"etag", etag), (b"cache-control", CACHE_FOR_GOOD), (b"vary", b"accept"))
        if is_known(request.headers.get(b"if-none-match", b""), etag):
            return Answer(304, b"", media_type, headers)
        status = 204 if media_type == BYTES and record.value is None else 200
        return Answer(status, body, media_type, headers + lines)

    async def _find(self, broker: Facade, tp: TopicPartition, offset: int) -> Record:
        """The record at an offset. Raises Problem: 404 not yet, 410 no more."""
        try:
            await broker.bring((FetchRead(tp, offset, 1, committed=True),), max_bytes=1)
            result = broker.records.read_now(tp, offset, max_bytes=1, max_records=1)
        except BrokerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            raise _absent(from_broker(error, offset=offset), offset) from None
        if result.records and result.records[0].offset == offset:
            return result.records[0]
        start, high_watermark, _, _ = result.offsets
        following = result.records[0].offset if result.records else result.next_offset
        code = ErrorCode.OFFSET_OUT_OF_RANGE
        bounds: dict[str, object] = {
            "log_start_offset": start,
            "high_watermark": high_watermark,
        }
        if following <= offset:
            raise _absent(Problem(slug_of(code), "", status=416, code=code, extra=bounds), offset)
        raise Problem(
            slug_of(code),
            f"No record is at offset {offset}: compaction has removed it, its transaction was aborted, or it "
            f"is a transaction marker. Continue at offset {following}.",
            status=410,
            code=code,
            extra={**bounds, "next_offset": following},
            headers=_NOT_CACHED,
        )


def _absent(problem: Problem, offset: int) -> Problem:
    gone = problem.status == 410
    detail = f"The record at offset {offset} is " + ("no longer there." if gone else "not there yet.")
    return Problem(
        problem.kind,
        detail,
        status=410 if gone else 404,
        code=problem.code,
        extra=problem.extra,
        # A cache may keep both by itself; the record may come in a moment.
        headers=_NOT_CACHED,
    )


def is_known(if_none_match: bytes, etag: bytes) -> bool:
    """Whether an `If-None-Match` header names an ETag; weak ones compare like strong ones (RFC 9110, 13.1.2)."""
    if not if_none_match:
        return False
    return if_none_match.strip() == b"*" or etag in (
        one.strip().removeprefix(b"W/") for one in if_none_match.split(b",")
    )


def record_lines(tp: TopicPartition, record: Record) -> tuple[tuple[bytes, bytes], ...]:
    """What a record has beside its value, as header lines."""
    lines = [
        (b"x-kafka-topic", tp.topic.encode()),
        (b"x-kafka-partition", b"%d" % tp.partition),
        (b"x-kafka-offset", b"%d" % record.offset),
    ]
    if record.timestamp != NO_TIMESTAMP:
        kind = b"LogAppendTime" if record.timestamp_type == LOG_APPEND_TIME else b"CreateTime"
        lines += [(b"x-kafka-timestamp", b"%d" % record.timestamp), (b"x-kafka-timestamp-type", kind)]
    left = _MAX_LINES
    omitted = []
    if record.key is not None:
        if len(record.key) <= left and len(key := _escaped(record.key)) <= left:
            lines.append((b"x-kafka-key", key))
            left -= len(key)
        else:
            omitted.append(b"key")
    size = sum(len(name) + len(value or b"") + 20 for name, value in record.headers)
    headers = [_header_line(name, value) for name, value in record.headers] if size <= left else []
    if size <= left and sum(len(name) + len(value) for name, value in headers) <= left:
        lines += headers
    elif record.headers:
        omitted.append(b"headers")
    if omitted:
        lines.append((b"x-kafka-omitted", b", ".join(omitted)))
    return tuple(lines)


def _header_line(name: str, value: bytes | None) -> tuple[bytes, bytes]:
    # What is not UTF-8 in a log was read as U+FFFD, so there is nothing that could not be encoded.
    data = name.encode()
    if value is None:
        return b"x-kafka-null-header", _escaped(data)
    return b"x-kafka-header-" + b"".join([_TOKEN[byte] for byte in data]), _escaped(value)


def _escaped(data: bytes) -> bytes:
    return quote_from_bytes(data, safe="-._~").encode("ascii")
