"""A log as Kafka 0.7 sees it, in one of its message formats: every record has a byte address that never changes.

    bases      where each segment begins
    sidecars   entries within a segment (`core.kafka07.index`)
    frontier   up to where addresses are known; it moves on when a client asks for more

Nothing is kept of a partition until a 0.7 client touches it. Then addresses begin with 0 at the first segment that
is there, and from then on they hold: a restart takes up the frontier from the newest sidecar, retention notes where
the first segment that stays begins, compaction carries addresses over (`core.kafka07.carry`).

If the sidecar of a segment is lost, it is made again from its base. Were compacted messages in it, their places are
lost with it: what follows in that segment moves up, and the next one begins where it always did. If a base is lost
in both its places, addresses begin again above all that are known, so that old ones are out of range, not wrong.

Runs on the event loop; long walks are tasks (`core.kafka07.tasks`) whose outcome is taken here if the log is
still as it was.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import takewhile

from core.kafka07.bases import read_bases, write_bases
from core.kafka07.index import AddressIndex, Entry
from core.kafka07.tasks import Locating, Measuring, Place, Reading
from core.log.events import WatchedLog
from core.log.files import FilePool, modified
from core.log.segment import REPORTS, Segment
from core.records.header import HEADER, HEADER_SIZE, MAGIC
from core.types import AbortedTransaction
from core.vocabulary.partition import EARLIEST, LATEST

logger = logging.getLogger(__name__)

# Entries in front of a reader that one read takes along: more than a chunk holds, but for compacted logs.
_AHEAD = 4096


class AddressView:
    """The addresses of one log in one magic. `max_bytes` bounds what one batch may decompress to."""

    def __init__(self, pool: FilePool, log: WatchedLog, magic: int, max_bytes: int) -> None:
        self.log = log
        self.magic = magic
        self._pool = pool
        self._max_bytes = max_bytes
        self._indexes: dict[int, AddressIndex] = {}
        # Those with entries that wait for the disk.
        self._waiting: set[AddressIndex] = set()
        self._reported: set[int] = set()
        # The log start offset and its address, once a client has asked.
        self._start: tuple[int, int] | None = None
        segments = log.segments.all
        self._bases = read_bases(log.directory, {s.base_offset for s in segments}, magic)
        self._begin(segments)

    def _begin(self, segments: list[Segment]) -> None:
        first = segments[0]
        if first.base_offset not in self._bases:
            address = 0
            if self._bases:
                address = max(self._bases.values()) + self.log.size
                logger.warning(
                    "%s: the 0.7 addresses (magic %d) of its first segment are lost; they begin again at %d",
                    self.log.tp, self.magic, address,
                )  # fmt: skip
            self._bases = {first.base_offset: address}
            self._write_bases()
        # Sidecars of earlier segments may be missing: that is checked when a client reads there.
        self._enter([*takewhile(lambda s: s.base_offset in self._bases, segments)][-1])

    # --- frontier ------------------------------------------------------------------------------------------

    def _enter(self, segment: Segment) -> None:
        """Put the frontier where the entries of a segment end, and over all segments that are measured already."""
        while True:
            index = self._index(segment)
            self._drop_wrong(segment, index)
            self.segment = segment
            self.frontier = index.last
            following = self._following(segment)
            if following is None or self.frontier.position < segment.size:
                return
            if following.base_offset not in self._bases:
                self._bases[following.base_offset] = self.frontier.address
                self._write_bases()
            segment = following

    def _following(self, segment: Segment) -> Segment | None:
        segments = self.log.segments.all
        i = bisect_right(segments, segment.base_offset, key=lambda s: s.base_offset)
        return segments[i] if segment.sealed and i < len(segments) else None

    def _index(self, segment: Segment) -> AddressIndex:
        index = self._indexes.get(segment.base_offset)
        if index is None:
            base = self._bases[segment.base_offset]
            index = AddressIndex(self._pool, segment.stem, self.magic, segment.base_offset, base)
            index.load()
            self._indexes[segment.base_offset] = index
        return index

    def _drop_wrong(self, segment: Segment, index: AddressIndex) -> None:
        """Drop entries of batches that are not there: the log was cut, or the sidecar is not its own."""
        count = index.count
        while count and not self._fits(segment, index.entry(count - 1)):
            count -= 1
        if count < index.count:
            logger.warning("%s: %d entries are dropped", index.path, index.count - count)
            index.cut(count)

    def _fits(self, segment: Segment, entry: Entry) -> bool:
        if entry.position >= segment.size:
            return segment.sealed and entry.position == segment.size
        data = os.pread(segment.log.reading().fd, HEADER_SIZE, entry.position)
        if len(data) < HEADER_SIZE:
            return False
        found = HEADER.unpack(data)
        base_offset, magic, delta = found[0], found[3], found[6]
        return bool(magic == MAGIC and base_offset <= entry.offset <= base_offset + delta)

    def complete(self) -> bool:
        """Return whether the address of every record that may be read is known."""
        self._settle()
        return self.frontier.position >= self._readable(self.segment)

    def _readable(self, segment: Segment) -> int:
        """Return where a segment ends for readers: at the last stable offset."""
        _, _, end, high = self.log.offsets
        if high >= end:
            return segment.size
        if high <= segment.base_offset:
            return 0
        following = self._following(segment)
        return (
            segment.size if following is not None and following.base_offset <= high else segment.locate(high)
        )

    @property
    def end_address(self) -> int:
        """The address of the next message to be appended, if the view is complete."""
        return self.frontier.address

    def covers(self, segment: Segment) -> bool:
        """Return whether all addresses of a segment are known. Move the frontier back if its sidecar is not whole."""
        if self.segment.base_offset <= segment.base_offset:
            return False
        index = self._index(segment)
        try:
            whole = index.last.position == segment.size
        except ValueError:
            whole = False
        if not whole:
            logger.warning("%s is not whole; its segment is measured again", index.path)
            self._enter(segment)
        return whole or self.segment.base_offset > segment.base_offset

    def end_of(self, segment: Segment) -> Entry:
        """Return where the segment after a covered one begins."""
        following = self._following(segment)
        assert following is not None
        return Entry(following.base_offset, 0, self._bases[following.base_offset])

    def begin_measuring(self, limit: int) -> Measuring | None:
        """Return the task that moves the frontier on by about `limit` bytes of log; None if the view is complete.

        Raises OSError.
        """
        if self.complete():
            return None
        return Measuring(self._place(self.segment, self.frontier), self._index(self.segment).last, limit)

    def finish_measuring(self, task: Measuring) -> None:
        """Take the outcome of a task that began at the frontier; no effect if the log was changed meanwhile."""
        self._report(task.place)
        self._move(task.place.start, task.entries, task.reached)

    def _move(self, start: Entry, entries: Sequence[Entry], reached: Entry) -> None:
        # Whatever changes the log under a task puts another frontier in the place of the one it began at.
        if self.frontier is start:
            self._add(self._index(self.segment), entries)
            self.frontier = reached
            self._settle()
            self.flush()

    def _settle(self) -> None:
        """Continue with the next segment if the frontier has reached the end of a sealed one."""
        segment = self.segment
        following = self._following(segment)
        if following is None or self.frontier.position < segment.size:
            return
        # The last entry of a segment says where it ends, and by that that it is measured.
        self._add(self._index(segment), [Entry(following.base_offset, segment.size, self.frontier.address)])
        if following.base_offset not in self._bases:
            self._bases[following.base_offset] = self.frontier.address
            self._write_bases()
        self._enter(following)

    def _add(self, index: AddressIndex, entries: Sequence[Entry]) -> None:
        if entries:
            index.add(list(entries))
            self._waiting.add(index)

    def flush(self) -> None:
        """Write the entries whose records have been fsynced since."""
        for index in list(self._waiting):
            try:
                if index.flush(self.log.flushed_offset):
                    self._waiting.discard(index)
            except OSError as error:
                # The entries stay in memory, and are found again by another walk if the process dies.
                logger.warning("%s cannot be written: %s", index.path, error.strerror)

    def _write_bases(self, *, strict: bool = False) -> None:
        # Those of segments that are only about to go stay with them: they may yet be kept.
        present = {segment.base_offset for segment in self.log.segments.all}
        self._bases = {offset: base for offset, base in self._bases.items() if offset in present}
        try:
            write_bases(self.log.directory, self.magic, self._bases)
        except OSError as error:
            if strict:
                raise
            logger.warning("%s: 0.7 addresses cannot be written: %s", self.log.tp, error.strerror)

    # --- reading -------------------------------------------------------------------------------------------

    def _place(
        self, segment: Segment, start: Entry, ahead: Sequence[Entry] = (), tail: int | None = None
    ) -> Place:
        end = self._readable(segment)
        return Place(segment.log.reading(), start, end, self.magic, self._max_bytes, [], ahead, tail)

    def _report(self, place: Place) -> None:
        """Say once of a batch that 0.7 does not see it."""
        for offset, why in place.unseen:
            if offset not in self._reported and len(self._reported) < REPORTS:
                self._reported.add(offset)
                logger.error("%s: 0.7 does not see the batch at offset %d: %s", self.log.tp, offset, why)

    def begin_reading(self, wanted: int, limit: int, max_size: int) -> Reading | None:
        """Return a read from the address `wanted`, the frontier's at most; None if the frontier had to go back.

        Raises OSError.
        """
        segment = self._segment_at(wanted)
        if segment is not self.segment and not self.covers(segment):
            return None
        index = self._index(segment)
        try:
            i, end = index.search(wanted, 2), index.search(wanted + limit, 2) + 2
            start, ahead = index.entry(i), index.entries(i + 1, min(end, i + _AHEAD))
        except ValueError as error:
            self._mend(segment, index, error)
            return None
        if end > i + _AHEAD:
            limit = ahead[-1].address - wanted
        aborted = self._aborted(segment, start, ahead, wanted + limit)
        if segment is self.segment:
            if self.frontier.address <= wanted:
                start, ahead = self.frontier, []
            place = self._place(segment, start, ahead)._replace(aborted=aborted)
            return Reading(place, wanted, limit, max_size, self.frontier, index.last)
        place = self._place(segment, start, ahead, self._tail(segment))._replace(aborted=aborted)
        return Reading(place, wanted, limit, max_size, None, index.last)

    def _aborted(
        self, segment: Segment, start: Entry, ahead: Sequence[Entry], until: int
    ) -> Sequence[AbortedTransaction]:
        """Return the aborted transactions between an entry and the address `until`, by their first offsets."""
        end = self.log.offsets.last_stable_offset
        if ahead and ahead[-1].address >= until:
            end = ahead[-1].offset
        elif (following := self._following(segment)) is not None:
            end = min(end, following.base_offset)
        return self.log.aborted_between(start.offset, end)

    def finish_reading(self, task: Reading) -> None:
        """Take what a read has measured beyond the frontier."""
        self._report(task.place)
        if task.frontier is not None and task.reached is not None:
            self._move(task.frontier, task.entries, task.reached)

    def _segment_at(self, address: int) -> Segment:
        """The last segment whose base address is not above; the frontier's if that is the frontier's address."""
        known = [s for s in self.log.segments.all if s.base_offset <= self.segment.base_offset]
        i = bisect_right(known, address, key=lambda s: self._bases[s.base_offset])
        return known[max(i - 1, 0)]

    def _tail(self, segment: Segment) -> int | None:
        following = self._following(segment)
        return None if following is None else self._bases.get(following.base_offset)

    def _mend(self, segment: Segment, index: AddressIndex, error: ValueError) -> None:
        """A damaged entry: measure its segment again from the last one before that can be read."""
        logger.warning("%s; the segment is measured again", error)
        count = 0
        while count < index.count:
            try:
                index.entry(count)
            except ValueError:
                break
            count += 1
        index.cut(count)
        self._enter(segment)

    # --- bounds --------------------------------------------------------------------------------------------

    @property
    def start_address(self) -> int | None:
        """The address of the first record that is there; None if it must be located first."""
        offset = self.log.offsets.log_start_offset
        first = self.log.segments.all[0]
        if offset <= first.base_offset:
            return self._bases[first.base_offset]
        return self._start[1] if self._start is not None and self._start[0] == offset else None

    def begin_locating(self) -> Locating | None:
        """Return the search for `start_address`; None until the frontier reaches it. Raises OSError."""
        offset = self.log.offsets.log_start_offset
        segments = self.log.segments
        segment = segments.all[segments.index_of(offset)]
        if self.frontier.offset < offset or segment.base_offset > self.segment.base_offset:
            return None
        if segment is not self.segment and not self.covers(segment):
            return None
        index = self._index(segment)
        try:
            i = index.search(offset, 0)
            place = self._place(
                segment, index.entry(i), index.entries(i + 1, i + _AHEAD), self._tail(segment)
            )
        except ValueError as error:
            self._mend(segment, index, error)
            return None
        return Locating(place, offset)

    def finish_locating(self, task: Locating) -> None:
        """Keep what was found."""
        self._start = task.offset, task.address

    def segment_addresses(self, time_ms: int, limit: int) -> list[int]:
        """Return the answer to OFFSETS for a complete view: addresses of segments, newest first, at most `limit`.

        `time_ms` is −1 latest, −2 earliest, or a time: then the newest segment last written at or before it and
        all before that; the log's end comes first if the last segment holds something and is among them.
        """
        start = self.start_address or 0
        # A segment above the last stable offset has no address yet.
        segments = [s for s in self.log.segments.all if s.base_offset in self._bases]
        bounds = [
            (max(self._bases[s.base_offset], start), int(modified(s.log.path) * 1000)) for s in segments
        ]
        if segments[-1].size:
            bounds.append((self.end_address, bounds[-1][1]))
        if time_ms == EARLIEST:
            bounds = bounds[:1]
        elif time_ms != LATEST:
            while bounds and bounds[-1][1] > time_ms:
                bounds.pop()
        return [address for address, _ in reversed(bounds)][: max(limit, 0)]

    # --- changes of the log --------------------------------------------------------------------------------

    def before_removal(self, gone: Segment, following: Segment) -> None:
        """Fix the address of the segment `following` before the segment in front of it, `gone`, is removed.

        If the frontier has not reached it, that address is set above all that clients have got, by the bytes of
        `gone` on the disk. Raises OSError if it cannot be written.
        """
        inside = gone.base_offset >= self.segment.base_offset
        if inside and following.base_offset not in self._bases:
            left = gone.size - self.frontier.position
            self._bases[following.base_offset] = self.frontier.address + max(left, 1)
        self._forget(gone.base_offset)
        self._write_bases(strict=True)
        if inside:
            self._enter(following)

    def compacted(self, group: Sequence[Segment]) -> None:
        """The segments of a group have become one, which begins where the first of them did."""
        for segment in group:
            self._forget(segment.base_offset)
        self._start = None
        self._write_bases()
        if self.segment in group:
            segments = self.log.segments
            self._enter(segments.all[segments.index_of(group[0].base_offset)])

    def truncated(self, offset: int) -> None:
        """The log ends at `offset` now, and segments may be others than before. Raises OSError."""
        self._start = None
        for base_offset in [*self._indexes]:
            self._forget(base_offset)
        segments = self.log.segments
        segment = segments.all[segments.index_of(offset)]
        empty = segment is segments.all[0]
        if empty:
            # A log that begins again continues above all addresses that clients have got.
            self._bases.setdefault(segment.base_offset, self.frontier.address)
        self._write_bases()
        if empty or segment.base_offset <= self.segment.base_offset:
            index = self._index(segment)
            index.cut(index.search(offset, 0) + 1)
            self._enter(segment)
        else:
            self._enter(self.segment)

    def index_of(self, segment: Segment) -> AddressIndex:
        """Return the entries of a segment."""
        return self._index(segment)

    def _forget(self, base_offset: int) -> None:
        index = self._indexes.pop(base_offset, None)
        if index is not None:
            self._waiting.discard(index)
            index.close()

    def close(self) -> None:
        """Write what can be written, and let go of the files. Tasks under way have no effect any more."""
        self.flush()
        self.frontier = Entry(*self.frontier)
        for index in self._indexes.values():
            index.close()
        self._indexes.clear()
