"""Find the next whole batch after damaged bytes.

If a batch header is broken, so is its length, and the position of the next batch is lost. The next batches may still
be whole; they are found by their checksums.
"""

from __future__ import annotations

import os

from core.records.batch import check_crc
from core.records.header import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader

# Searched at once, and searched at all: after more damage than this nothing is looked for, so that a read
# which hits it stays bounded.
WINDOW = 1024 * 1024
SEARCH_LIMIT = 64 * 1024 * 1024

_MAGIC_BYTE = bytes([MAGIC])
_MAGIC_AT = 16


def find_batch(fd: int, position: int, end: int, minimum_offset: int) -> int | None:
    """Return where the next whole batch begins, at `position` or after it, whose offsets are not below the minimum.

    Whole means: it ends at `end` at the latest, and its CRC is right. None if there is none.
    """
    last = min(end, position + SEARCH_LIMIT) - HEADER_SIZE
    start = position
    while start <= last:
        window = os.pread(fd, WINDOW + HEADER_SIZE - 1, start)
        at = window.find(_MAGIC_BYTE, _MAGIC_AT)
        while at >= 0 and at - _MAGIC_AT + HEADER_SIZE <= len(window):
            candidate = at - _MAGIC_AT
            if candidate >= WINDOW or start + candidate > last:
                break
            header = BatchHeader._make(HEADER.unpack_from(window, candidate))
            if header.base_offset >= minimum_offset and _is_whole(fd, start + candidate, end, header):
                return start + candidate
            at = window.find(_MAGIC_BYTE, at + 1)
        start += WINDOW
    return None


def _is_whole(fd: int, position: int, end: int, header: BatchHeader) -> bool:
    size = header.batch_length + LENGTH_OVERHEAD
    if size < HEADER_SIZE or position + size > end or header.last_offset_delta < 0:
        return False
    data = os.pread(fd, size, position)
    return len(data) == size and check_crc(data, 0, header)
