"""Merged reads, streams and single records in the OpenAPI document."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from app.native.record_schemas import RecordRead
from app.openapi.records import ENCODING, PARTITION, READ, TAGS, TOPIC, json_content, parameter
from core.config import Config

_CURSOR = "1.3f2a9c01b7d4.0.2a.0.15.8f3e21aa"
_REF = "#/components/schemas/{name}"


class MergedPage(Struct, gc=False):
    """The answer of a merged read."""

    records: list[RecordRead]
    next_cursor: Annotated[str, Meta(description="Where the next read goes on; opaque. Keep it as it is.")]
    caught_up: Annotated[bool, Meta(description="Whether there was nothing more to read.")]


class StreamedRecord(RecordRead, gc=False):
    """A line of a stream of records: the record, and the cursor behind it."""

    cursor: str


def schemas() -> dict[str, Any]:
    """The schemas of merged reads by name."""
    _, found = msgspec.json.schema_components([MergedPage, StreamedRecord], ref_template=_REF)
    found["HeaderFilter"] = {
        "title": "HeaderFilter",
        "description": "The values that headers must have, by `header.<name>`.",
        "type": "object",
        "propertyNames": {"pattern": "^header\\..+$"},
        "additionalProperties": {"type": "string"},
    }
    return dict(found)


def paths(prefix: str, config: Config) -> dict[str, dict[str, Any]]:
    """The operations by path and method."""
    return {
        f"{prefix}/topics/{{topic}}/records": {"get": _read_merged(config)},
        f"{prefix}/topics/{{topic}}/partitions/{{partition}}/records/{{offset}}": {"get": _read_one()},
    }


def _whole(low: int, high: int, **more: Any) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high, **more}


def _text(**more: Any) -> dict[str, Any]:
    return {"type": "string", **more}


def filter_parameters() -> list[dict[str, Any]]:
    """The parameters of a filter by key and headers."""
    return [
        parameter("key", "query", _text(), "Only records whose key is exactly this."),
        parameter("key_prefix", "query", _text(), "Only records whose key begins so. Not together with `key`."),
        parameter(
            "key_encoding", "query", _text(enum=["utf8", "text", "base64", "binary"]),
            "How `key` and `key_prefix` stand in the query; default utf8.",
        ),
        parameter(
            "header_filter", "query",
            {"$ref": _REF.format(name="HeaderFilter")},
            "`header.<name>=<value>`, as often as wanted: only records that have each of these headers with exactly "
            "this value. Names are case-sensitive.",
            style="form", explode=True, example={"header.trace": "7f"},
        ),
    ]  # fmt: skip


def _where_parameters() -> list[dict[str, Any]]:
    return [
        parameter(
            "cursor", "query", _text(),
            "Go on where an earlier answer ended: `next_cursor`, the `id` of an event, the `cursor` of a line. It "
            "knows its partitions; those that the topic has got since begin at their first record.",
        ),
        parameter(
            "from", "query", _text(),
            "Where to begin without a cursor: `earliest`, which is the default, `latest`, or a time (milliseconds "
            "since 1970 or ISO 8601), that is at the first record of each partition that is not older.",
        ),
        parameter(
            "offsets", "query", _text(pattern=r"^[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*$"),
            "Where to begin without a cursor in some partitions, like `0:17,2:4`: partition 0 at offset 17, "
            "partition 2 at 4; the others at `from`. 410 below the start of a partition, 416 above its end, each "
            "with a `next_cursor`.",
        ),
        parameter(
            "partitions", "query", _text(pattern=r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"),
            "Only these partitions, like `0,2,5-7`; without it all, also those that the topic gets later.",
        ),
        parameter(
            "last_event_id", "query", _text(),
            "In streams: the same as the `Last-Event-ID` header, for EventSource polyfills that cannot set it.",
        ),
        parameter(
            "Last-Event-ID", "header", _text(),
            "In streams: what a browser sends when it connects again. It wins over all that stands in the URL.",
        ),
    ]  # fmt: skip


def _how_much_parameters(config: Config) -> list[dict[str, Any]]:
    limit = _whole(1, config.http_max_limit, default=config.http_default_limit)
    size = _whole(1, config.http_max_read_bytes, default=config.http_default_read_bytes)
    return [
        parameter(
            "limit", "query", limit,
            "Records at most. Lines of NDJSON end after so many, without an upper limit; not in events.",
        ),
        parameter(
            "max_bytes", "query", size,
            "In pages: bytes of records in the answer at most; at least one record always comes.",
        ),
        parameter(
            "wait_ms", "query", _whole(0, config.max_wait_ms),
            "In pages: how long to wait for the first record when there is none; default 0. Lines of NDJSON end when "
            "no record came for so long; without it they go on for ever. Not in events.",
        ),
        ENCODING,
    ]  # fmt: skip


_ABOUT = """The records of all partitions: in the order of offsets within each partition, in turn between them. \
`Accept` chooses one of three forms, which share their parameters and cursors.

