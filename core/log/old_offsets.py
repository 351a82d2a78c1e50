"""The offsets of segments, as ListOffsets v0 lists them (Kafka guide of 0.9, "Offset API")."""

from __future__ import annotations

from core.log.files import modified
from core.log.log import Log

LATEST, EARLIEST = -1, -2


def segment_offsets(log: Log, timestamp: int, limit: int, *, now_ms: int) -> list[int]:
    """Offsets at which a reader may begin, newest first, at most `limit`.

    `timestamp` −1 begins with the end of the log, −2 gives the start only; a time in ms gives the segments
    last written at or before it, and the end too when that time has not come before `now_ms`. The base offset of the
    oldest segment is never below the log's start.
    """
    start, _, end = log.offsets
    bounds: list[tuple[int, int]] = [
        (max(s.base_offset, start), int(modified(s.log.path) * 1000)) for s in log.segments.all
    ]
    if log.segments.active.size:
        bounds.append((end, now_ms))
    if timestamp == EARLIEST:
        found = [bounds[0][0]]
    elif timestamp == LATEST:
        found = [offset for offset, _ in reversed(bounds)]
    else:
        found = [o for o, time in reversed(bounds) if time <= timestamp]
    return found[: max(limit, 0)]
