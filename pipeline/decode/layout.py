"""What the compiled decoder is handed, and how: places in its tables, and its arguments in order."""

from __future__ import annotations

DONE = 0
MALFORMED = -1

# Columns of the table that describes batches, one row each.
START, END, BASE_OFFSET, LAST_OFFSET, BASE_TIMESTAMP, APPEND_TIME, RECORD_COUNT = range(7)
BATCH_FIELDS = 7
# Places of `used`: how much of each column's buffers is filled.
ROWS, KEY_BYTES, VALUE_BYTES, HEADERS, NAME_BYTES, HEADER_BYTES, KEY_NULLS, VALUE_NULLS, HEADER_NULLS = range(
    9
)
USED_FIELDS = 9
NO_APPEND_TIME = -(2**63)
"""What stands in APPEND_TIME where records have their own times."""

POINTERS = (
    "data", "batches", "wanted", "offsets", "times", "time_types", "key_ends", "keys", "key_valid", "value_ends",
    "values", "value_valid", "header_ends", "name_ends", "names", "name_valid", "item_ends", "items", "item_valid",
    "used",
)  # fmt: skip
"""The arguments, addresses all of them; between `batches` and `wanted` stands the number of batches.

`data` holds the records, `batches` a row of BATCH_FIELDS for each batch. `wanted` is (first offset, end offset, key?,
value?, headers?). `offsets`, `times` (µs) and `time_types` take a number for each record. A column of bytes has ends
(int32), bytes, and a validity byte for each: keys, values, and behind `header_ends` (the headers up to each record)
their names and values. `used` goes on where the last call left it.
"""
