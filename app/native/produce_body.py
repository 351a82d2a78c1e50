"""Bodies of produce requests → records: `{records:[…]}`, one bare record, NDJSON, raw bytes.

The client's JSON bytes are kept: values are cut out of the body (`msgspec.Raw`), not parsed. Every refusal names
the record's index and the field. Of a member that occurs more than once in an object, the last one counts.

Most bodies hold keys and values of text alone. One typed decoder reads these in a single pass; it does nothing that
the general one does not do, and leaves all refusals to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import msgspec
from msgspec import UNSET

from app.errors import Problem, field_error
from app.formats import FormatError, check_ms, parse_time, to_bytes
from app.http.json_errors import Fault, fault_of, refuse_fault
from app.http.record_limit import RecordLimit
from app.native.record_schemas import RecordsOrRecord, RecordToWrite
from core.records.record import Headers, NewRecord


class TextRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A record whose key and value are text, as most are."""

    key: str | None = None
    value: str | None = None


class _TextRecords(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A list of such records."""

    records: list[TextRecord]


_decode_text_list = msgspec.json.Decoder(_TextRecords).decode
_decode_text = msgspec.json.Decoder(TextRecord).decode
_decode_body = msgspec.json.Decoder(RecordsOrRecord).decode
_decode_record = msgspec.json.Decoder(RecordToWrite).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
Path = tuple[str | int, ...]


class ProduceBody:
    """Reads produce bodies under the limits of one configuration."""

    def __init__(self, *, max_depth: int, max_records: int) -> None:
        self._max_depth = max_depth
        self._limit = RecordLimit(max_records)

    def from_json(self, body: bytes) -> list[NewRecord]:
        """The records of a JSON body: `{records:[…]}` or one bare record. Raises Problem."""
        self._limit.check(body)
        try:
            if not body.isascii():
                str(body, "utf-8")
            if (texts := self._texts(body)) is not None:
                return texts
            shape = _decode_body(body)
        except _UNREADABLE as error:
            refuse_fault(fault_of(body, error))
        items: Sequence[RecordToWrite]
        if shape.records is UNSET:
            items = (shape,)
        else:
            items = shape.records
            self._check_list(shape)
        return self.convert(items) if shape.records is not UNSET else self.convert(items, (), None)

    def from_ndjson(self, body: bytes) -> list[NewRecord]:
        """The records of newline-delimited JSON, one bare record a line; empty lines count for nothing."""
        lines = [line for line in body.split(b"\n", self._limit.most + 1) if line and not line.isspace()]
        if not lines:
            _refuse_list("The body holds no records.")
        if len(lines) > self._limit.most:
            self._limit.refuse()
        return [self.from_line(line, index) for index, line in enumerate(lines)]

    def from_line(self, line: bytes, index: int) -> NewRecord:
        """The record of one line of NDJSON; refusals call it record `index`. Raises Problem."""
        try:
            if not line.isascii():
                str(line, "utf-8")
            item = _decode_record(line)
        except _UNREADABLE as error:
            fault = fault_of(line, error)
            refuse_fault(fault._replace(path=("records", index, *fault.path)))
        return self.convert((item,), first=index)[0]

    def _check_list(self, shape: RecordsOrRecord) -> None:
        assert shape.records is not UNSET
        if not shape.records:
            _refuse_list("The list of records is empty.")
        if len(shape.records) > self._limit.most:
            self._limit.refuse()
        for name in RecordToWrite.__struct_fields__:
            if getattr(shape, name) not in (UNSET, None):
                refuse_fault(Fault(f"{name!r} belongs into a record, not beside 'records'.", (name,), False))

    def _texts(self, body: bytes) -> list[NewRecord] | None:
        """Return the records of a body whose keys and values are text or null; None for any other body."""
        try:
            items = (
                _decode_text_list(body).records if body.startswith(b'{"records"') else [_decode_text(body)]
            )
        except (msgspec.DecodeError, RecursionError):
            return None
        if not 0 < len(items) <= self._limit.most:
            return None
        return [
            NewRecord(
                None if item.key is None else item.key.encode(),
                None if item.value is None else item.value.encode(),
            )
            for item in items
        ]

    def convert(
        self, items: Sequence[RecordToWrite], path: Path = ("records",), first: int | None = 0
    ) -> list[NewRecord]:
        """Return the records as the broker takes them. Raises Problem.

        `path` leads to their list, in which the first one has the index `first`; None: to one record alone.
        """
        max_depth = self._max_depth
        records = []
        for index, item in enumerate(items):
            key = value = partition = None
            field = "key"
            try:
                if item.key is not UNSET:
                    key = to_bytes(bytes(item.key), item.key_encoding, max_depth)
                field = "value"
                if item.value is not UNSET:
                    value = to_bytes(bytes(item.value), item.value_encoding, max_depth)
                if item.partition is not UNSET:
                    partition = item.partition
                field = "headers"
                headers = () if item.headers is UNSET else self._headers(item)
                field = "timestamp"
                timestamp = _timestamp(item)
            except FormatError as error:
                _refuse_field(error, field, path if first is None else (*path, first + index))
            records.append(NewRecord(key, value, headers, timestamp, partition))
        return records

    def _headers(self, item: RecordToWrite) -> Headers:
        headers = []
        for index, one in enumerate(item.headers or ()):
            try:
                raw = one.value
                value = None if raw is UNSET else to_bytes(bytes(raw), one.encoding, self._max_depth)
            except FormatError as error:
                error.path = ("headers", index, "value")
                raise
            headers.append((one.name, value))
        return tuple(headers)


def _timestamp(item: RecordToWrite) -> int | None:
    """The timestamp in milliseconds; None means the broker's now."""
    if item.timestamp is UNSET and item.timestamp_ms is UNSET:
        return None
    given = item.timestamp if item.timestamp is not UNSET else None
    in_ms = item.timestamp_ms if item.timestamp_ms is not UNSET else None
    if given is None:
        return None if in_ms is None else check_ms(in_ms)
    ms = parse_time(given) if isinstance(given, str) else check_ms(given)
    if in_ms is not None and in_ms != ms:
        raise FormatError(f"timestamp and timestamp_ms differ ({ms} and {in_ms}); give one of them")
    return ms


def _refuse_field(error: FormatError, field: str, record: Path) -> NoReturn:
    reason = str(error)
    refuse_fault(Fault(f"{reason[0].upper()}{reason[1:]}.", (*record, *(error.path or (field,))), False))


def _refuse_list(detail: str) -> NoReturn:
    raise Problem(
        "invalid-request", detail, errors=[field_error(detail, pointer="#/records", field="records")]
    )
