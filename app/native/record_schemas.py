"""The shapes of records in JSON: what is written, what is read, what a write answers.

msgspec structs, because these are the lean routes; their JSON schemas go into the OpenAPI document like those
of the pydantic models.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from app.http.parameters import MAX_PARTITION, RequestId
from core.config import Config

_LIMITS = Config()

_VALUE = "A string is stored as its text, any other JSON as its JSON text, null or nothing as null; see `{}`."
_ENCODING = "Its form here: `json`, `utf8` (also `text`) or `base64` (also `binary`)."
EncodingName = Literal["json", "utf8", "text", "base64", "binary"]
_IGNORED = "Ignored, so that a record can be written as it was read."
_RECORD = {"key": "user-1", "value": {"event": "signed-up"}, "headers": [{"name": "trace", "value": "7f"}]}
_READ = {
    "topic": "orders", "partition": 0, "offset": 41,
    "timestamp": "2025-01-31T12:00:00.000Z", "timestamp_ms": 1738324800000, "timestamp_type": "CreateTime",
    "key": "user-1", "key_encoding": "utf8", "value": {"event": "signed-up"}, "value_encoding": "json",
    "headers": [{"name": "trace", "value": "7f", "encoding": "utf8"}],
}  # fmt: skip
_WRITTEN = {
    "partition": 0,
    "offset": 41,
    "timestamp": "2025-01-31T12:00:00.000Z",
    "timestamp_ms": 1738324800000,
}
_REFUSED = {
    "partition": 7, "offset": None, "timestamp": None, "timestamp_ms": None,
    "error": {
        "status": 404, "detail": "Topic 'orders' has no partition 7; it has 3, counted from 0.",
        "kafka_error": "UNKNOWN_TOPIC_OR_PARTITION", "kafka_error_code": 3, "retriable": True,
    },
}  # fmt: skip
_CURSOR = "1.3f2a9c01b7d4.0.2a.0.15.8f3e21aa"


class HeaderToWrite(Struct, forbid_unknown_fields=True, gc=False):
    """A header of a record to be written."""

    name: Annotated[str, Meta(description="The header's name; it may occur more than once.")]
    value: Annotated[Raw | UnsetType, Meta(description=_VALUE.format("encoding"))] = UNSET
    encoding: Annotated[EncodingName | None, Meta(description=_ENCODING)] = None


class RecordToWrite(Struct, forbid_unknown_fields=True, gc=False):
    """A record to be written; the same shape in which records are read."""

    key: Annotated[Raw | UnsetType, Meta(description=_VALUE.format("key_encoding"))] = UNSET
    key_encoding: Annotated[EncodingName | None, Meta(description=_ENCODING)] = None
    value: Annotated[Raw | UnsetType, Meta(description=_VALUE.format("value_encoding"))] = UNSET
    value_encoding: Annotated[EncodingName | None, Meta(description=_ENCODING)] = None
    headers: list[HeaderToWrite] | UnsetType | None = UNSET
    partition: Annotated[
        Annotated[int, Meta(ge=0, le=2**31 - 1)] | UnsetType | None,
        Meta(description="The partition; without it the key decides (murmur2, as the Java client)."),
    ] = UNSET
    timestamp: Annotated[
        int | str | UnsetType | None,
        Meta(
            description="Milliseconds since 1970, or an ISO 8601 time (UTC without an offset); default now."
        ),
    ] = UNSET
    timestamp_ms: Annotated[
        int | UnsetType | None, Meta(description="The same in milliseconds, under another name.")
    ] = UNSET
    topic: Annotated[str | UnsetType | None, Meta(description=_IGNORED)] = UNSET
    offset: Annotated[int | UnsetType | None, Meta(description=_IGNORED)] = UNSET
    timestamp_type: Annotated[str | UnsetType | None, Meta(description=_IGNORED)] = UNSET
    cursor: Annotated[str | UnsetType | None, Meta(description=_IGNORED)] = UNSET

    EXAMPLES: ClassVar[list[Any]] = [
        _RECORD,
        {"value": "3q2+7w==", "value_encoding": "base64"},
        {"key": "user-1", "value": None},
    ]


class RecordsToWrite(Struct, forbid_unknown_fields=True):
    """Records to be written together."""

    records: Annotated[list[RecordToWrite], Meta(min_length=1)]

    EXAMPLES: ClassVar[list[Any]] = [{"records": [_RECORD]}]


NdjsonRecords = Annotated[str, Meta(examples=['{"key":"a","value":1}\n{"key":"b","value":2}\n'])]


class RecordsOrRecord(RecordToWrite, forbid_unknown_fields=True, gc=False):
    """A produce body as it is decoded: `records`, or the members of one bare record."""

    records: list[RecordToWrite] | UnsetType = UNSET


class HeaderRead(Struct, gc=False):
    """A header as read."""

    name: str
    value: str | None
    encoding: Annotated[Literal["utf8", "base64"] | None, Meta(description="None when the value is null.")]


class RecordRead(Struct, gc=False):
    """A record as read. `timestamp` and `timestamp_ms` are null where the record has none."""

    topic: str
    partition: int
    offset: int
    timestamp: Annotated[str | None, Meta(description="UTC; null where the record has none.")]
    timestamp_ms: int | None
    timestamp_type: Literal["CreateTime", "LogAppendTime"]
    key: Annotated[Any, Meta(description="In the encoding that `key_encoding` names.")]
    key_encoding: Literal["json", "utf8", "base64"] | None
    value: Annotated[
        Any, Meta(description="In the encoding that `value_encoding` names; null is a tombstone.")
    ]
    value_encoding: Literal["json", "utf8", "base64"] | None
    headers: list[HeaderRead]

    EXAMPLES: ClassVar[list[Any]] = [_READ]


CaughtUp = Annotated[bool, Meta(description="Whether there was nothing more to read.")]
Events = Annotated[str, Meta(examples=[f"id: {_CURSOR}\nevent: record\ndata: {json.dumps(_READ)}\n\n"])]


class RecordPage(Struct, gc=False):
    """The answer of a read. `next_offset` is where the next read continues, also when `records` is empty.

    Reads end at `last_stable_offset`, unless they are `read_uncommitted`: those end at `high_watermark`.
    """

    records: list[RecordRead]
    next_offset: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: Annotated[
        int,
        Meta(
            description="Below it no transaction is open. It is the high watermark, if none is open in the partition."
        ),
    ]
    caught_up: CaughtUp

    EXAMPLES: ClassVar[list[Any]] = [
        {
            "records": [_READ],
            "next_offset": 42,
            "log_start_offset": 0,
            "high_watermark": 42,
            "last_stable_offset": 42,
            "caught_up": True,
        }
    ]


class MergedPage(Struct, gc=False):
    """The answer of a merged read."""

    records: list[RecordRead]
    next_cursor: Annotated[str, Meta(description="Where the next read continues; opaque. Keep it as it is.")]
    caught_up: CaughtUp

    EXAMPLES: ClassVar[list[Any]] = [{"records": [_READ], "next_cursor": _CURSOR, "caught_up": True}]


class StreamedRecord(RecordRead, gc=False):
    """A line of a stream of records: the record, and the cursor after it."""

    cursor: str

    EXAMPLES: ClassVar[list[Any]] = [{**_READ, "cursor": _CURSOR}]


class RecordError(Struct, gc=False, omit_defaults=True):
    """Why one record of several was refused."""

    status: int
    detail: str
    kafka_error: str
    kafka_error_code: int
    retriable: bool


class RecordWritten(Struct, gc=False):
    """Where one record is now, or why it was refused; in the order of the request."""

    partition: int | None
    offset: int | None
    timestamp: str | None
    timestamp_ms: int | None
    error: RecordError | UnsetType = UNSET

    EXAMPLES: ClassVar[list[Any]] = [_WRITTEN]


class RecordsWritten(Struct, gc=False):
    """The answer of a write."""

    topic: str
    records: list[RecordWritten]

    EXAMPLES: ClassVar[list[Any]] = [{"topic": "orders", "records": [_WRITTEN]}]


SomeWritten = Annotated[RecordsWritten, Meta(examples=[{"topic": "orders", "records": [_WRITTEN, _REFUSED]}])]


# --- parameters ---------------------------------------------------------------------------------------------

Encoding = Annotated[
    Literal["auto", "json", "text", "utf8", "base64"],
    Meta(
        description="The encoding of keys and values in JSON: `auto` takes json, then utf8, then base64, for each by "
        "itself; `json` and `text` take base64 where theirs does not fit; `base64` is loss-free through every JSON "
        "library."
    ),
]
IsolationLevel = Annotated[
    Literal["read_committed", "read_uncommitted"],
    Meta(
        description="`read_committed` reads up to the first record of an open transaction, without the records of "
        "aborted ones. `read_uncommitted` reads both; they may be aborted later, or are already."
    ),
]
_QueryEncoding = Literal["utf8", "text", "base64", "binary"]
_Count = Annotated[int, Meta(ge=1, le=_LIMITS.http_max_limit)]
_Size = Annotated[int, Meta(ge=1, le=_LIMITS.http_max_read_bytes)]
_Wait = Annotated[int, Meta(ge=0, le=_LIMITS.max_wait_ms)]


class ProduceQuery(Struct):
    """The query of a write."""

    acks: Annotated[
        Literal["0", "1", "all", "-1"],
        Meta(
            description="When the answer is sent: `all` once the records are on disk, `1` and `0` once the "
            "operating system has them."
        ),
    ] = "all"
    key: Annotated[str | UnsetType, Meta(description="Of a raw body: the record's key.")] = UNSET
    key_encoding: Annotated[
        _QueryEncoding | UnsetType,
        Meta(description="For a raw body: the encoding of the key in the query; default utf8."),
    ] = UNSET
    partition: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_PARTITION)] | UnsetType,
        Meta(description="Of a raw body: the partition."),
    ] = UNSET
    timestamp: Annotated[
        str | UnsetType, Meta(description="Of a raw body: milliseconds since 1970, or an ISO 8601 time.")
    ] = UNSET


class KeyHeaders(Struct):
    """The header lines of a request that writes once."""

    idempotency_key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=255, pattern="^[ -~]+$")] | UnsetType,
        Meta(
            description="A name for this request, unique among those of its sender. The same request sent again with "
            "it, within 24 hours, writes nothing and gets the same answer, with `Idempotent-Replayed: true`; also "
            "when the server died in between. Another request with it is refused (422), and so is the same one while "
            "the first is under way (409). A request of which no record was taken does not use its key up.",
            examples=["order-1724-paid"],
        ),
    ] = field(default=UNSET, name="Idempotency-Key")
    request_id: RequestId = field(default=UNSET, name="X-Request-Id")


class ProduceHeaders(KeyHeaders):
    """The header lines of a write of records."""

    transaction: Annotated[
        Annotated[str, Meta(min_length=1, max_length=1100)] | UnsetType,
        Meta(description="The id of a transaction of several requests, from `POST /transactions:begin`."),
    ] = field(default=UNSET, name="Transaction")


class WrittenHeaders(Struct):
    """Header lines of the answer of a write."""

    replayed: Annotated[
        Literal["true"],
        Meta(description="`true` when an earlier request with the same `Idempotency-Key` wrote the records."),
    ] = field(name="Idempotent-Replayed")


class ReadQuery(Struct):
    """The query of a read of one partition."""

    offset: Annotated[
        Annotated[str, Meta(pattern="^([0-9]+|earliest|latest)$")] | UnsetType,
        Meta(description="The first offset wanted: a number, `earliest`, which is the default, or `latest`."),
    ] = UNSET
    timestamp: Annotated[
        str | UnsetType,
        Meta(
            description="Begin at the first record that is not older: milliseconds since 1970, or an ISO 8601 time. "
            "Not together with `offset`."
        ),
    ] = UNSET
    limit: Annotated[_Count, Meta(description="Records at most.")] = _LIMITS.http_default_limit
    max_bytes: Annotated[
        _Size, Meta(description="Bytes of record batches at most; at least one record always comes.")
    ] = _LIMITS.http_default_read_bytes
    wait_ms: Annotated[
        _Wait, Meta(description="How long to wait for the first record when there is none.")
    ] = 0
    encoding: Encoding = "auto"
    isolation_level: IsolationLevel = "read_committed"


class RecordQuery(Struct):
    """The query of a read of one record."""

    encoding: Encoding = "auto"


class KnownTags(Struct):
    """The header line of a read of one record."""

    if_none_match: Annotated[str | UnsetType, Meta(description="The ETags that are known.")] = field(
        default=UNSET, name="If-None-Match"
    )


class CachedHeaders(Struct):
    """Header lines of a record that has not changed."""

    etag: Annotated[str, Meta(description="Strong; of this representation.")] = field(name="ETag")
    cache_control: Annotated[str, Meta(description="`immutable`: it may be kept for good.")] = field(
        name="Cache-Control"
    )


class RecordHeaders(CachedHeaders):
    """Header lines of a record.

    An answer with the bare bytes of a value has its key, headers and timestamp in them.
    """

    key: Annotated[
        str, Meta(description="With bare bytes: the key, percent-encoded; absent when it is null.")
    ] = field(name="X-Kafka-Key")
    header: Annotated[
        str, Meta(description="With bare bytes: a header, its name and value percent-encoded.")
    ] = field(name="X-Kafka-Header-{name}")
    null_header: Annotated[
        str, Meta(description="With bare bytes: the name of a header whose value is null.")
    ] = field(name="X-Kafka-Null-Header")
    timestamp: Annotated[str, Meta(description="With bare bytes: milliseconds since 1970.")] = field(
        name="X-Kafka-Timestamp"
    )
    timestamp_type: Annotated[str, Meta(description="With bare bytes: CreateTime or LogAppendTime.")] = field(
        name="X-Kafka-Timestamp-Type"
    )
    omitted: Annotated[
        str,
        Meta(description="With bare bytes: `key`, `headers`, where they are too large for header lines."),
    ] = field(name="X-Kafka-Omitted")


class MergedQuery(Struct):
    """The query of a merged read or a stream. `header_filter` means the parameters named `header.<name>`."""

    cursor: Annotated[
        str | UnsetType,
        Meta(
            description="Continue where an earlier answer ended: `next_cursor`, the `id` of an event, the `cursor` "
            "of a line. It has its partitions; newer ones begin at their first record."
        ),
    ] = UNSET
    from_: Annotated[
        str | UnsetType,
        Meta(
            description="Where to begin without a cursor: `earliest`, which is the default, `latest`, or a time "
            "(milliseconds since 1970 or ISO 8601), that is at the first record of each partition that is not older."
        ),
    ] = field(default=UNSET, name="from")
    offsets: Annotated[
        Annotated[str, Meta(pattern=r"^[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*$")] | UnsetType,
        Meta(
            description="Where to begin without a cursor in some partitions, like `0:17,2:4`: partition 0 at offset "
            "17, partition 2 at 4; the others at `from`. 410 below the start of a partition, 416 above its end, each "
            "with a `next_cursor`."
        ),
    ] = UNSET
    partitions: Annotated[
        Annotated[str, Meta(pattern=r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$")] | UnsetType,
        Meta(
            description="Only these partitions, like `0,2,5-7`; without it all, also those that the topic gets later."
        ),
    ] = UNSET
    wait_ms: Annotated[
        _Wait | UnsetType,
        Meta(
            description="In pages: how long to wait for the first record when there is none; default 0. NDJSON "
            "ends when no record has come for this long; without it, it has no end. Not in events."
        ),
    ] = UNSET
    limit: Annotated[
        _Count,
        Meta(
            description="Records at most. NDJSON ends after this many, without an upper limit; not in events."
        ),
    ] = _LIMITS.http_default_limit
    max_bytes: Annotated[
        _Size,
        Meta(
            description="In pages: bytes of records in the answer at most; at least one record always comes."
        ),
    ] = _LIMITS.http_default_read_bytes
    encoding: Encoding = "auto"
    isolation_level: IsolationLevel = "read_committed"
    last_event_id: Annotated[
        str | UnsetType,
        Meta(
            description="In streams: the same as the `Last-Event-ID` header, for EventSource polyfills that cannot "
            "set it."
        ),
    ] = UNSET
    key: Annotated[str | UnsetType, Meta(description="Only records whose key is exactly this.")] = UNSET
    key_prefix: Annotated[
        str | UnsetType, Meta(description="Only records whose key begins so. Not together with `key`.")
    ] = UNSET
    key_encoding: Annotated[
        _QueryEncoding | UnsetType,
        Meta(description="The encoding of `key` and `key_prefix` in the query; default utf8."),
    ] = UNSET
    header_filter: Annotated[
        dict[Annotated[str, Meta(pattern=r"^header\..+$")], str] | UnsetType,
        Meta(
            title="HeaderFilter",
            description="`header.<name>=<value>`, as often as wanted: only records that have each of these headers "
            "with exactly this value. Names are case-sensitive.",
            examples=[{"header.trace": "7f"}],
        ),
    ] = UNSET


class StreamHeaders(Struct):
    """The header line by which a browser continues a stream."""

    last_event_id: Annotated[
        str | UnsetType,
        Meta(
            description="In streams: what a browser sends when it connects again. It has precedence over the "
            "parameters of the URL."
        ),
    ] = field(default=UNSET, name="Last-Event-ID")


class NotStored(Struct):
    """The header line of an answer that no cache keeps."""

    cache_control: Annotated[str, Meta(description="`no-store`.")] = field(name="Cache-Control")
