"""The records inside a magic-2 batch, in plain Python: what `record_codec` falls back to.

    Record  = length varint, then of that length:
              attributes int8 (unused)
              timestamp delta varint, from the base timestamp
              offset delta varint, from the base offset
              key, value: length varint (−1: null) and bytes
              header count varint, then per header: name length varint, UTF-8 name,
                                                    value length varint (−1: null), value
    varint  = zigzag, seven bits per byte, lowest first, at most ten bytes

It is about thirty times slower than the extension, and is the readable form of what the extension does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from core.errors import BrokerError, ErrorCode
from core.records.header import HEADER_SIZE, BatchHeader, Buffer
from core.records.record import LOG_APPEND_TIME, Headers, Record

# Offset delta, timestamp, key, value, headers.
RecordFields = tuple[int, int, bytes | None, bytes | None, Headers]

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
_UINT64 = 2**64 - 1
# Shift of the tenth byte of a varint; an eleventh is refused.
_LAST_SHIFT = 63
_NULL = b"\x01"  # −1, zigzag


def encode_records_pure(base_timestamp: int, records: Iterable[RecordFields]) -> bytearray:
    """See `record_codec.encode_records`."""
    out = bytearray(HEADER_SIZE)
    try:
        for record in records:
            body = _encode_record(base_timestamp, record)
            out += _varint(len(body))
            out += body
    except (UnicodeEncodeError, OverflowError) as error:
        raise cannot_encode(error) from None
    return out


def decode_records_pure(header: BatchHeader, body: Buffer, first_offset: int, limit: int) -> Iterator[Record]:
    """See `record_codec.decode_records`."""
    data = bytes(body)
    position, previous, last_offset = 0, header.base_offset - 1, header.last_offset
    try:
        for _ in range(header.record_count):
            record, position = _decode_record(data, position, header)
            if not previous < record.offset <= last_offset:
                raise offsets_disagree(header, record.offset)
            if record.offset >= first_offset:
                if not limit:
                    return
                limit -= 1
                yield record
            previous = record.offset
    except (ValueError, IndexError, MemoryError) as error:
        raise cannot_decode(header, error) from None
    if position != len(data):
        raise cannot_decode(header, ValueError("bytes are left after the last record"))


def cannot_encode(error: Exception) -> BrokerError:
    """The refusal of a record that has no form on the wire."""
    return BrokerError(ErrorCode.INVALID_RECORD, f"The record cannot be written: {error}.")


def cannot_decode(header: BatchHeader, error: Exception) -> BrokerError:
    """Return the error for a batch whose records have no clear bounds."""
    return BrokerError(
        ErrorCode.CORRUPT_MESSAGE,
        f"The records of the batch at offset {header.base_offset} are malformed: {error}.",
        base_offset=header.base_offset,
    )


def offsets_disagree(header: BatchHeader, offset: int) -> BrokerError:
    """The refusal of a batch whose records do not rise from its first to its last offset."""
    return BrokerError(
        ErrorCode.CORRUPT_MESSAGE,
        f"The batch at offset {header.base_offset} holds a record of offset {offset}, which is not between "
        f"the record before and the batch's last offset {header.last_offset}.",
        base_offset=header.base_offset,
    )


def _encode_record(base_timestamp: int, record: RecordFields) -> bytearray:
    offset_delta, timestamp, key, value, headers = record
    if not (INT64_MIN <= timestamp <= INT64_MAX and INT64_MIN <= offset_delta <= INT64_MAX):
        raise OverflowError("a number needs more than 64 bits")
    body = bytearray(1)
    body += _varint(_wrap(timestamp - base_timestamp))
    body += _varint(offset_delta)
    body += _encode_bytes(key)
    body += _encode_bytes(value)
    body += _varint(len(headers))
    for name, header_value in headers:
        body += _encode_bytes(name.encode())
        body += _encode_bytes(header_value)
    return body


def _encode_bytes(data: bytes | None) -> bytes:
    return _NULL if data is None else _varint(len(data)) + bytes(data)


def _varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    if rest < 0x80:
        return bytes((rest,))
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _wrap(value: int) -> int:
    """`value` in 64 bits with sign, as a Java long or C int64_t would have it after an overflow."""
    return (value - INT64_MIN & _UINT64) + INT64_MIN


def _decode_record(data: bytes, position: int, header: BatchHeader) -> tuple[Record, int]:
    length, position = _read_varint(data, position)
    end = position + length
    _, position = _read_varint(data, position)
    timestamp_delta, position = _read_varint(data, position)
    offset_delta, position = _read_varint(data, position)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    headers, position = _read_headers(data, position)
    if position != end:
        raise ValueError(f"a record says it has {length} bytes, but has {length + position - end}")
    timestamp_type = header.timestamp_type
    if timestamp_type == LOG_APPEND_TIME:
        timestamp = header.max_timestamp
    else:
        timestamp = _wrap(header.base_timestamp + timestamp_delta)
    offset = _wrap(header.base_offset + offset_delta)
    return Record(offset, timestamp, timestamp_type, key, value, headers), position


def _read_headers(data: bytes, position: int) -> tuple[Headers, int]:
    count, position = _read_varint(data, position)
    if count < 0:
        raise ValueError(f"a record says it has {count} headers")
    headers = []
    while count:
        name, position = _read_bytes(data, position)
        if name is None:
            raise ValueError("a header has no name")
        value, position = _read_bytes(data, position)
        headers.append((name.decode(errors="replace"), value))
        count -= 1
    return tuple(headers), position


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(data, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise ValueError(f"{length} bytes should follow, but {len(data) - position} are left")
    return data[position:end], end


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > _LAST_SHIFT:
            raise ValueError("a varint has more than ten bytes")
    value &= _UINT64
    return (value >> 1) ^ -(value & 1), position
