"""POST of records: to a topic, or to one partition of it.

The client's JSON bytes are kept, as on the native surface: keys and values are cut out of the body and turned into
bytes by the embedded format that the media type names. Records that the broker refuses are listed one by one, in an
answer of 200 (Karapace: 422); what cannot be read refuses the whole request.

A missing topic is reported before errors of the media types, and before all other errors if no topic may be created.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

import msgspec
from msgspec import UNSET

from app.errors import Problem
from app.formats import FormatError, check_depth, to_bytes
from app.http.json_body import check_charset
from app.http.record_limit import RecordLimit
from app.http.request import Answer, Request, Scope
from app.rest_v2.bodies import decode, decoder_of
from app.rest_v2.dialect import Dialect
from app.rest_v2.errors import (
    KEY_SCHEMA_MISSING,
    VALUE_SCHEMA_MISSING,
    ProxyError,
    code_of_record,
    unprocessable,
)
from app.rest_v2.media import FORMATS, accept_of, embedded_format
from app.rest_v2.schemas import PartitionOffset, ProduceRequest, ProduceResponse, ProxyHeader
from app.rest_v2.topics import partition_number
from core.config import Config
from core.errors import ErrorCode
from core.facade import Facade
from core.records.record import Headers, NewRecord
from core.vocabulary.records import ProduceResult
from core.vocabulary.topic import check_partition

_decoder = decoder_of(ProduceRequest)
_encode = msgspec.json.Encoder().encode
_MAX_TIMESTAMP = 2**63 - 1


class ProduceRoutes:
    """The handlers, over one broker."""

    def __init__(self, config: Config, dialect: Dialect, acting: Callable[[Scope], Facade]) -> None:
        max_depth = config.http_max_json_depth
        self._ways: dict[str, Callable[[bytes], bytes | None]] = {
            name: partial(_string_to_bytes, name, max_depth) for name in FORMATS
        }
        self._ways["json"] = partial(_json_to_bytes, max_depth)
        self._limit = RecordLimit(config.http_max_records)
        self._dialect = dialect
        self._acting = acting
        self._creates_topics = config.auto_create_topics

    async def to_topic(self, request: Request, segments: list[str]) -> Answer:
        """Write records to a topic.

        The media type names the embedded format of keys and values: any JSON, `binary` for base64, or `text`;
        `application/json` is taken for JSON, unless another dialect is set; `application/octet-stream` is JSON with
        keys and values in base64. The answer has one entry for each record, in order; the entry of a record that was
        refused has an `error_code`.
        """
        media_type, records = await self._read(request, segments[1])
        return self._answer(
            await self._acting(request.scope).records.produce(segments[1], records), media_type
        )

    async def to_partition(self, request: Request, segments: list[str]) -> Answer:
        """Write records to one partition.

        The media type names the embedded format of keys and values: any JSON, `binary` for base64, or `text`;
        `application/json` is taken for JSON, unless another dialect is set; `application/octet-stream` is JSON with
        keys and values in base64. The answer has one entry for each record, in order; the entry of a record that was
        refused has an `error_code`.
        """
        partition = partition_number(segments[3])
        media_type, records = await self._read(request, segments[1], partition)
        if any(r.partition is not None and r.partition != partition for r in records):
            raise unprocessable("A record names another partition than the path.")
        broker = self._acting(request.scope)
        check_partition(await broker.topics.get_or_create(segments[1]), partition)
        return self._answer(
            await broker.records.produce(segments[1], records, partition=partition), media_type
        )

    # --- the body ------------------------------------------------------------------------------------------

    async def _read(
        self, request: Request, topic: str, partition: int | None = None
    ) -> tuple[bytes, list[NewRecord]]:
        """The media type to answer with, and the records."""
        if not self._creates_topics:
            await self._require(request, topic, partition)
        try:
            media_type, embedded = self._media_types(request)
        except Problem:
            await self._require(request, topic, partition)
            raise
        if embedded not in FORMATS:
            # Such a request is refused in the end: it creates no topic.
            await self._require(request, topic, partition)
        body = await request.body()
        self._limit.check(body)
        shape = decode(_decoder, body, self._dialect.wrong_type_status)
        if embedded not in FORMATS:
            _refuse_schema_format(embedded, shape)
        if not shape.records:
            raise unprocessable("The list of records is empty.")
        return media_type, self._convert(shape, embedded)

    async def _require(self, request: Request, topic: str, partition: int | None) -> None:
        """Raise UNKNOWN_TOPIC_OR_PARTITION unless the topic, and the partition if one is given, exists."""
        broker = self._acting(request.scope)
        await broker.look((topic,))
        info = broker.topics.get(topic)
        if partition is not None:
            check_partition(info, partition)

    def _media_types(self, request: Request) -> tuple[bytes, str]:
        """The media type to answer with, and the embedded format of the records. Raises Problem (406, 415)."""
        media_type = accept_of(request.headers.get(b"accept", b"")).any()
        content_type = request.headers.get(b"content-type", b"")
        embedded = embedded_format(content_type) or self._dialect.json_format
        if b";" in content_type:
            check_charset(content_type.partition(b";")[2])
        return media_type, embedded

    def _convert(self, shape: ProduceRequest, embedded: str) -> list[NewRecord]:
        convert = self._ways[embedded]
        records = []
        for index, item in enumerate(shape.records):
            key = value = partition = timestamp = None
            headers: Headers = ()
            field = "key"
            try:
                if item.key is not UNSET:
                    key = convert(bytes(item.key))
                field = "value"
                if item.value is not UNSET:
                    value = convert(bytes(item.value))
                elif item.key is UNSET:
                    raise unprocessable(f"Record {index} has neither a key nor a value.")
            except FormatError as error:
                where = f"Record {index}, field {field!r}"
                raise ProxyError(
                    *self._dialect.conversion, f"{where}: {error} (embedded format {embedded})."
                ) from None
            if item.partition is not UNSET:
                partition = item.partition
            if item.timestamp is not UNSET:
                timestamp = _timestamp(item.timestamp, index)
            if item.headers is not UNSET:
                headers = tuple(self._header(one, index) for one in item.headers or ())
            records.append(NewRecord(key, value, headers, timestamp, partition))
        return records

    def _header(self, header: ProxyHeader, index: int) -> tuple[str, bytes | None]:
        name = header.name if header.name is not UNSET else header.key
        if name is UNSET or (header.name is not UNSET and header.key is not UNSET):
            raise unprocessable(f"Record {index}: a header has its name under 'name' or under 'key'.")
        if header.value is None:
            return name, None
        try:
            return name, binascii.a2b_base64(header.value.encode("ascii"), strict_mode=True)
        except (binascii.Error, UnicodeEncodeError):
            raise ProxyError(
                *self._dialect.conversion,
                f"Record {index}: the value of the header {name[:60]!r} is not base64.",
            ) from None

    # --- the answer ----------------------------------------------------------------------------------------

    def _answer(self, results: Sequence[ProduceResult], media_type: bytes) -> Answer:
        if any(result.error is not None for result in results):
            return Answer(self._dialect.refused_status, _encode(self._with_refusals(results)), media_type)
        nulls = "" if self._dialect.sparse else ',"error_code":null,"error":null'
        entries = ",".join([f'{{"partition":{r.partition},"offset":{r.offset}{nulls}}}' for r in results])
        body = f'{{"offsets":[{entries}],"key_schema_id":null,"value_schema_id":null}}'
        return Answer(200, body.encode(), media_type)

    def _with_refusals(self, results: Sequence[ProduceResult]) -> ProduceResponse:
        """The entries of the records; where the dialect has it so, one refusal if every record was too large."""
        errors = [result.error for result in results]
        if self._dialect.too_large_refuses and all(
            error is not None and error.code is ErrorCode.MESSAGE_TOO_LARGE for error in errors
        ):
            assert errors[0] is not None
            raise errors[0]
        return ProduceResponse([self._entry(result) for result in results])

    def _entry(self, result: ProduceResult) -> PartitionOffset:
        """The entry of one record among others, of which some were refused."""
        absent = UNSET if self._dialect.sparse else None
        if result.error is None:
            return PartitionOffset(result.partition, result.offset, absent, absent)
        code = code_of_record(result.error, self._dialect.record_codes)
        return PartitionOffset(absent, absent, code, self._dialect.record_error(result.error))


def _json_to_bytes(max_depth: int, raw: bytes) -> bytes | None:
    """JSON stays as it is; only null is null."""
    # Every level takes a pair of brackets: shorter texts are not looked at.
    if len(raw) > 2 * max_depth:
        check_depth(raw, max_depth)
    return None if raw == b"null" else raw


def _string_to_bytes(encoding: str, max_depth: int, raw: bytes) -> bytes | None:
    """The bytes of a string that is base64, or text."""
    return to_bytes(raw, encoding, max_depth)


def _refuse_schema_format(embedded: str, shape: ProduceRequest) -> NoReturn:
    """Formats with schemas: what such a client did wrong, else that they are not taken here."""
    no_key_schema = shape.key_schema is None and shape.key_schema_id is None
    if no_key_schema and any(_is_given(r.key) for r in shape.records):
        raise unprocessable("The request has keys, but no key_schema or key_schema_id.", KEY_SCHEMA_MISSING)
    no_value_schema = shape.value_schema is None and shape.value_schema_id is None
    if no_value_schema and any(_is_given(r.value) for r in shape.records):
        raise unprocessable(
            "The request has values, but no value_schema or value_schema_id.", VALUE_SCHEMA_MISSING
        )
    raise ProxyError(
        415, 415, f"The embedded format {embedded!r} needs a schema registry, and there is none here; send json, "
        "binary or text.",
    )  # fmt: skip


def _is_given(raw: msgspec.Raw | msgspec.UnsetType) -> bool:
    return raw is not UNSET and bytes(raw) != b"null"


def _timestamp(timestamp: int | None, index: int) -> int | None:
    if timestamp is not None and not 0 <= timestamp <= _MAX_TIMESTAMP:
        raise unprocessable(
            f"Record {index}, field 'timestamp': milliseconds since 1970 lie between 0 and {_MAX_TIMESTAMP}."
        )
    return timestamp
