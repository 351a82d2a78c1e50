"""Compaction and the addresses of Kafka 0.7: records that stay keep their address, removed ones leave a hole.

While the cleaner writes a compacted segment, a carrier for each view of the log writes its sidecar: an entry after
each hole, and further ones at intervals. A carrier reads the addresses from the old sidecars. So the view must be
measured up to the end of the old segments before, and the cleaner drops a pass if a new view was opened meanwhile.

    sidecar    <base>.legacy1.swap, written beside <base>.log.cleaned and fsynced with it
    commit     <base>.log.cleaned → <base>.log.swap           from here on both count
    swap       <base>.legacy1.swap → <base>.legacy1, then <base>.log.swap → <base>.log

A .swap sidecar without its log is thrown away at the next start, as a .cleaned log is; with it, recovery takes both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from core.kafka07.index import INTERVAL, AddressIndex, Entry
from core.kafka07.messages import OVERHEAD, shown_payloads
from core.kafka07.tasks import Batch, Cursor
from core.kafka07.view import AddressView
from core.log import files
from core.log.files import FilePool
from core.log.segment import ALL, SWAP_SUFFIX, Segment
from core.records.header import BatchHeader, read_header
from core.records.record import Record

# Entries that are read, or wait to be written, at once.
_PORTION = 4096


class Carrier:
    """The sidecar of the segment that takes the place of `group`, for one view."""

    def __init__(self, pool: FilePool, view: AddressView, group: Sequence[Segment], max_bytes: int) -> None:
        self.view = view
        self._group = list(group)
        self._max_bytes = max_bytes
        base = view.index_of(group[0]).start
        self._index = AddressIndex(
            pool, group[0].stem, view.magic, base.offset, base.address, suffix=SWAP_SUFFIX
        )
        self._overhead = OVERHEAD[view.magic]
        self._cursor: Cursor | None = None
        self._segment: Segment | None = None
        # The address that the next message has if there is no hole before it, and the newest entry's.
        self._expected = self._last = base.address
        self.discard()

    @property
    def path(self) -> str:
        """Where the new sidecar is until the compacted segment counts."""
        return self._index.path

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
        """Take one batch of an old segment: its records, and what stays of it at byte `position`.

        `whole` says that all of it stays. Raises OSError, ValueError for a damaged sidecar.
        """
        if segment is not self._segment:
            self._segment = segment
            index = self.view.index_of(segment)
            self._cursor = Cursor(index.start, self.view.magic, _every(index))
        assert self._cursor is not None
        shown = () if header.is_control else records
        offsets, payloads = [record.offset for record in shown], [record.value or b"" for record in shown]
        staying: set[int] | None = None
        if not whole:
            staying = set()
            if kept is not None:
                staying.update(shown_payloads(kept, 0, read_header(kept), self._max_bytes)[0])
        fresh = True
        for address, run_offsets, run in self._cursor.runs(Batch(-1, -1, header, offsets, payloads)):
            if staying is None:
                self._place(run_offsets[0], position, address, fresh)
                self._expected, fresh = self._cursor.address, False
                continue
            for offset, payload in zip(run_offsets, run, strict=True):
                if offset in staying:
                    self._place(offset, position, address, fresh)
                    self._expected, fresh = address + self._overhead + len(payload), False
                address += self._overhead + len(payload)

    def _place(self, offset: int, position: int, address: int, fresh: bool) -> None:
        """An entry, where there is a hole in front of a message, or the last one is far and a batch begins."""
        if address != self._expected or (fresh and address - self._last >= INTERVAL):
            self._index.add([Entry(offset, position, address)])
            self._last = address
            if self._index.count - self._index.written >= _PORTION:
                self._index.flush(ALL)

    def finish(self, size: int) -> None:
        """All batches are through, the compacted log has `size` bytes: write what is left. Raises OSError."""
        tail = self.view.end_of(self._group[-1])
        self._index.add([Entry(tail.offset, size, tail.address)])
        self._index.flush(ALL)
        self._index.close()

    @property
    def holds(self) -> bool:
        """Whether the view still covers what is replaced; if not, its addresses would move."""
        return self.view.covers(self._group[-1])

    def swap(self) -> None:
        """Put the sidecar in its place, just before the log. Raises OSError."""
        files.rename(self.path, self.path.removesuffix(SWAP_SUFFIX))

    def done(self) -> None:
        """The log is in its place: the view takes the new sidecar."""
        self.view.compacted(self._group)

    def discard(self) -> None:
        """Remove what was written; the old sidecars are all there."""
        self._index.close()
        with contextlib.suppress(OSError):
            files.remove_if_present(self.path)


def _every(index: AddressIndex) -> Iterator[Entry]:
    """Yield all entries of an index, a portion at a time."""
    for start in range(0, index.count, _PORTION):
        yield from index.entries(start, start + _PORTION)
