"""One partition of a queue: which records are available, leased, delayed, given up or settled. No I/O, no clock.

Every call that changes something returns a `Change`. The caller stores `change.encode()` as one row and answers after
that. If the store refuses the row, the caller calls `undo(change)`. From time to time it stores `snapshot()` in place
of the rows so far. After a restart `restored` makes the same partition from the snapshot and the rows.

Times are milliseconds of the Unix epoch, `now_ms` first of all. They must not go back while the process runs: pass
the wall clock of the start plus the monotonic time since. A restart may find a wall clock that was set back; then all
stored times move by the difference, so no lease gets longer. Locks and delays end at multiples of TICK_MS.

A receiver's lease is a number that the caller gives, from 1 to VOLATILE − 1; it is never used again. The lease of a
share consumer is its session's: VOLATILE or more; after a restart its records are available at once.

The start offset is the first offset that is not settled. It moves with the change that settles, before that is
stored. An outcome may rest on a change whose row is on its way to the store: wait for all rows of the partition that
were given to the store before the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from core.queues.share_changes import Cell, Change
from core.vocabulary.queues import (
    AcknowledgeBatch,
    AcquiredRange,
    Cause,
    Outcome,
    QueueSettings,
    Verb,
)

TICK_MS: Final = 50
# Offsets between the start offset and the end of what is tracked; no new offset is acquired beyond it.
MAX_TRACKED: Final = 5_000_000


class SettledRange(NamedTuple):
    """Offsets `first` to `last`, both inclusive, with one outcome."""

    first: int
    last: int
    outcome: Outcome


class GivenUp(NamedTuple):
    """Offsets to write to the dead-letter topic, with one cause and one delivery count."""

    first: int
    last: int
    delivery_count: int
    cause: Cause


class Expired(NamedTuple):
    """What time has changed: locks that ran out, delays that ended, and what must be stored before anything else.

    `change` has the records that are given up because their last delivery ran out. The rest need not be stored: the
    next start computes it again.
    """

    timed_out: int
    due: int
    change: Change | None


class SharePartition:
    """The records of one partition of a queue. `settings` may be replaced at any time.

    `nonce` is a part of every receipt: the caller compares it, and answers GONE if it differs.
    """

    def __init__(self, settings: QueueSettings, start: int, nonce: int) -> None:
        self.settings = settings
        self.nonce = nonce

    @classmethod
    def restored(
        cls, settings: QueueSettings, snapshot: bytes, updates: Iterable[bytes], now_ms: int
    ) -> SharePartition:
        """Return a partition as its snapshot and the rows stored after it say. Call `expire` next.

        The first snapshot of a partition is that of a new one. Raises ValueError if they cannot be decoded.
        """
        raise NotImplementedError

    # --- what is -----------------------------------------------------------------------------------------------

    @property
    def start(self) -> int:
        """The start offset: every record below it is settled."""
        raise NotImplementedError

    @property
    def tracked_end(self) -> int:
        """The end (exclusive) of the offsets with a state of their own. Records from here on are available."""
        raise NotImplementedError

    @property
    def available(self) -> int:
        """Available records below `tracked_end`. Add the log's end − `tracked_end` for all."""
        raise NotImplementedError

    @property
    def leased(self) -> int:
        """Records that are leased."""
        raise NotImplementedError

    @property
    def delayed(self) -> int:
        """Records whose time has not come."""
        raise NotImplementedError

    @property
    def archiving(self) -> int:
        """Records that are given up and not yet in the dead-letter topic."""
        raise NotImplementedError

    @property
    def free(self) -> int:
        """How many records may be acquired now by `max_in_flight`, which counts leased, delayed and given up ones."""
        raise NotImplementedError

    def next_due(self) -> int | None:
        """Return the time at which `expire` has something to do; None if no lock and no delay runs."""
        raise NotImplementedError

    def cell(self, offset: int) -> Cell:
        """Return the state of one record."""
        raise NotImplementedError

    def candidates(
        self, end: int, max_records: int, *, after: int = -1, limited: bool = True
    ) -> list[AcquiredRange]:
        """Return what `acquire` would take, from the oldest after `after` on, and change nothing.

        `end` is exclusive: the high watermark or the last stable offset. `delivery_count` is the present one.
        `limited` False leaves `max_in_flight` out.
        """
        raise NotImplementedError

    def lease_ranges(self, lease: int) -> list[AcquiredRange]:
        """Return the records that a lease still holds."""
        raise NotImplementedError

    def in_flight(self, after: int, limit: int) -> list[tuple[int, Cell]]:
        """Return up to `limit` records that are leased, delayed or archiving, from the one after `after` on."""
        raise NotImplementedError

    # --- receivers ---------------------------------------------------------------------------------------------

    def acquire(
        self,
        now_ms: int,
        lease: int,
        deadline_ms: int,
        end: int,
        max_records: int,
        *,
        within: Sequence[tuple[int, int]] | None = None,
        isolate: bool = False,
    ) -> tuple[list[AcquiredRange], Change | None]:
        """Lease available records below `end`, the oldest first; return them with their new delivery counts.

        Call `expire` before. `within` are ranges (both ends inclusive, ascending): only their offsets are taken, for
        key order and for whole batches; with it `max_records` may be as large as `within` is. `isolate`: records
        near the delivery limit are taken fewer at a time, at last one (KIP-932, poison messages).
        """
        raise NotImplementedError

    def settle(
        self,
        now_ms: int,
        verb: Verb,
        lease: int,
        first: int,
        last: int,
        *,
        delay_ms: int | None = None,
        counted: bool = True,
        reason: str = "",
    ) -> tuple[list[SettledRange], Change | None]:
        """Accept, release or reject records of a lease; return an outcome for every offset from `first` to `last`.

        `delay_ms` None is the back-off of the settings. `reason` goes to the dead letter. Offsets from `tracked_end`
        on are INVALID.
        """
        raise NotImplementedError

    def extend(
        self, now_ms: int, lease: int, first: int, last: int, lock_ms: int
    ) -> tuple[list[SettledRange], Change | None]:
        """Let the lock of records run `lock_ms` from now on, at most MAX_HOLD_MS from the first extension on."""
        raise NotImplementedError

    def acknowledge(
        self, now_ms: int, lease: int, batches: Sequence[AcknowledgeBatch], lock_ms: int
    ) -> Change | None:
        """Settle batches of a share consumer: all or nothing. Offsets below the start offset are passed over.

        Raises INVALID_RECORD_STATE if a record is not leased by `lease` or its lock has run out, INVALID_REQUEST if
        batches overlap or descend, or their types are not 1 or as many as offsets, or unknown (KIP-932).
        """
        raise NotImplementedError

    # --- time, the log, the dead letters -----------------------------------------------------------------------

    def expire(self, now_ms: int, max_chunks: int = 64) -> Expired:
        """Take back what has run out, make available what is due. Looks at `max_chunks` pieces of 1,024 offsets.

        If there is more, `next_due` returns a time that has passed.
        """
        raise NotImplementedError

    def missing(self, now_ms: int, first: int, last: int) -> Change | None:
        """Settle offsets that the log does not have: compacted, control records, aborted. No delivery counts."""
        raise NotImplementedError

    def given_up(self, limit: int) -> list[GivenUp]:
        """Return the oldest records to write to the dead-letter topic, `limit` of them at most."""
        raise NotImplementedError

    def reason(self, offset: int) -> str:
        """Return what the receiver said that rejected a record; "" if it said nothing."""
        raise NotImplementedError

    def archived(self, now_ms: int, first: int, last: int) -> Change | None:
        """Settle records that are in the dead-letter topic."""
        raise NotImplementedError

    def trim(self, now_ms: int, log_start: int) -> Change | None:
        """Settle what lies below the log start offset, except what is on its way to the dead letters.

        `Change.lost` counts the records among them that were not settled.
        """
        raise NotImplementedError

    def cut(self, now_ms: int, log_end: int, nonce: int) -> Change | None:
        """Forget everything from the log end offset on: the log was truncated. None if nothing was known of it.

        Otherwise every lease ends: its records are available, and receipts are GONE by the new nonce.
        """
        raise NotImplementedError

    def seek(self, now_ms: int, start: int, nonce: int) -> Change:
        """Begin at another offset. Every lease ends; records on their way to the dead letters stay so."""
        raise NotImplementedError

    # --- the store ---------------------------------------------------------------------------------------------

    def undo(self, change: Change) -> Change | None:
        """Take a change back that the store refused: what is still as it says becomes what it was before.

        Returns this as a change, for a caller that has stored a snapshot meanwhile. A refused `cut` or `seek` cannot
        be undone: load the partition from the store again. Raises ValueError for it.
        """
        raise NotImplementedError

    def snapshot(self) -> bytes:
        """Return everything, in place of all rows so far: 15 bytes a tracked record; compress it in a thread."""
        raise NotImplementedError