`application/json`: a page. Go on with `next_cursor`. `caught_up: false` on an empty page means that a filter has \
found nothing yet.

`text/event-stream`: server-sent events for the browser's EventSource, without end. The `id` of each event is the \
cursor behind it, so that a reconnect with `Last-Event-ID` misses nothing and repeats nothing. Events: `record` \
(data: the record), `caught_up` (all that was there has been sent), `problem` (a problem document: records that are \
lost to retention or cannot be read; the stream goes on behind them if it can), `bye` (the server stops; `retry` \
says when to come back). A comment comes every {comment} s. A slow reader loses nothing: the log is its buffer.

`application/x-ndjson`: a line for each record, with its `cursor` as one more member. A line without an `offset` is \
about the stream: `{{"problem": …}}` or `{{"bye": …}}`, each with a `cursor`. Empty lines keep the connection open.

A cursor below the start of a partition is refused with 410 and a `next_cursor` to go on with, except that of a \
reconnect, which is told by an event, because browsers hide refusals from their pages."""


def _read_merged(config: Config) -> dict[str, Any]:
    page = {"records": [READ], "next_cursor": _CURSOR, "caught_up": True}
    event = f"id: {_CURSOR}\nevent: record\ndata: {json.dumps(READ)}\n\n"
    line = json.dumps({**READ, "cursor": _CURSOR}) + "\n"
    of_lines = {"$ref": _REF.format(name="StreamedRecord")}
    lines = _text(contentMediaType="application/x-ndjson", contentSchema=of_lines)
    no_store = {"Cache-Control": {"description": "`no-store`.", "schema": _text()}}
    return {
        "tags": TAGS,
        "operationId": "readTopicRecords",
        "summary": "Read records of all partitions, as a page or a stream",
        "description": _ABOUT.format(comment=config.stream_comment_ms // 1000),
        "parameters": [
            TOPIC,
            *_where_parameters(),
            *_how_much_parameters(config),
            *filter_parameters(),
        ],
        "responses": {
            "200": {
                "description": "What there is from there on.",
                "headers": no_store,
                "content": {
                    **json_content("MergedPage", example=page),
                    "text/event-stream": {"schema": _text(), "example": event},
                    "application/x-ndjson": {"schema": lines, "example": line},
                },
            }
        },
    }


def _read_one() -> dict[str, Any]:
    caching = {
        "ETag": {"description": "Strong; of this representation.", "schema": _text()},
        "Cache-Control": {"description": "`immutable`: it may be kept for good.", "schema": _text()},
    }
    lines = {
        name: {"description": text, "schema": _text()}
        for name, text in {
            "X-Kafka-Key": "With bare bytes: the key, percent-encoded; absent when it is null.",
            "X-Kafka-Header-{name}": "With bare bytes: a header, its name and value percent-encoded.",
            "X-Kafka-Null-Header": "With bare bytes: the name of a header whose value is null.",
            "X-Kafka-Timestamp": "With bare bytes: milliseconds since 1970.",
            "X-Kafka-Timestamp-Type": "With bare bytes: CreateTime or LogAppendTime.",
            "X-Kafka-Omitted": "With bare bytes: `key`, `headers`, where they are too large for header lines.",
        }.items()
    }
    return {
        "tags": TAGS,
        "operationId": "getRecord",
        "summary": "Read one record",
        "description": (
            "A record never changes, so it may be cached for good. `Accept: application/octet-stream` gives its "
            "value as bare bytes, with key, headers and timestamp in `X-Kafka-*` header lines. 404 when it "
            "is not there yet, 410 when it is no more: deleted, or removed by compaction (`next_offset` comes next)."
        ),
        "parameters": [
            TOPIC,
            PARTITION,
            parameter(
                "offset", "path", {"type": "integer", "minimum": 0}, "The record's offset.", example=41
            ),
            ENCODING,
            parameter("If-None-Match", "header", _text(), "The ETags that are known."),
        ],
        "responses": {
            "200": {
                "description": "The record.",
                "headers": caching | lines,
                "content": {
                    **json_content("RecordRead", example=READ),
                    "application/octet-stream": {"schema": _text(format="binary")},
                },
            },
            "204": {
                "description": "The value is null, and its bare bytes were asked for.",
                "headers": caching | lines,
            },
            "304": {"description": "Not modified.", "headers": caching},
        },
    }
