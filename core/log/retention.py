"""Which segments are too old or too many, and by which clock.

As Kafka does it: whole segments, the oldest first. A segment is as old as its youngest record. The active
segment is removed too once all of it has expired, after a new, empty one was begun.
"""

from __future__ import annotations

from core.clock import Clock
from core.errors import BrokerError
from core.log.files import modified
from core.log.log import Log
from core.log.segment import Segment
from core.topic_config import LONG_MAX

# A larger step of the wall clock is not accepted at once.
STEP_MS = 60_000
# How long such a step must last. Until then the time continues from its last value.
SETTLE_SECONDS = 3600.0
NEVER = 2**63 - 1


class SettledTime:
    """Wall time that does not jump: a wrong clock must not delete a week of records in one go.

    A step that lasts is taken over after an hour: then it is the old time that was wrong.
    """

    __slots__ = ("_clock", "_offset", "_stepped_at")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.wall_ms() - clock.monotonic() * 1000
        self._stepped_at: float | None = None

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        now = self._clock.monotonic()
        offset = self._clock.wall_ms() - now * 1000
        if abs(offset - self._offset) <= STEP_MS:
            self._offset = offset
            self._stepped_at = None
        elif self._stepped_at is None:
            self._stepped_at = now
        elif now - self._stepped_at >= SETTLE_SECONDS:
            self._offset = offset
            self._stepped_at = None
        return int(now * 1000 + self._offset)


def apply_retention(log: Log, now_ms: int) -> None:
    """Remove the segments of a log that are below its start, too old, or too many. Raises KAFKA_STORAGE_ERROR."""
    segments = log.segments
    count = segments.index_of(log.offsets.log_start_offset)
    if log.config.deletes:
        count = max(count, _expired(log, now_ms), _above_size(log))
    bounds = log.offsets
    if bounds.high_watermark < bounds.log_end_offset:
        # Followers must still be able to copy records that are not committed.
        count = min(count, segments.index_of(bounds.high_watermark))
    if count == 0:
        return
    if count == len(segments.all):
        log.roll()
    log.remove_segments(count)


def next_check_ms(log: Log, cleaned_offset: int) -> int:
    """Return when retention or compaction can next have something to do if nothing is appended, in wall milliseconds.

    `cleaned_offset` is the first offset that compaction has not seen.
    """
    due = NEVER
    oldest = log.segments.all[0]
    if log.config.deletes and log.config.retention_ms >= 0 and oldest.size:
        due = newest_ms(oldest) + log.config.retention_ms
    if log.config.compacted and log.config.max_compaction_lag_ms < LONG_MAX:
        segments = log.segments.all
        new = [segment for segment in segments[log.segments.index_of(cleaned_offset) :] if segment.size]
        if new and cleaned_offset < log.offsets.log_end_offset:
            due = min(due, oldest_ms(new[0]) + log.config.max_compaction_lag_ms)
    return due


def newest_ms(segment: Segment) -> int:
    """Return the time of the youngest record of a segment; that of its last write if its records have no time."""
    try:
        segment.load()
    except (BrokerError, OSError):
        return int(modified(segment.log.path) * 1000)
    if segment.max_timestamp < 0:
        return int(modified(segment.log.path) * 1000)
    return segment.max_timestamp


def oldest_ms(segment: Segment) -> int:
    """Return the time of a segment's first batch; that of its last write if its records have no time."""
    try:
        segment.load()
    except (BrokerError, OSError):
        return int(modified(segment.log.path) * 1000)
    if segment.first_timestamp < 0:
        return int(modified(segment.log.path) * 1000)
    return segment.first_timestamp


def _expired(log: Log, now_ms: int) -> int:
    """Return how many of the oldest segments are older than retention.ms."""
    retention_ms = log.config.retention_ms
    count = 0
    if retention_ms >= 0:
        for segment in log.segments.all:
            empty_end = segment is log.segments.active and segment.size == 0
            if empty_end or now_ms - newest_ms(segment) <= retention_ms:
                break
            count += 1
    return count


def _above_size(log: Log) -> int:
    """Return how many of the oldest segments can be removed while retention.bytes are kept."""
    count = 0
    if log.config.retention_bytes >= 0:
        surplus = log.size - log.config.retention_bytes
        for segment in log.segments.all:
            surplus -= segment.size
            if surplus < 0 or (segment is log.segments.active and segment.size == 0):
                break
            count += 1
    return count
