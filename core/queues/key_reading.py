"""Records of a partition whose queue delivers one record of a key at a time, in the order of their offsets.

The records are read from the start offset on. A record that is leased or waits for its time blocks its key; so does
the first available one, for it is delivered. Records without a key block nothing.
"""

from __future__ import annotations

from core.queues.key_order import MAX_LOOK_AHEAD, MAX_LOOK_AHEAD_BYTES
from core.queues.reading import Found, Reading, size_of
from core.queues.share import Share
from core.queues.share_changes import AVAILABLE, DELAYED, LEASED
from core.vocabulary.queues import AcquiredRange

# Records of one read.
_PIECE = 1_000


class KeyReading:
    """Finds records in the order of their keys."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def find(self, share: Share, end: int, left: int, room: int, *, committed: bool) -> Found:
        """Return the next records that may be leased; see `Reading.read`."""
        found = Found()
        machine = share.machine
        left = min(left, machine.free)
        blocked: set[bytes] = set()
        position, scanned, seen = machine.start, 0, 0
        last = min(end, position + MAX_LOOK_AHEAD) - 1
        while left > 0 and position <= last and seen < MAX_LOOK_AHEAD_BYTES:
            until = min(position + _PIECE - 1, last)
            piece = self._reading.read(
                share, [AcquiredRange(position, until, 0)], 1 << 20, committed=committed
            )
            found.missing += [
                (low, high) for low, high in piece.missing if machine.cell(low).state == AVAILABLE
            ]
            found.corrupt += [
                (low, high) for low, high in piece.corrupt if machine.cell(low).state == AVAILABLE
            ]
            position = 1 + max(
                (high for _, high in (*piece.missing, *piece.corrupt)),
                default=-1,
            )
            if piece.records:
                position = max(position, piece.records[-1].offset + 1)
            if position <= 0:
                break
            for record in piece.records:
                scanned += 1
                size = size_of(record)
                seen += size
                state = machine.cell(record.offset).state
                if state in (LEASED, DELAYED):
                    if record.key is not None:
                        blocked.add(record.key)
                    continue
                if state != AVAILABLE or record.key in blocked:
                    continue
                if record.key is not None:
                    blocked.add(record.key)
                if found.records and found.size + size > room:
                    return found
                found.records.append(record)
                found.size += size
                left -= 1
                if left <= 0:
                    return found
        return found
