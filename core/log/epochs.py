"""The leader epochs of a log, and the offset at which each begins (KIP-101).

A consumer or follower that knows only an epoch asks for its end offset. Its records beyond that were never
acknowledged by a later leader. The list is in `leader-epoch-checkpoint`. Every batch has its epoch as well, so a lost
file can be rebuilt from the log.
"""

from __future__ import annotations

from bisect import bisect_right

from core.log import files
from core.log.checkpoint import decode_epochs, encode_epochs

UNKNOWN = -1
# An offset that no log reaches.
NEVER = 2**63 - 1


class LeaderEpochs:
    """The epochs of one log, rising, each with its first offset. Changes are written at once."""

    __slots__ = ("_entries", "_path", "latest", "unwritten")

    def __init__(self, path: str) -> None:
        self._path = path
        self._entries: list[tuple[int, int]] = []
        # The newest epoch, −1 if there is none.
        self.latest = UNKNOWN
        # Whether the file is older than the list, because the disk refused it.
        self.unwritten = False

    @property
    def path(self) -> str:
        """Where the file is."""
        return self._path

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), rising."""
        return list(self._entries)

    def load(self) -> bool:
        """Take what the file holds. False if there is no file that can be read."""
        data = files.read_whole(self._path)
        if data is None:
            return False
        try:
            self._set(decode_epochs(data))
        except ValueError:
            return False
        return True

    def assign(self, epoch: int, offset: int) -> None:
        """Let `epoch` begin at `offset`, unless it or a later one has begun already. Raises OSError."""
        if epoch > self.latest:
            # An epoch without records ends where it begins, so it needs no line.
            before = self._entries
            self._set([*(entry for entry in before if entry[1] < offset), (epoch, offset)])
            try:
                self._store()
            except OSError:
                self._set(before)
                raise

    def replace(self, entries: list[tuple[int, int]]) -> None:
        """Take another list, found in the log. Try to write the file."""
        self._set(entries)
        self._store_if_possible()

    def truncate_to(self, offset: int) -> None:
        """The log ends at `offset` now: forget epochs that begin there or later."""
        kept = [entry for entry in self._entries if entry[1] < offset]
        if kept != self._entries:
            self._set(kept)
            self._store_if_possible()

    def truncate_prefix(self, offset: int) -> None:
        """The log starts at `offset` now: forget epochs that ended before, move the start of the one it is in."""
        covering = bisect_right(self._entries, offset, key=lambda entry: entry[1]) - 1
        if covering > 0 or (covering == 0 and self._entries[0][1] < offset):
            self._set([(self._entries[covering][0], offset), *self._entries[covering + 1 :]])
            self._store_if_possible()

    def epoch_for(self, offset: int) -> int:
        """Return the epoch in which `offset` was or will be written; −1 if not known."""
        return self.span(offset)[0]

    def span(self, offset: int) -> tuple[int, int]:
        """Return the epoch of `offset`, −1 if not known, and where the next one begins, 2⁶³−1 if there is none."""
        after = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        end = self._entries[after][1] if after < len(self._entries) else NEVER
        return (self._entries[after - 1][0] if after else UNKNOWN), end

    def end_offset_for(self, epoch: int, log_end_offset: int, current: int = UNKNOWN) -> tuple[int, int]:
        """(largest epoch not above `epoch`, the offset at which it ended), as OffsetForLeaderEpoch answers.

        `current` is the epoch of the leader, in which nothing may have been written yet: it begins at the end of
        the log then. (−1, −1) if the epoch is above all that are known, or none is asked for.
        """
        newest = max(self.latest, current)
        if epoch == UNKNOWN or epoch > newest:
            return UNKNOWN, UNKNOWN
        if epoch >= self.latest:
            known = epoch == newest or self.latest == UNKNOWN
            return (epoch if known else self.latest), log_end_offset
        above = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        end_offset = self._entries[above][1]
        return (self._entries[above - 1][0] if above else epoch), end_offset

    def _set(self, entries: list[tuple[int, int]]) -> None:
        self._entries = entries
        self.latest = entries[-1][0] if entries else UNKNOWN

    def _store(self) -> None:
        self.unwritten = True
        files.write_whole(self._path, encode_epochs(self._entries), durable=False)
        self.unwritten = False

    def _store_if_possible(self) -> None:
        try:
            self._store()
        except OSError:
            return
