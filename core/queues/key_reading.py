"""Records of a partition whose queue delivers one record of a key at a time, in the order of their offsets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.queues.key_order import KeyOrder
from core.queues.reading import Found, Reading, size_of
from core.queues.share import Share
from core.records.record import Record
from core.vocabulary.queues import AcquiredRange

# Offsets and bytes of one read ahead.
_PIECE = 1_000
_PIECE_BYTES = 1_048_576
# Reads ahead for one receive: the bound of `KeyOrder` may need some hundred, and each takes a millisecond.
_MOST_PIECES = 20


class KeyReading:
    """Finds records in the order of their keys. `key_hash`: that of Python has a key of its own in each process."""

    def __init__(self, reading: Reading, key_hash: Callable[[bytes], int] = hash) -> None:
        self._reading = reading
        self._hash = key_hash

    def find(self, share: Share, end: int, left: int, room: int, *, committed: bool) -> Found:
        """Return the next records that may be leased; see `Reading.read`.

        `more`: there may be further ones, and the read ahead has ended early.
        """
        found = Found()
        machine = share.machine
        keys = share.keys
        if keys is None:
            keys = share.keys = KeyOrder(machine)
        limit = min(left, machine.free)
        if limit <= 0:
            return found
        read: dict[int, Record] = {}
        picked = keys.pick(limit)
        pieces = 0
        while len(picked) < limit and keys.scanned < end and keys.may_scan:
            if pieces == _MOST_PIECES:
                found.more = True
                break
            pieces += 1
            if not self._scan(share, keys, end, found, read, committed=committed):
                break
            picked = keys.pick(limit)
        self._take(share, picked, found, read, room, committed=committed)
        return found

    def _scan(
        self,
        share: Share,
        keys: KeyOrder,
        end: int,
        found: Found,
        read: dict[int, Record],
        *,
        committed: bool,
    ) -> bool:
        """Read a piece ahead; return False if nothing could be read."""
        first = keys.scanned
        last = min(first + _PIECE, end) - 1
        piece = self._reading.read(share, [AcquiredRange(first, last, 0)], _PIECE_BYTES, committed=committed)
        found.missing += piece.missing
        found.corrupt += piece.corrupt
        for record in piece.records:
            key = None if record.key is None else self._hash(record.key)
            keys.offer(record.offset, key, size_of(record))
            read[record.offset] = record
        for _, high in (*piece.missing, *piece.corrupt):
            keys.skip(high + 1)
        return keys.scanned > first

    def _take(
        self,
        share: Share,
        picked: Sequence[int],
        found: Found,
        read: dict[int, Record],
        room: int,
        *,
        committed: bool,
    ) -> None:
        if any(offset not in read for offset in picked):
            again = self._reading.read(
                share, [AcquiredRange(offset, offset, 0) for offset in picked], room, committed=committed
            )
            found.missing += again.missing
            found.corrupt += again.corrupt
            found.records, found.size = again.records, again.size
            return
        for offset in picked:
            record = read[offset]
            size = size_of(record)
            if found.records and found.size + size > room:
                return
            found.records.append(record)
            found.size += size
