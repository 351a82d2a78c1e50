"""Leave out what aborted transactions wrote, as a read_committed consumer does (KIP-98)."""

from __future__ import annotations

from collections.abc import Sequence

from core.records.header import BatchHeader
from core.types import AbortedTransaction


class AbortedRecords:
    """The batches of one read that no read_committed consumer may see; asked for each batch in the order of the log.

    `aborted` are the transactions that were aborted in the range that is read, sorted by their first offsets.
    """

    __slots__ = ("_aborted", "_begun", "_until")

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._aborted = aborted
        # How many of them have begun.
        self._begun = 0
        # Producer id → offset of the marker of its newest aborted transaction that has begun.
        self._until: dict[int, int] = {}

    def holds(self, header: BatchHeader) -> bool:
        """Return whether a batch belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        aborted = self._aborted
        while self._begun < len(aborted) and aborted[self._begun].first_offset <= header.last_offset:
            begun = aborted[self._begun]
            self._until[begun.producer_id] = begun.last_offset
            self._begun += 1
        return header.base_offset < self._until.get(header.producer_id, -1)

    def hides(self, header: BatchHeader) -> bool:
        """Return whether no consumer may see the records of a batch: it is a marker, or was aborted."""
        return header.is_control or self.holds(header)
