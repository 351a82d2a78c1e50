"""Records on their way out: in the embedded format that was asked for; and the stateless read of one partition.

v2 has no place to say how one record is encoded, so a record that does not fit the format cannot be shown in another
one. The records before it are delivered; the read that begins with it is refused with 422/42203 and says where to
continue.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable
from typing import NoReturn

import msgspec

from app.errors import from_broker
from app.formats import depth_exceeds
from app.http.request import Answer, Request, Scope
from app.http.waiting import check_share, while_connected
from app.rest_v2.bodies import number_in, query_of
from app.rest_v2.dialect import Dialect
from app.rest_v2.errors import ProxyError, unprocessable
from app.rest_v2.media import SCHEMA_FORMATS, accept_of
from app.rest_v2.schemas import ConsumerRecord, ProxyHeader
from app.rest_v2.topics import partition_number
from core.config import Config
from core.errors import BrokerError
from core.facade import Facade
from core.records.record import NO_TIMESTAMP, Record
from core.types import TopicPartition
from core.vocabulary.records import FetchRead

_encode = msgspec.json.Encoder().encode
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode
_MAX_OFFSET = 2**63 - 1
_Embed = Callable[[bytes], msgspec.Raw | str]
# The wire format of schema registries: this byte, four bytes of the schema's id, the data.
_MAGIC = 0
_SCHEMA_HEADER = 5


class UnfitError(ValueError):
    """Bytes that the embedded format cannot show."""


class Embedder:
    """Records in v2's shape: keys and values in one embedded format, header values in base64.

    The formats with schemas need a schema registry, and there is none: they show null, and keys that no schema
    has encoded in base64, as Karapace does. They refuse everything else.
    """

    def __init__(self, config: Config, dialect: Dialect) -> None:
        self._max_depth = config.http_max_json_depth
        self._dialect = dialect
        # How keys and values are shown, by format.
        self._ways: dict[str, tuple[_Embed, _Embed]] = {
            "binary": (_base64, _base64),
            "text": (_text, _text),
            "json": (self._json, self._json),
            **dict.fromkeys(SCHEMA_FORMATS, (_key_without_schema, _refuse_without_registry)),
        }

    def records(
        self, records: Iterable[tuple[str, int, Record]], format_name: str
    ) -> tuple[list[ConsumerRecord], ProxyError | None]:
        """Return the records up to the first that does not fit, and the error for that one."""
        embed_key, embed_value = self._ways[format_name]
        shown: list[ConsumerRecord] = []
        for topic, partition, record in records:
            field = "key"
            try:
                key = None if record.key is None else embed_key(record.key)
                field = "value"
                value = None if record.value is None else embed_value(record.value)
            except UnfitError as error:
                prefix = self._dialect.unreadable.format(field=field, format=format_name)
                return shown, unprocessable(
                    f"{prefix}The {field} of the record at offset {record.offset} of {topic}-{partition} is "
                    f"{error}: it cannot be shown in the format {format_name!r}. Read it as binary, or continue at "
                    f"offset {record.offset + 1}.",
                    self._dialect.unreadable_code,
                )
            timestamp = None if record.timestamp == NO_TIMESTAMP else record.timestamp
            headers = self._headers(record)
            shown.append(ConsumerRecord(topic, key, value, partition, record.offset, timestamp, headers))
        return shown, None

    def _headers(self, record: Record) -> list[ProxyHeader] | msgspec.UnsetType:
        if not record.headers and self._dialect.sparse:
            return msgspec.UNSET
        return [self._header(name, data) for name, data in record.headers]

    def _header(self, name: str, data: bytes | None) -> ProxyHeader:
        value = None if data is None else _base64(data)
        return ProxyHeader(value=value, **{self._dialect.header_name: name})

    def _json(self, data: bytes) -> msgspec.Raw:
        try:
            str(data, "utf-8")
            _decode_raw(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise UnfitError("not JSON") from None
        if depth_exceeds(data, self._max_depth):
            raise UnfitError("nested too deep")
        return msgspec.Raw(data)


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _text(data: bytes) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise UnfitError("not UTF-8") from None


def _key_without_schema(data: bytes) -> str:
    """A key that no schema has encoded, in base64: strings as keys beside values with schemas are common."""
    if len(data) >= _SCHEMA_HEADER and data[0] == _MAGIC:
        _refuse_without_registry(data)
    return _base64(data)


def _refuse_without_registry(data: bytes) -> NoReturn:
    if not data or data[0] != _MAGIC:
        raise UnfitError("without the magic byte of data with a schema")
    if len(data) < _SCHEMA_HEADER:
        raise UnfitError("too short for the id of a schema")
    schema_id = int.from_bytes(data[1:_SCHEMA_HEADER], "big")
    raise UnfitError(f"encoded with schema {schema_id}, and there is no schema registry")


class PartitionReadRoutes:
    """The stateless read."""

    def __init__(self, config: Config, dialect: Dialect, acting: Callable[[Scope], Facade]) -> None:
        self._config = config
        self._dialect = dialect
        self._acting = acting
        self._embedder = Embedder(config, dialect)

    async def read(self, request: Request, segments: list[str]) -> Answer:
        """Read records of one partition. Stateless: nothing is remembered between two reads."""
        tp = TopicPartition(segments[1], partition_number(segments[3]))
        broker = self._acting(request.scope)
        # An unknown topic is reported before an error of the media type.
        await broker.look(partitions=(tp,))
        start = broker.partitions.info(tp).offsets.log_start_offset
        accept = accept_of(request.headers.get(b"accept", b""))
        format_name = accept.format(self._dialect.json_format)
        query = query_of(request)
        config = self._config
        max_bytes = number_in(query, "max_bytes", config.http_default_read_bytes, config.http_max_read_bytes)
        wait_ms = number_in(query, "timeout", 0, config.max_wait_ms)
        offset = _offset(query.get("offset", ""), start)
        try:
            await broker.bring((FetchRead(tp, offset, max_bytes, committed=True),), max_bytes=max_bytes)
            result = broker.records.read_now(
                tp, offset, max_bytes=max_bytes, max_records=config.http_max_limit
            )
            # The answer has no place for an offset to continue at, so a read continues after records that are hidden.
            if not result.records and (wait_ms or result.next_offset > offset):
                if wait_ms:
                    check_share(request.scope)
                result = await while_connected(
                    request,
                    broker.records.read(
                        tp,
                        offset,
                        max_bytes=max_bytes,
                        max_records=config.http_max_limit,
                        wait_ms=wait_ms,
                        first=result,
                    ),
                )
        except BrokerError as error:
            raise from_broker(error, offset=offset) from None
        found = ((*tp, record) for record in result.records)
        shown, refusal = self._embedder.records(found, format_name)
        if refusal is not None and not shown:
            raise refusal
        return Answer(200, _encode(shown), accept.records(format_name))


def _offset(text: str, default: int) -> int:
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and int(text) <= _MAX_OFFSET):
        raise unprocessable(f"offset must be a whole number from 0, not {text[:40]!r}.")
    return int(text)
