"""The lean routes that write records and read one partition, in the OpenAPI document.

As fully as FastAPI describes the others.
"""

from __future__ import annotations

import json
from typing import Any

from app.formats import Reader
from app.native import record_schemas
from app.native.schemas import TOPIC_NAME
from core.config import Config

TAGS = ["records"]
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": (
        "A name for this request, unique among those of its sender. The same request sent again with it, within 24 "
        "hours, writes nothing and gets the same answer, with `Idempotent-Replayed: true`; also when the server "
        "died in between. Another request with it is refused (422), and so is the same one while the first is under "
        "way (409). A request of which no record was taken does not use its key up."
    ),
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
    "example": "order-1724-paid",
}
REQUEST_ID = {
    "name": "X-Request-Id",
    "in": "header",
    "required": False,
    "description": "A name for this request in the answer and in the logs, up to 128 of A–Z a–z 0–9 . _ : / + = @ -; "
    "without one, or with another, it gets its own.",
    "schema": {"type": "string"},
}
_REPLAYED = {
    "Idempotent-Replayed": {
        "description": "`true` when an earlier request with the same `Idempotency-Key` wrote the records.",
        "schema": {"type": "string", "enum": ["true"]},
    }
}
RECORD = {"key": "user-1", "value": {"event": "signed-up"}, "headers": [{"name": "trace", "value": "7f"}]}
READ = {
    "topic": "orders", "partition": 0, "offset": 41,
    "timestamp": "2025-01-31T12:00:00.000Z", "timestamp_ms": 1738324800000, "timestamp_type": "CreateTime",
    "key": "user-1", "key_encoding": "utf8", "value": {"event": "signed-up"}, "value_encoding": "json",
    "headers": [{"name": "trace", "value": "7f", "encoding": "utf8"}],
}  # fmt: skip
_WRITTEN = {
    "topic": "orders",
    "records": [
        {"partition": 0, "offset": 41, "timestamp": "2025-01-31T12:00:00.000Z", "timestamp_ms": 1738324800000}
    ],
}
_LINES = {
    "type": "string",
    "contentMediaType": "application/x-ndjson",
    "contentSchema": {"$ref": "#/components/schemas/RecordWritten"},
}
_LINES_EXAMPLE = json.dumps(_WRITTEN["records"][0]) + "\n"
_REFUSED = {
    "partition": 7, "offset": None, "timestamp": None, "timestamp_ms": None,
    "error": {
        "status": 404, "detail": "Topic 'orders' has no partition 7; it has 3, counted from 0.",
        "kafka_error": "UNKNOWN_TOPIC_OR_PARTITION", "kafka_error_code": 3, "retriable": True,
    },
}  # fmt: skip


def schemas() -> dict[str, Any]:
    """The schemas of records by name."""
    found = record_schemas.schemas()
    # One bare record has a schema of its own; this one is the list.
    found["RecordsToWrite"] = {
        "title": "RecordsToWrite",
        "description": "Records to be written together.",
        "type": "object",
        "properties": {
            "records": {
                "type": "array",
                "minItems": 1,
                "items": {"$ref": "#/components/schemas/RecordToWrite"},
            }
        },
        "required": ["records"],
        "additionalProperties": False,
    }
    return dict(found)


def paths(prefix: str, config: Config) -> dict[str, dict[str, Any]]:
    """The operations of the lean routes by path and method."""
    partition = f"{prefix}/topics/{{topic}}/partitions/{{partition}}/records"
    return {
        f"{prefix}/topics/{{topic}}/records": {"post": _produce()},
        partition: {"get": _read(config)},
    }


def parameter(name: str, place: str, schema: dict[str, Any], text: str, **more: Any) -> dict[str, Any]:
    """A parameter of an operation."""
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": text,
        "schema": schema,
        **more,
    }


TOPIC = parameter("topic", "path", {"type": "string", **TOPIC_NAME}, "The topic's name.", example="orders")
PARTITION = parameter(
    "partition",
    "path",
    {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
    "The partition, from 0.",
    example=0,
)
ENCODING = parameter(
    "encoding", "query", {"type": "string", "enum": list(Reader.NAMES), "default": "auto"},
    "How keys and values shall stand in JSON: `auto` takes json, then utf8, then base64, for each by itself; `json` "
    "and `text` take base64 where theirs does not fit; `base64` is loss-free through every JSON library.",
)  # fmt: skip


def json_content(name: str, **more: Any) -> dict[str, Any]:
    """The content of an answer in JSON, by the name of its schema."""
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}, **more}}


