"""The aborted transactions of a partition, out of the index files beside its segments.

`<base offset>.txnindex` has entries of 34 bytes, big-endian, in the order of the markers. There is no file for a
segment in which no transaction was aborted. Source: KIP-98, "Transaction Index".

    version int16, producer id int64, offset of the first record int64, offset of the marker int64,
    last stable offset after the marker int64
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import NamedTuple

INDEX_SUFFIX = ".txnindex"
_ENTRY = Struct(">hqqqq")


class Aborted(NamedTuple):
    """One aborted transaction: offsets of its first record and of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


def aborted_between(directory: Path, offset: int, end: int) -> list[Aborted]:
    """Return the aborted transactions with records from `offset` up to `end`. Raises OSError.

    All files are looked at: the marker may be in a later segment, and compaction moves entries to an earlier one.
    """
    found = set()
    for path in directory.glob(f"*{INDEX_SUFFIX}"):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        # The last entry may be torn by a write that is under way; its marker is above every end that was told.
        for _, producer_id, first, last, _ in _ENTRY.iter_unpack(
            data[: len(data) // _ENTRY.size * _ENTRY.size]
        ):
            if last >= offset and first < end:
                found.add(Aborted(producer_id, first, last))
    return sorted(found, key=lambda one: one.first_offset)
