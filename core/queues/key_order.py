"""Which records may be delivered if records of one key are delivered one at a time, in the order of their offsets.

The caller reads the records of a share partition from `scanned` on and offers each with a 64-bit keyed hash of its
key. The first unsettled record of a hash is its head; the others wait until it is accepted or given up. A delay, a
release and a lock that runs out keep the key blocked. Two keys with one hash only wait for each other. A record
without a key waits for none.

Nothing is stored: after a restart, a cut, a seek or a change that the store refused, the caller makes a new object,
which begins at the start offset. How far it reads past the first record that waits is bounded, as in Pulsar.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Final, NamedTuple

from core.queues.share_changes import ARCHIVING, AVAILABLE, LEASED, SETTLED
from core.queues.share_partition import SharePartition

# Offsets past the first record that waits for its key.
MAX_LOOK_AHEAD: Final = 20_000
# Bytes of records that wait for their keys, counted as the caller says.
MAX_WAITING_BYTES: Final = 64 * 1024 * 1024


class _Keyed(NamedTuple):
    key: int
    size: int


class KeyOrder:
    """The keys of the unsettled records of one share partition below `scanned`.

    It follows the partition by itself: what is settled, given up or available again needs no call. One KeyOrder at a
    time follows a partition.
    """

    def __init__(self, machine: SharePartition) -> None:
        self._machine = machine
        # First and last offset, state: since the last look.
        self._events: list[tuple[int, int, int]] = []
        machine.watch = self._events
        self.scanned = machine.start
        self._keyed: dict[int, _Keyed] = {}
        self._heads: dict[int, int] = {}
        self._followers: dict[int, deque[int]] = {}
        # Heaps: records that may be available, and records that may wait. What is in them is looked at again.
        self._ready: list[int] = []
        self._queued: set[int] = set()
        self._waiting: list[int] = []
        self._waiting_bytes = 0
        self._picked: list[int] = []

    # --- reading ahead -----------------------------------------------------------------------------------------

    def offer(self, offset: int, key: int | None, size: int = 0) -> None:
        """Note the next record: the keyed hash of its key, None without a key, and its size in bytes.

        Offsets ascend. Those that are passed over are not in the log, or were settled: see `skip`.
        """
        self._look()
        self.scanned = offset + 1
        state = self._machine.cell(offset).state
        if state in (SETTLED, ARCHIVING):
            return
        if key is None:
            self._offer_ready(offset)
            return
        self._keyed[offset] = _Keyed(key, size)
        head = self._heads.get(key)
        if head is None:
            self._heads[key] = offset
            self._offer_ready(offset)
        elif state == LEASED and self._machine.cell(head).state != LEASED:
            # It was leased before the queue had an order: the key waits for it.
            self._heads[key] = offset
            self._wait(key, head, first=True)
        else:
            self._wait(key, offset)

    def skip(self, until: int) -> None:
        """Note that there is no record between `scanned` and `until`, exclusive."""
        self.scanned = max(self.scanned, until)

    @property
    def may_scan(self) -> bool:
        """Whether the caller may offer more: the records that wait are neither too many nor too large."""
        self._look()
        waiting = self._waiting
        while waiting and not self._waits(waiting[0]):
            heapq.heappop(waiting)
        if not waiting:
            return True
        return self.scanned - waiting[0] < MAX_LOOK_AHEAD and self._waiting_bytes < MAX_WAITING_BYTES

    @property
    def waiting(self) -> bool:
        """Whether any record waits for its key."""
        self._look()
        return any(self._waits(offset) for offset in self._waiting)

    # --- delivery ----------------------------------------------------------------------------------------------

    def pick(self, limit: int) -> list[int]:
        """Return up to `limit` offsets that may be acquired now, the oldest first; below `scanned`.

        Acquire them, or some of them, before the next call; those that were not acquired are picked again.
        """
        self._look()
        for offset in self._picked:
            self._offer_ready(offset)
        picked: list[int] = []
        while self._ready and len(picked) < limit:
            offset = heapq.heappop(self._ready)
            self._queued.discard(offset)
            if self._machine.cell(offset).state == AVAILABLE and self._free(offset):
                picked.append(offset)
        self._picked = picked
        return picked

    def _free(self, offset: int) -> bool:
        keyed = self._keyed.get(offset)
        return keyed is None or self._heads[keyed.key] == offset

    def _waits(self, offset: int) -> bool:
        return offset in self._keyed and not self._free(offset)

    def _offer_ready(self, offset: int) -> None:
        if offset not in self._queued:
            self._queued.add(offset)
            heapq.heappush(self._ready, offset)

    def _wait(self, key: int, offset: int, *, first: bool = False) -> None:
        followers = self._followers.setdefault(key, deque())
        if first:
            followers.appendleft(offset)
        else:
            followers.append(offset)
        self._waiting_bytes += self._keyed[offset].size
        heapq.heappush(self._waiting, offset)

    # --- following the partition -------------------------------------------------------------------------------

    def _look(self) -> None:
        """Take in what has changed in the partition since the last look."""
        if not self._events:
            return
        events = self._events[:]
        self._events.clear()
        for first, last, state in events:
            last = min(last, self.scanned - 1)
            if state == AVAILABLE:
                for offset in range(first, last + 1):
                    if self._free(offset):
                        self._offer_ready(offset)
                continue
            if last - first < len(self._keyed):
                settled = [offset for offset in range(first, last + 1) if offset in self._keyed]
            else:
                settled = sorted(offset for offset in self._keyed if first <= offset <= last)
            for offset in settled:
                self._settled(offset)

    def _settled(self, offset: int) -> None:
        key, size = self._keyed.pop(offset)
        if self._heads[key] != offset:
            # A follower that the log has lost: the deque drops it when its turn comes.
            self._waiting_bytes -= size
            return
        del self._heads[key]
        followers = self._followers.get(key, ())
        while followers:
            following = followers.popleft()
            if following in self._keyed:
                self._heads[key] = following
                self._waiting_bytes -= self._keyed[following].size
                self._offer_ready(following)
                break
        if not followers:
            self._followers.pop(key, None)
