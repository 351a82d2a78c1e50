"""A partition read out of its segment files, on the broker's host: no socket, nothing for the broker to do.

    <log directory>/<topic>-<partition>/<base offset, 20 digits>.log    batches, as a fetch would give them
                                                               .index   last offset of a batch → where it begins
                                                               .txnindex   aborted transactions

The files belong to a broker that writes, deletes and compacts them meanwhile. It is safe because:

- Never beyond the range's end, which ListOffsets gave: below the high watermark nothing is unfinished.
- A file that is open stays readable when it is deleted or replaced; whatever it holds below the end was there when
  the range was planned. At each new file the directory is listed again.
- What aborted transactions wrote is left out by the broker's own index of them, unless the read is read_uncommitted.
  If the segment was deleted while that index was read, the wire is asked.
- An index is a hint: the batch must be where it says, else the file is walked from its beginning.
- Where files do not tell (the first one begins above the offset, or one ends before the next begins: deleted,
  compacted, or just being swapped), the wire is asked for that piece. Gaps and losses are the broker's to explain.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import pyarrow as pa

from core.records.header import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, read_header
from pipeline import limits
from pipeline.decode.decoder import decoder
from pipeline.decode.walk import Place, walk
from pipeline.source.aborted import INDEX_SUFFIX, Aborted, aborted_between
from pipeline.source.options import OptionError, ReadOptions
from pipeline.source.planning import OffsetRange
from pipeline.source.wire_range import wire_range
from pipeline.wire.cluster import Cluster
from pipeline.wire.log_dirs import log_directory

_SUFFIX = ".log"
# What the broker appends to the names of files that it removes a little later.
_DELETED = ".deleted"
_INDEX_ENTRY = Struct(">ii")
_BATCH_LENGTH = Struct(">8xi")


class _Segments(NamedTuple):
    """The files that matter at an offset: where the one begins that may hold it, and where the next one does."""

    holding: int | None
    following: int | None


def segment_range(cluster: Cluster, one: OffsetRange, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The records of one range. Raises OptionError when the files are not on this host, and as `wire_range`."""
    directory = _directory(cluster, one, options)
    offset = one.start
    while offset < one.end:
        before, segments = offset, _find(directory, offset)
        if segments.holding is not None:
            path = directory / f"{segments.holding:020d}{_SUFFIX}"
            reader = _Reader(path, segments.holding, one, options)
            yield from reader.read(offset)
            offset = reader.offset
        if offset == before:
            # No file shows what is between here and the next one; ask the broker.
            segments = _find(directory, offset)
            following = one.end if segments.following is None else min(segments.following, one.end)
            yield from wire_range(cluster, one._replace(start=offset, end=following), options)
            offset = following


def _directory(cluster: Cluster, one: OffsetRange, options: ReadOptions) -> Path:
    root = options.data_dir or log_directory(cluster, one.topic, one.partition)
    directory = Path(root) / f"{one.topic}-{one.partition}"
    if not os.access(directory, os.R_OK | os.X_OK):
        raise OptionError(
            f"transport=segments: {directory} is not there, or not readable, on this host. It is for tasks on the "
            "broker's host alone; dataDir names the directory where it is mounted elsewhere"
        )
    return directory


def _find(directory: Path, offset: int) -> _Segments:
    try:
        names = [file.name for file in directory.iterdir()]
    except FileNotFoundError:
        names = []
    bases = sorted(int(name[: -len(_SUFFIX)]) for name in names if _is_segment(name))
    below = [base for base in bases if base <= offset]
    above = bases[len(below) :]
    return _Segments(below[-1] if below else None, above[0] if above else None)


def _is_segment(name: str) -> bool:
    return name.endswith(_SUFFIX) and name[: -len(_SUFFIX)].isdigit()


class _Reader:
    """One segment file, read from an offset on. `offset` is the next offset to read."""

    def __init__(self, path: Path, base: int, one: OffsetRange, options: ReadOptions) -> None:
        self._path = path
        self._base = base
        self._range = one
        self._columns = options.columns
        self._committed = options.settings.read_committed
        self._aborted: list[Aborted] = []
        self._place = Place(one.topic, one.partition, f"in {path.name}")
        self._buffer = bytearray(limits.SEGMENT_READ_BYTES)
        self.offset = one.start

    def read(self, offset: int) -> Iterator[pa.RecordBatch]:
        """The records from `offset` to the range's end, to the end of the file; nothing if the file was deleted."""
        self.offset = offset
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        with _closing(descriptor):
            if self._committed:
                self._aborted = aborted_between(self._path.parent, offset, self._range.end)
                if not self._is_current(descriptor):
                    return
            yield from self._read(descriptor, self._position(descriptor))

    def _is_current(self, descriptor: int) -> bool:
        """Whether the segment was still there after its aborted transactions were read: they are deleted together."""
        if self._path.with_suffix(f"{INDEX_SUFFIX}{_DELETED}").exists():
            return False
        try:
            return self._path.stat().st_ino == os.fstat(descriptor).st_ino
        except FileNotFoundError:
            return False

    def _aborted_from(self, offset: int) -> tuple[tuple[int, int], ...]:
        """The aborted transactions that have not ended before an offset, as `walk` takes them."""
        return tuple(
            (one.producer_id, one.first_offset) for one in self._aborted if one.last_offset >= offset
        )

    def _read(self, descriptor: int, position: int) -> Iterator[pa.RecordBatch]:
        decode = decoder()
        end = self._range.end
        while self.offset < end:
            data = self._load(descriptor, position)
            walked = walk(data, self.offset, end, self._place, self._aborted_from(self.offset))
            if not walked.consumed:
                if len(data) < len(self._buffer) or not self._grow(data):
                    return
                continue
            start, self.offset = self.offset, max(self.offset, walked.next_offset)
            position += walked.consumed
            yield from decode(data, walked.found, start, end, self._place, self._columns)

    def _load(self, descriptor: int, position: int) -> memoryview:
        return memoryview(self._buffer)[: os.preadv(descriptor, [self._buffer], position)]

    def _grow(self, data: memoryview) -> bool:
        """Enlarge the buffer for a batch that does not fit. Return False if its size makes no sense."""
        size = _BATCH_LENGTH.unpack_from(data)[0] + LENGTH_OVERHEAD
        if not len(self._buffer) < size <= limits.MAX_FRAME_BYTES:
            return False
        self._buffer = bytearray(size)
        return True

    def _position(self, descriptor: int) -> int:
        """Where to begin: at the last batch that the index knows to end at or before the offset."""
        try:
            index = self._path.with_suffix(".index").read_bytes()
        except OSError:
            return 0
        low, high = 0, len(index) // _INDEX_ENTRY.size
        # Kafka allocates the active segment's index beforehand; zeros after the last entry sort above all.
        while low < high:
            middle = (low + high) // 2
            last, position = _INDEX_ENTRY.unpack_from(index, middle * _INDEX_ENTRY.size)
            if (last or position) and self._base + last <= self.offset:
                low = middle + 1
            else:
                high = middle
        if not low:
            return 0
        last, position = _INDEX_ENTRY.unpack_from(index, (low - 1) * _INDEX_ENTRY.size)
        return position if self._is_there(descriptor, position, self._base + last) else 0

    def _is_there(self, descriptor: int, position: int, last_offset: int) -> bool:
        """Whether a batch that ends with `last_offset` begins at `position`."""
        front = os.pread(descriptor, HEADER_SIZE, position)
        if len(front) < HEADER_SIZE:
            return False
        header = read_header(front)
        return header.magic == MAGIC and header.last_offset == last_offset


@contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)
