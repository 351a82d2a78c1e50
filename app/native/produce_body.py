"""Bodies of produce requests → records: `{records:[…]}`, one bare record, NDJSON, raw bytes.

The client's JSON bytes are kept: values are cut out of the body (`msgspec.Raw`), not parsed. Every refusal
names the record's index and the field. This is the hot half of POST records; the rare cases stand below.
"""

from __future__ import annotations

import json
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


class _TextRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A record whose key and value are text, as most are."""

    key: str | msgspec.UnsetType | None = UNSET
    value: str | msgspec.UnsetType | None = UNSET


class _TextRecords(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A list of such records."""

    records: list[_TextRecord]


class _PlainRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A record of key and value alone, of any JSON."""

    key: msgspec.Raw | msgspec.UnsetType = UNSET
    value: msgspec.Raw | msgspec.UnsetType = UNSET


class _PlainRecords(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A list of such records."""

    records: list[_PlainRecord]


_decode_text_list = msgspec.json.Decoder(_TextRecords).decode
_decode_text = msgspec.json.Decoder(_TextRecord).decode
_decode_plain_list = msgspec.json.Decoder(_PlainRecords).decode
_decode_plain = msgspec.json.Decoder(_PlainRecord).decode
_decode_body = msgspec.json.Decoder(RecordsOrRecord).decode
_decode_record = msgspec.json.Decoder(RecordToWrite).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
Path = tuple[str | int, ...]
_QUOTE, _BACKSLASH = 0x22, 0x5C
# Members of bodies that list objects.
_LISTS = frozenset({"records", "headers", "partitions", "offsets", "timestamps"})


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
            if (plain := self._plain(body)) is not None:
                return plain
            shape = _decode_body(body)
        except _UNREADABLE as error:
            refuse_fault(fault_of(body, error))
        items: Sequence[RecordToWrite]
        if shape.records is UNSET:
            items = (shape,)
        else:
            items = shape.records
            self._check_list(shape)
        return self._convert(items, body, () if shape.records is UNSET else None)

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
        return self._convert((item,), line, ("records", index))[0]

    def _check_list(self, shape: RecordsOrRecord) -> None:
        assert shape.records is not UNSET
        if not shape.records:
            _refuse_list("The list of records is empty.")
        if len(shape.records) > self._limit.most:
            self._limit.refuse()
        for name in RecordToWrite.__struct_fields__:
            if getattr(shape, name) not in (UNSET, None):
                refuse_fault(Fault(f"{name!r} belongs into a record, not beside 'records'.", (name,), False))

    def _plain(self, body: bytes) -> list[NewRecord] | None:
        """The records of a body that holds keys and values alone, each once; None for any other body.

        It does nothing that the long way does not do; it is there for speed, and leaves all refusals to it.
        """
        is_list = body.startswith(b'{"records"')
        found = _of_texts(body, is_list) if _BACKSLASH not in body else None
        if found is None:
            found = self._of_values(body, is_list)
            if found is None:
                return None
        records, quotes = found
        if not 0 < len(records) <= self._limit.most:
            return None
        # Every member more would have brought quotes of its own.
        return records if body.count(b'"') == quotes + 2 * is_list else None

    def _of_values(self, body: bytes, is_list: bool) -> tuple[list[NewRecord], int] | None:
        """Records of any JSON, and the quotes in them and around the names of their members."""
        max_depth = self._max_depth
        records, texts = [], []
        try:
            items = _decode_plain_list(body).records if is_list else [_decode_plain(body)]
            for item in items:
                key = value = None
                raw = item.key
                if raw is not UNSET:
                    data = bytes(raw)
                    texts.append(data)
                    is_text = data[0] == _QUOTE and _BACKSLASH not in data
                    key = data[1:-1] if is_text else to_bytes(data, None, max_depth)
                raw = item.value
                if raw is not UNSET:
                    data = bytes(raw)
                    texts.append(data)
                    is_text = data[0] == _QUOTE and _BACKSLASH not in data
                    value = data[1:-1] if is_text else to_bytes(data, None, max_depth)
                records.append(NewRecord(key, value))
        except (msgspec.DecodeError, RecursionError, FormatError):
            return None
        return records, b"".join(texts).count(b'"') + 2 * len(texts)

    def _convert(
        self, items: Sequence[RecordToWrite], body: bytes, path: Path | None = None
    ) -> list[NewRecord]:
        """The records in the broker's words, checked for members that stand twice in one object.

        `path` leads to the record where `body` holds one alone, else it is a list in `records`.
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
                _refuse_field(error, field, ("records", index) if path is None else path)
            records.append(NewRecord(key, value, headers, timestamp, partition))
        _check_duplicates(items, body, path)
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


def _of_texts(body: bytes, is_list: bool) -> tuple[list[NewRecord], int] | None:
    """Records of texts without escapes, and the quotes around these and the names of their members."""
    try:
        items = _decode_text_list(body).records if is_list else [_decode_text(body)]
    except (msgspec.DecodeError, RecursionError):
        return None
    members = texts = 2 * len(items)
    try:
        # As most bodies are: each record has both. What is no text cannot be encoded.
        return [
            NewRecord(item.key.encode(), item.value.encode())  # type: ignore[union-attr]
            for item in items
        ], 2 * (members + texts)
    except AttributeError:
        pass
    records = []
    for item in items:
        key = value = None
        text = item.key
        if isinstance(text, str):
            key = text.encode()
        else:
            members -= text is UNSET
            texts -= 1
        text = item.value
        if isinstance(text, str):
            value = text.encode()
        else:
            members -= text is UNSET
            texts -= 1
        records.append(NewRecord(key, value))
    return records, 2 * (members + texts)


def _check_duplicates(items: Sequence[RecordToWrite], body: bytes, path: Path | None) -> None:
    """Refuse a record, or a header, that has one member twice: which of them is meant nobody can know.

    Counting quotes lets most bodies pass; the judge, for the others, parses the body once more.
    """
    if all(_is_plain(item) for item in items) and not _quotes_differ(items, body, path):
        return
    twice = find_duplicate(body)
    if twice:
        refuse_fault(Fault(f"The member {twice[-1]!r} stands there twice.", (*(path or ()), *twice), False))


def _quotes_differ(items: Sequence[RecordToWrite], body: bytes, path: Path | None) -> bool:
    """Whether there are other quotes than those in keys and values, and around the names that stand there once."""
    texts = [bytes(raw) for item in items for raw in (item.key, item.value) if raw is not UNSET]
    # An encoding is a name and a text.
    encodings = sum((item.key_encoding is not None) + (item.value_encoding is not None) for item in items)
    names = len(texts) + 2 * encodings + (path is None)
    return body.count(b'"') - b"".join(texts).count(b'"') != 2 * names


def find_duplicate(body: bytes) -> tuple[str | int, ...]:
    """The path of a member that stands twice in a body or in the objects it lists; empty when there is none.

    `body` has been decoded before, so it is JSON. Raises Problem when what stands twice is nested too deep.
    """
    try:
        top = json.loads(body, object_pairs_hook=_Pairs, parse_float=str, parse_int=str)
    except RecursionError as error:
        refuse_fault(fault_of(body, error))
    return _duplicate(top)


def _is_plain(item: RecordToWrite) -> bool:
    """Whether a record has members that are counted, and no others."""
    return (
        item.headers is UNSET
        and item.partition is UNSET
        and item.timestamp is UNSET
        and item.timestamp_ms is UNSET
    )


class _Pairs(list[tuple[str, object]]):
    """The members of a JSON object, with those that stand there twice."""


def _duplicate(top: object) -> tuple[str | int, ...]:
    """The path of a member that stands twice in the body, a record or a header; values are not looked into."""
    path = _twice(top)
    if path or not isinstance(top, _Pairs):
        return path
    for name, value in top:
        if name in _LISTS and isinstance(value, list):
            for index, item in enumerate(value):
                if path := _duplicate(item):
                    return (name, index, *path)
    return ()


def _twice(value: object) -> tuple[str | int, ...]:
    seen: set[str] = set()
    for name, _ in value if isinstance(value, _Pairs) else ():
        if name in seen:
            return (name,)
        seen.add(name)
    return ()


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
