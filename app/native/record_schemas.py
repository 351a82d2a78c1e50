"""The shapes of records in JSON: what is written, what is read, what a write answers.

msgspec structs, because these are the lean routes; their JSON schemas go into the OpenAPI document like those
of the pydantic models.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

_VALUE = "A string is stored as its text, any other JSON as its JSON text, null or nothing as null; see `{}`."
_ENCODING = "How it stands here: `json`, `utf8` (also `text`) or `base64` (also `binary`)."
EncodingName = Literal["json", "utf8", "text", "base64", "binary"]
_IGNORED = "Ignored, so that a record can be written as it was read."


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


class RecordsToWrite(RecordToWrite, forbid_unknown_fields=True, gc=False):
    """A produce body: `records`, or the members of one bare record."""

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


class RecordPage(Struct, gc=False):
    """The answer of a read. `next_offset` is where the next read goes on, also when `records` is empty."""

    records: list[RecordRead]
    next_offset: int
    log_start_offset: int
    high_watermark: int
    caught_up: Annotated[bool, Meta(description="Whether there was nothing more to read.")]


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


class RecordsWritten(Struct, gc=False):
    """The answer of a write."""

    topic: str
    records: list[RecordWritten]


def schemas() -> dict[str, Any]:
    """The JSON schemas of these shapes by name, for the OpenAPI document."""
    _, components = msgspec.json.schema_components(
        [RecordsToWrite, RecordToWrite, RecordPage, RecordsWritten],
        ref_template="#/components/schemas/{name}",
    )
    return components
