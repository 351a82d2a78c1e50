"""Truncate a log: a follower drops what its leader does not have.

The steps of a truncation (a cut), and the log that a crash leaves after each of them:

    0  the recovery point is set back to the cut, durably     the log is as before
       (`Log.begin_cut`, then the caller writes a checkpoint)
    1  producer snapshots after the cut are removed           the log is as before
    2  segments after it are removed, the newest first        a log that ends at the end of a segment
    3  the segment with the cut is cut, in one call           a cut log, with leader epochs of dropped batches
    4  the list of leader epochs is cut                       a cut log; the next flush makes it durable

After each step recovery finds whole batches up to some end between the cut and the old log end offset. It drops the
epochs and snapshots after that end, and the follower cuts again. Without step 0 recovery would take the records up to
the old recovery point for lost, and leave a hole.

This module does steps 1 to 3; `Log.truncate_to` does step 4 and everything in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from core.log.producer_state import Snapshots
from core.log.segment import Segment
from core.log.segments import Segments


class Place(NamedTuple):
    """Where to cut: the number of a segment, a position in bytes in it, and the log end offset after the cut."""

    segment: int
    position: int
    end: int


def find_place(segments: Segments, offset: int) -> Place:
    """Return the place before the batch that holds `offset`. Raises OSError, CORRUPT_MESSAGE."""
    index = segments.index_of(offset)
    segment = segments.all[index]
    position = segment.locate(offset)
    if position < segment.size:
        return Place(index, position, min(offset, segment.first_batch(position).base_offset))
    return Place(index, position, offset)


def cut(
    segments: Segments,
    snapshots: Snapshots,
    place: Place,
    new_segment: Callable[[int], Segment],
    remove_files: Callable[[Segment], None],
) -> None:
    """Do steps 1 to 3. Raises OSError; recovery then puts in order what is there."""
    snapshots.truncate_to(place.end)
    if place.segment == place.position == 0:
        begin_again(segments, snapshots, place.end, new_segment, remove_files)
        return
    if place.position == 0:
        _replace_from(segments, place.segment, place.end, new_segment, remove_files)
        return
    segment, *later = segments.all[place.segment :]
    _remove(later, remove_files)
    segment.flush_indexes()
    segment.shorten(place.position, place.end)
    segments.replace(later, [])


def begin_again(
    segments: Segments,
    snapshots: Snapshots,
    offset: int,
    new_segment: Callable[[int], Segment],
    remove_files: Callable[[Segment], None],
) -> None:
    """Remove all segments and snapshots, and begin an empty segment at `offset`. Raises OSError."""
    _replace_from(segments, 0, offset, new_segment, remove_files)
    snapshots.truncate_to(0)


def _replace_from(
    segments: Segments,
    index: int,
    end: int,
    new_segment: Callable[[int], Segment],
    remove_files: Callable[[Segment], None],
) -> None:
    """Remove the segments from `index` on; an empty one begins at `end`."""
    dropped = segments.all[index:]
    _remove(dropped, remove_files)
    segment = new_segment(end)
    segment.log.appending()
    segment.mark_loaded()
    segments.replace(dropped, [segment])


def _remove(segments: Sequence[Segment], remove_files: Callable[[Segment], None]) -> None:
    for segment in reversed(segments):
        remove_files(segment)