def _produce_body() -> dict[str, Any]:
    either = {"oneOf": [{"$ref": f"#/components/schemas/{n}"} for n in ("RecordsToWrite", "RecordToWrite")]}
    bytes_body = {"schema": {"type": "string", "format": "binary"}}
    return {
        "required": True,
        "content": {
            "application/json": {
                "schema": either,
                "examples": {
                    "records": {"value": {"records": [RECORD]}},
                    "bare": {"value": RECORD},
                    "bytes": {"value": {"value": "3q2+7w==", "value_encoding": "base64"}},
                    "tombstone": {"value": {"key": "user-1", "value": None}},
                },
            },
            "application/x-ndjson": {
                "schema": {"type": "string"},
                "example": '{"key":"a","value":1}\n{"key":"b","value":2}\n',
            },
            "application/octet-stream": bytes_body,
            "*/*": bytes_body,
        },
    }


def _produce() -> dict[str, Any]:
    return {
        "tags": TAGS,
        "operationId": "produceRecords",
        "summary": "Write records",
        "description": (
            "JSON with `records` or one bare record, newline-delimited JSON with a record on each line, or any other "
            "media type: then the body is the value of one record, byte by byte, with `key`, `partition` and "
            "`timestamp` from the query and a header for each `X-Kafka-Header-<name>` line. The answer names a "
            "place for each record in the order given: 200 when all were taken, 207 when some were, else the refusal."
            "\n\n"
            "Newline-delimited JSON with `Accept: application/x-ndjson` is written and answered line by line, while "
            "the body is still being sent and for as long as the client likes: each line gets its own in the answer, "
            "in order, and a bad one harms no other. A client must read the answers while it sends. A line without "
            "`partition` is the last and says why the stream ends: `{\"problem\": …}` or `{\"bye\": …}`; what was "
            "not answered then was not written."
        ),
        "parameters": [
            TOPIC,
            parameter(
                "acks", "query", {"type": "string", "enum": ["0", "1", "all", "-1"], "default": "all"},
                "When the answer comes: `all` once the records are on disk, `1` and `0` once the operating system "
                "has them.",
            ),
            parameter("key", "query", {"type": "string"}, "Of a raw body: the record's key."),
            parameter(
                "key_encoding", "query", {"type": "string", "enum": ["utf8", "text", "base64", "binary"]},
                "Of a raw body: how the key stands in the query; default utf8.",
            ),
            parameter(
                "partition", "query", {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
                "Of a raw body: the partition.",
            ),
            parameter(
                "timestamp", "query", {"type": "string"},
                "Of a raw body: milliseconds since 1970, or an ISO 8601 time.",
            ),
            IDEMPOTENCY_KEY,
            REQUEST_ID,
        ],
        "requestBody": _produce_body(),
        "responses": {
            "200": {
                "description": "All records were taken; or the answers to a stream of lines.",
                "headers": _REPLAYED,
                "content": {
                    **json_content("RecordsWritten", example=_WRITTEN),
                    "application/x-ndjson": {"schema": _LINES, "example": _LINES_EXAMPLE},
                },
            },
            "207": {
                "description": "Some records were taken; the others have an `error`.",
                "headers": _REPLAYED,
                "content": json_content(
                    "RecordsWritten", example={**_WRITTEN, "records": [*_WRITTEN["records"], _REFUSED]}
                ),
            },
        },
    }  # fmt: skip


def _read(config: Config) -> dict[str, Any]:
    def number(low: int, high: int, default: int) -> dict[str, Any]:
        return {"type": "integer", "minimum": low, "maximum": high, "default": default}

    page = {
        "records": [READ], "next_offset": 42, "log_start_offset": 0, "high_watermark": 42, "caught_up": True,
    }  # fmt: skip
    return {
        "tags": TAGS,
        "operationId": "readRecords",
        "summary": "Read records of one partition",
        "description": (
            "Stateless: nothing is remembered between two reads. Go on at `next_offset`. With `wait_ms` a read "
            "at the end of the partition waits for the next record, and is answered empty when none came."
        ),
        "parameters": [
            TOPIC,
            PARTITION,
            parameter(
                "offset", "query", {"type": "string", "pattern": "^([0-9]+|earliest|latest)$"},
                "The first offset wanted: a number, `earliest`, which is the default, or `latest`.",
            ),
            parameter(
                "timestamp", "query", {"type": "string"},
                "Begin at the first record that is not older: milliseconds since 1970, or an ISO 8601 time. Not "
                "together with `offset`.",
            ),
            parameter("limit", "query", number(1, config.http_max_limit, config.http_default_limit),
                "Records at most."),
            parameter(
                "max_bytes", "query", number(1, config.http_max_read_bytes, config.http_default_read_bytes),
                "Bytes of record batches at most; at least one record always comes.",
            ),
            parameter(
                "wait_ms", "query", number(0, config.max_wait_ms, 0),
                "How long to wait for the first record when there is none.",
            ),
            ENCODING,
        ],
        "responses": {
            "200": {
                "description": "What there is from there on.",
                "content": json_content("RecordPage", example=page),
            }
        },
    }  # fmt: skip
