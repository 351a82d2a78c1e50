"""Transactions under compaction: records of aborted ones go, markers go after the records that they decide (KIP-98).

A pass reads a log from its start, below the last stable offset, so each transaction that it meets has ended. An
aborted transaction keeps its entry in the index of the compacted segment as long as the pass has met records of it: a
reader that began before the swap needs it. A marker is kept until a pass meets no record of its transaction, and from
then on for `delete.retention.ms`, so that a slow reader learns how it ended. Source: Kafka's log cleaner.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence

from core.log import files
from core.log.aborted import AbortedTransactions, append_entries
from core.log.segment import SWAP_SUFFIX, Segment
from core.records.control import EndMarker
from core.records.header import BatchHeader
from core.records.record import Record
from core.types import AbortedTransaction


class CleanedTransactions:
    """The transactions that a pass meets, batch by batch in the order of the log."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        # Aborted transactions that begin later, by first offset.
        self._later = deque(aborted)
        # Producer id → its aborted transaction, between its first record and its marker.
        self._aborted: dict[int, AbortedTransaction] = {}
        # Producers of which records of the transaction were met since the last marker.
        self._met: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether the records of a batch belong to an aborted transaction."""
        if not header.is_transactional or header.is_control:
            return False
        while self._later and self._later[0].first_offset <= header.base_offset:
            begun = self._later.popleft()
            self._aborted[begun.producer_id] = begun
        if header.record_count:
            self._met.add(header.producer_id)
        return header.producer_id in self._aborted

    def end(self, header: BatchHeader, marker: EndMarker) -> tuple[bool, AbortedTransaction | None]:
        """Take a marker: whether records of its transaction were met, and the index entry that stays."""
        met = header.producer_id in self._met
        self._met.discard(header.producer_id)
        while self._later and self._later[0].first_offset <= header.base_offset:
            begun = self._later.popleft()
            self._aborted[begun.producer_id] = begun
        aborted = None if marker.commit else self._aborted.pop(header.producer_id, None)
        return met, aborted if met else None


class IndexOfCompacted:
    """The companion (`core.log.events`) that writes the .txnindex of a compacted segment."""

    def __init__(self, aborted: AbortedTransactions, base_offset: int) -> None:
        self._aborted = aborted
        self._base_offset = base_offset
        self._path = aborted.path(base_offset)
        self._kept: list[AbortedTransaction] = []

    @property
    def paths(self) -> Sequence[str]:
        """The file that was written."""
        return [self._path + SWAP_SUFFIX]

    def keep(self, aborted: AbortedTransaction) -> None:
        """Add an entry, in the order of the markers."""
        self._kept.append(aborted)

    def take(
        self,
        segment: Segment,
        header: BatchHeader,
        records: Sequence[Record],
        kept: bytes | bytearray | None,
        position: int,
        *,
        whole: bool,
    ) -> None:
        """Nothing: entries come by `keep`."""

    def finish(self, size: int) -> None:
        """Write the entries; the file is empty without any, and takes the place of the old one. Raises OSError."""
        files.remove_if_present(self._path + SWAP_SUFFIX)
        append_entries(self._path + SWAP_SUFFIX, self._kept)

    def hold(self) -> bool:
        """Nothing changes below the last stable offset."""
        return True

    def swap(self) -> None:
        """Put the file in its place. Raises OSError."""
        files.rename(self._path + SWAP_SUFFIX, self._path)

    def done(self) -> None:
        """The segment has this file from now on."""
        self._aborted.replaced(self._base_offset)

    def release(self) -> None:
        """Nothing was held."""

    def discard(self) -> None:
        """Remove what was written."""
        with contextlib.suppress(OSError):
            files.remove_if_present(self._path + SWAP_SUFFIX)
