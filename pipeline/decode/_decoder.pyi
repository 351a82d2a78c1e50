"""The compiled decoder of record batches: `_decoder.c`, built with the package where there is a C compiler."""

from typing import Any

from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview | NDArray[Any]

def decode(
    data: Buffer,
    batches: Buffer,
    wanted: Buffer,
    offsets: Buffer,
    times: Buffer,
    time_types: Buffer,
    key_ends: Buffer,
    keys: Buffer,
    key_valid: Buffer,
    value_ends: Buffer,
    values: Buffer,
    value_valid: Buffer,
    header_ends: Buffer,
    name_ends: Buffer,
    names: Buffer,
    name_valid: Buffer,
    item_ends: Buffer,
    items: Buffer,
    item_valid: Buffer,
    used: Buffer,
    /,
) -> bool:
    """Decode records into columns; return False if a batch is malformed.

    `data` holds the records. `batches` has seven int64 for each batch: start and end of its records in `data`, base
    offset, last offset, base timestamp (ms), append time (ms; `native.NO_APPEND_TIME`: records have their own),
    number of records. `wanted` is (first offset, end offset, keys?, values?, headers?), five int64. `offsets`,
    `times` (µs; both int64) and `time_types` (int32) take a number for each record. A column of binary values has
    ends (int32, one more than values), bytes, and a validity byte for each value: keys, values, and, after
    `header_ends` (number of headers up to the end of each record), names and values of headers. `used` is nine
    int64, as `native` names them: a call continues where the last one stopped. Raises TypeError, ValueError for
    buffers of a wrong kind or size.
    """
