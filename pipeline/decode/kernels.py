"""The records of magic-2 batches into the buffers of Arrow columns, in compiled code.

    Record  = length varint, then of that length: attributes int8, timestamp delta varint, offset delta varint,
              key, value: length varint (−1: null) and bytes,
              header count varint, then per header: name length, name, value length (−1: null), value
    varint  = zigzag, seven bits per byte, lowest first, at most ten bytes

One pass: the caller gives buffers that are large enough for any content (the columns hold no more bytes than the
batches do), and says afterwards how much of them was used; pages that were never touched cost nothing. The first
thing that is not right ends it with `MALFORMED`: `plain` then says what is wrong, in words.

numba compiles this; `machine` keeps the code, so that it is done once on each machine and numba need not be in every
worker. Arithmetic is in int64 throughout: numba turns a mixture of int64 and uint64 into floats. Buffers are bare
pointers: an array that is handed to a function is counted up and down atomically, which took two thirds of the time.
So nothing checks an index for the program; every one is checked against the data's bounds by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic as _numba_intrinsic

from pipeline.decode.layout import (
    APPEND_TIME,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BATCH_FIELDS,
    DONE,
    END,
    HEADER_BYTES,
    HEADER_NULLS,
    HEADERS,
    KEY_BYTES,
    KEY_NULLS,
    LAST_OFFSET,
    MALFORMED,
    NAME_BYTES,
    NO_APPEND_TIME,
    RECORD_COUNT,
    ROWS,
    START,
    VALUE_BYTES,
    VALUE_NULLS,
)

Function = TypeVar("Function", bound=Callable[..., Any])

intrinsic = cast("Callable[[Callable[..., Any]], Callable[..., Any]]", _numba_intrinsic)

_LOW_63_BITS = 0x7FFF_FFFF_FFFF_FFFF
_MAX_MS = (2**63 - 1) // 1000
_MICRO = 1000


def compiled(function: Function) -> Function:
    """`function` compiled when what uses it is."""
    return cast("Function", numba.njit(nogil=True)(function))


@intrinsic
def _copy(context: Any, source: Any, start: Any, target: Any, at: Any, size: Any) -> Any:
    """Copy `size` bytes, unchecked. As a loop it would take a nanosecond for each."""

    def generate(target_context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        begin, into = builder.gep(arguments[0], [arguments[1]]), builder.gep(arguments[2], [arguments[3]])
        cgutils.raw_memcpy(builder, into, begin, arguments[4], 1)  # type: ignore[no-untyped-call]
        return target_context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64, types.int64), generate


@compiled
def _varint(data: Any, position: int, end: int) -> Any:
    """(value, position behind it); the position is −1 if it runs over `end` or has more than ten bytes."""
    result = np.int64(0)
    shift = np.int64(0)
    while position < end:
        byte = np.int64(data[position])
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((result >> 1) & _LOW_63_BITS) ^ -(result & 1), position
        shift += 7
        if shift > 63:
            break
    return np.int64(0), -1


@compiled
def _bytes(data: Any, position: int, end: int, column: Any, slot: int, at: int, wanted: bool) -> Any:
    """Take a length and its bytes into `column` (ends, bytes, validity) at `slot`, whose bytes begin at `at`.

    Answers (position behind them, where the next bytes of the column begin, 1 for null else 0); the position is −1
    for what is malformed.
    """
    size, position = _varint(data, position, end)
    if position < 0 or size < -1 or size > end - position:
        return -1, at, 0
    if not wanted:
        return position + max(size, 0), at, 0
    ends, target, valid = column
    valid[slot] = size >= 0
    if size > 0:
        _copy(data, position, target, at, size)
        position += size
        at += size
    ends[slot + 1] = at
    return position, at, size < 0


@compiled
def _headers(data: Any, position: int, end: int, names: Any, items: Any, used: Any, wanted: bool) -> int:
    """Take the headers of a record; answers the position behind them, −1 for what is malformed."""
    count, position = _varint(data, position, end)
    if position < 0 or count < 0 or count > end - position:
        return -1
    for _ in range(count):
        slot = used[HEADERS]
        position, at, null = _bytes(data, position, end, names, slot, used[NAME_BYTES], wanted)
        if position < 0 or null:
            return -1
        used[NAME_BYTES] = at
        position, at, null = _bytes(data, position, end, items, slot, used[HEADER_BYTES], wanted)
        if position < 0:
            return -1
        used[HEADER_BYTES] = at
        used[HEADER_NULLS] += null
        used[HEADERS] = slot + wanted
    return position


@compiled
def _batch(
    data: Any, table: Any, at: int, wanted: Any, fixed: Any, keys: Any, values: Any, headers: Any, used: Any
) -> int:
    """Take one batch; see `decode`."""
    low, high = wanted[0], wanted[1]
    want_key, want_value, want_headers = wanted[2] != 0, wanted[3] != 0, wanted[4] != 0
    offsets, times, time_types = fixed
    header_ends, names, items = headers
    position, batch_end = table[at + START], table[at + END]
    append_time = table[at + APPEND_TIME]
    own_time = append_time == NO_APPEND_TIME
    base_offset, last_offset = table[at + BASE_OFFSET], table[at + LAST_OFFSET]
    base_time = table[at + BASE_TIMESTAMP]
    previous = base_offset - 1
    row, key_at, value_at = used[ROWS], used[KEY_BYTES], used[VALUE_BYTES]
    for _ in range(table[at + RECORD_COUNT]):
        length, position = _varint(data, position, batch_end)
        if position < 0 or length < 0 or length > batch_end - position:
            return MALFORMED
        end = position + length
        # The attributes are unused, and a byte; who reads them as a varint reads the same.
        _, position = _varint(data, position, end)
        time_delta, position = _varint(data, max(position, 0), end)
        offset_delta, position = _varint(data, max(position, 0), end)
        offset = base_offset + offset_delta
        if position < 0 or offset <= previous or offset > last_offset:
            return MALFORMED
        previous = offset
        if offset < low or offset >= high:
            position = end
            continue
        offsets[row] = offset
        time = base_time + time_delta if own_time else append_time
        times[row] = min(max(time, -_MAX_MS), _MAX_MS) * _MICRO
        time_types[row] = 0 if own_time else 1
        position, key_at, null = _bytes(data, position, end, keys, row, key_at, want_key)
        used[KEY_NULLS] += null
        if position >= 0:
            position, value_at, null = _bytes(data, position, end, values, row, value_at, want_value)
            used[VALUE_NULLS] += null
        if position >= 0:
            position = _headers(data, position, end, names, items, used, want_headers)
        if position != end:
            return MALFORMED
        row += 1
        if want_headers:
            header_ends[row] = used[HEADERS]
    used[ROWS], used[KEY_BYTES], used[VALUE_BYTES] = row, key_at, value_at
    return DONE if position == batch_end else MALFORMED


def _decode(
    data: Any, batches: Any, count: int, wanted: Any, offsets: Any, times: Any, time_types: Any, key_ends: Any,
    keys: Any, key_valid: Any, value_ends: Any, values: Any, value_valid: Any, header_ends: Any, name_ends: Any,
    names: Any, name_valid: Any, item_ends: Any, items: Any, item_valid: Any, used: Any,
) -> int:  # fmt: skip
    """Decode `count` batches; DONE or MALFORMED. `layout.POINTERS` says what the arguments are."""
    fixed = (offsets, times, time_types)
    key_column, value_column = (key_ends, keys, key_valid), (value_ends, values, value_valid)
    headers = (header_ends, (name_ends, names, name_valid), (item_ends, items, item_valid))
    for number in range(count):
        at = number * BATCH_FIELDS
        if _batch(data, batches, at, wanted, fixed, key_column, value_column, headers, used) != DONE:
            return MALFORMED
    return DONE


def build() -> Any:
    """The decoder as a C function of numba's: `address`, `native_name`, and the object code behind it. Takes 3 s."""
    bytes_at, ints, longs = (types.CPointer(kind) for kind in (types.uint8, types.int32, types.int64))  # type: ignore[no-untyped-call]
    column = (ints, bytes_at, bytes_at)
    signature = types.int64(
        bytes_at,
        longs,
        types.int64,
        longs,
        longs,
        longs,
        ints,
        *column,
        *column,
        ints,
        *column,
        *column,
        longs,
    )
    return numba.cfunc(signature)(_decode)
