"""The segments of one log, and how to find records in them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from core.log.files import modified
from core.log.segment import Cut, Segment
from core.records.header import LENGTH_OVERHEAD
from core.types import FileSlice, LogOffsets, TimestampOffset
from core.vocabulary.partition import EARLIEST, LATEST

NOT_FOUND = TimestampOffset(-1, -1, -1)


class Segments:
    """All segments of a log, the oldest first; the last one is the active one. There is always one."""

    __slots__ = ("_all", "_sealed_size", "active")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._all = list(segments)
        # The one that is appended to.
        self.active = self._all[-1]
        self._sealed_size = sum(segment.size for segment in self._all[:-1])
        for segment in self._all[:-1]:
            segment.sealed = True

    @property
    def all(self) -> list[Segment]:
        """The segments, the oldest first."""
        return list(self._all)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._sealed_size + self.active.size

    @property
    def first_offset(self) -> int:
        """Where the oldest segment begins."""
        return self._all[0].base_offset

    @property
    def base_offsets(self) -> set[int]:
        """Where segments begin."""
        return {segment.base_offset for segment in self._all}

    def add(self, segment: Segment) -> None:
        """A new active segment; the one before it is sealed from now on."""
        self._sealed_size += self.active.size
        self._all.append(segment)
        self.active = segment

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Replace `old` by `new`: sealed segments that follow each other. Either may be empty, but one must stay."""
        gone = set(old)
        self._all = sorted(
            [*(segment for segment in self._all if segment not in gone), *new], key=lambda s: s.base_offset
        )
        self.active = self._all[-1]
        self._sealed_size = sum(segment.size for segment in self._all[:-1])

    def index_of(self, offset: int) -> int:
        """Return the index of the last segment that begins at `offset` or before it; 0 if there is none."""
        return max(bisect_right(self._all, offset, key=lambda s: s.base_offset) - 1, 0)

    def after(self, offset: int) -> list[tuple[Segment, int]]:
        """Return sealed segments that reach beyond `offset`, each with the offset at which it ends."""
        return [
            (s, following.base_offset)
            for s, following in pairwise(self._all)
            if following.base_offset > offset
        ]

    def slice(
        self, offset: int, bound: int, end_offset: int, max_bytes: int, min_one: bool
    ) -> tuple[FileSlice, int] | None:
        """Return whole batches from the one that holds `offset` up to `bound`, of one segment; see `Log.read`.

        The number is the offset at which they end, −1 if it is not known. `end_offset` is the end of the log. Raises
        OSError, CORRUPT_MESSAGE.
        """
        segment = self.active
        if offset >= segment.base_offset:
            position, segment_end = segment.locate(offset), end_offset
        else:
            segment, position, segment_end = self._locate_sealed(offset, end_offset)
        limit, next_offset = segment.size, segment_end
        if bound < segment_end:
            limit, next_offset = segment.locate(bound), bound
        if limit - position > max_bytes:
            cut = segment.cut(position, position + max_bytes)
            if cut.position == position:
                if not min_one:
                    return None
                header = segment.first_batch(position)
                cut = Cut(position + header.batch_length + LENGTH_OVERHEAD, header.next_offset)
            limit, next_offset = cut
        if limit <= position:
            return None
        if next_offset >= 0:
            segment.remember(next_offset, limit)
        return FileSlice(segment.log.reading(), position, limit - position), next_offset

    def _locate_sealed(self, offset: int, end_offset: int) -> tuple[Segment, int, int]:
        """(segment, position, end offset of the segment) of the first batch that reaches to `offset`.

        Compaction leaves segments that end early, so the first one that is asked may have nothing.
        """
        i = self.index_of(offset)
        while True:
            segment = self._all[i]
            position = segment.locate(offset)
            after = self._all[i + 1] if i + 1 < len(self._all) else None
            if position < segment.size or after is None:
                return segment, position, after.base_offset if after else end_offset
            i += 1

    def find_time(self, timestamp: int, start_offset: int, max_bytes: int) -> TimestampOffset:
        """Return the first record from `start_offset` on whose timestamp is not before `timestamp`."""
        for segment in self._all[self.index_of(start_offset) :]:
            found = segment.find_time(timestamp, start_offset, max_bytes)
            if found is not None:
                return TimestampOffset(*found)
        return NOT_FOUND

    def find_max_time(self, start_offset: int, max_bytes: int) -> TimestampOffset:
        """Return the first record from `start_offset` on that has the largest timestamp."""
        best = NOT_FOUND
        for segment in self._all[self.index_of(start_offset) :]:
            segment.load()
            if segment.max_timestamp > best.timestamp:
                found = segment.find_time(segment.max_timestamp, start_offset, max_bytes)
                best = TimestampOffset(*found) if found else best
        return best

    def offsets_before(self, timestamp: int, limit: int, bounds: LogOffsets, *, now_ms: int) -> list[int]:
        """Return base offsets of segments, newest first, at most `limit`, as ListOffsets v0 lists them.

        `timestamp` −1 begins with the last stable offset, where such clients read to, −2 gives the log start offset
        only; a time in ms gives the segments last written at or before it, and the last stable offset too if that
        time is not before `now_ms`. The first segment's is never below the log start offset. Source: Kafka guide of
        0.9, "Offset API".
        """
        end = bounds.last_stable_offset
        known = [
            (max(s.base_offset, bounds.log_start_offset), int(modified(s.log.path) * 1000))
            for s in self._all
            if s.base_offset <= end
        ]
        if self.active.size and known[-1][0] < end:
            known.append((end, now_ms))
        if timestamp == EARLIEST:
            found = [known[0][0]]
        elif timestamp == LATEST:
            found = [offset for offset, _ in reversed(known)]
        else:
            found = [offset for offset, time in reversed(known) if time <= timestamp]
        return found[: max(limit, 0)]
