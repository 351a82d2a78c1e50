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

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from core.errors import BrokerError, ErrorCode
from core.queues import redelivery
from core.queues.cells import TICK_MS, Cells, Packed, Segment
from core.queues.share_changes import (
    ARCHIVING,
    AVAILABLE,
    CAUSES,
    DELAYED,
    DONE,
    FRESH,
    LEASED,
    SETTLED,
    VOLATILE,
    Cell,
    Change,
    Run,
    decode,
)
from core.vocabulary.queues import (
    MAX_HOLD_MS,
    AcknowledgeBatch,
    AcquiredRange,
    Cause,
    Outcome,
    QueueSettings,
    Verb,
)

# Offsets between the start offset and the end of what is tracked; no new offset is acquired beyond it.
MAX_TRACKED: Final = 5_000_000
# Chunks of 15 KiB, so 64 MB: no new offset is acquired while there are more.
MAX_CHUNKS: Final = 4_300
# First extensions that are remembered before those of leases that have ended are dropped.
_MIN_HELD: Final = 1_024

# Runs of one call of `expire`: each costs about 10 microseconds.
_MAX_RUNS: Final = 500

_GAP, _ACCEPT, _RELEASE, _REJECT, _RENEW = range(5)
_IN_FLIGHT = (LEASED, DELAYED, ARCHIVING)
_WATCHED = (AVAILABLE, SETTLED, ARCHIVING)


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


class _Snapshot(msgspec.Struct, array_like=True, frozen=True):
    at_ms: int
    start: int
    end: int
    nonce: int
    held: dict[int, int]
    reasons: dict[int, str]
    chunks: list[Packed]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Snapshot).decode


class SharePartition:
    """The records of one partition of a queue. `settings` may be replaced at any time.

    `nonce` is a part of every receipt: the caller compares it, and answers GONE if it differs.
    """

    def __init__(self, settings: QueueSettings, start: int, nonce: int) -> None:
        self.settings = settings
        self.nonce = nonce
        self._start = start
        self._cells = Cells(start)
        # The time of the first extension of a lease.
        self._held: dict[int, int] = {}
        self._most_held = _MIN_HELD
        self._reasons: dict[int, str] = {}
        self._now = 0
        # For the order by key: runs that became available, given up or settled are added here.
        self.watch: list[tuple[int, int, int]] | None = None

    @classmethod
    def restored(
        cls, settings: QueueSettings, snapshot: bytes, updates: Iterable[bytes], now_ms: int
    ) -> SharePartition:
        """Return a partition as its snapshot and the rows stored after it say. Call `expire` next.

        The first snapshot of a partition is that of a new one. Raises ValueError if they cannot be decoded.
        """
        found = _decode(snapshot)
        made = cls(settings, found.start, found.nonce)
        made._now = found.at_ms
        made._cells = Cells(found.end)
        made._cells.unpack(found.chunks)
        made._held, made._reasons = dict(found.held), dict(found.reasons)
        for row in updates:
            made._apply(decode(row))
        made._after_restart(now_ms)
        return made

    def _after_restart(self, now_ms: int) -> None:
        """End the leases of sessions, and move all times if the wall clock was set back."""
        if now_ms < self._now:
            self._cells.shift(now_ms - self._now)
            self._held = {lease: since + now_ms - self._now for lease, since in self._held.items()}
        self._now = now_ms
        if not self._cells.has_lease_from(VOLATILE):
            return
        for first, last, cell in list(self._cells.with_state(LEASED, self._start, self.tracked_end - 1)):
            if cell.lease >= VOLATILE:
                self._cells.put(first, last, Cell(AVAILABLE, cell.deliveries, 0, 0))

    # --- what is -----------------------------------------------------------------------------------------------

    @property
    def start(self) -> int:
        """The start offset: every record below it is settled."""
        return self._start

    @property
    def tracked_end(self) -> int:
        """The end (exclusive) of the offsets with a state of their own. Records from here on are available."""
        return self._cells.end

    @property
    def available(self) -> int:
        """Available records below `tracked_end`. Add the log's end − `tracked_end` for all."""
        return self._cells.counts[AVAILABLE]

    @property
    def leased(self) -> int:
        """Records that are leased."""
        return self._cells.counts[LEASED]

    @property
    def delayed(self) -> int:
        """Records whose time has not come."""
        return self._cells.counts[DELAYED]

    @property
    def archiving(self) -> int:
        """Records that are given up and not yet in the dead-letter topic."""
        return self._cells.counts[ARCHIVING]

    @property
    def free(self) -> int:
        """How many records may be acquired now by `max_in_flight`, which counts leased, delayed and given up ones."""
        return max(0, self.settings.max_in_flight - self.leased - self.delayed - self.archiving)

    @property
    def held(self) -> Mapping[int, int]:
        """The times of the first extension of leases."""
        return self._held

    @property
    def chunks(self) -> int:
        """The number of chunks in memory, 15 KiB each."""
        return self._cells.chunks

    def next_due(self) -> int | None:
        """Return the time at which `expire` has something to do; None if no lock and no delay runs."""
        return self._cells.next_due()

    def cell(self, offset: int) -> Cell:
        """Return the state of one record."""
        return self._cells.get(offset)

    def candidates(
        self, end: int, max_records: int, *, after: int = -1, limited: bool = True
    ) -> list[AcquiredRange]:
        """Return what `acquire` would take, from the oldest after `after` on, and change nothing.

        `end` is exclusive: the high watermark or the last stable offset. `delivery_count` is the present one.
        `limited` False leaves `max_in_flight` out.
        """
        most = min(max_records, self.free) if limited else max_records
        taken: list[AcquiredRange] = []
        for first, last, cell in self._available(end, after):
            if most <= 0:
                break
            last = min(last, first + most - 1)
            most -= last - first + 1
            _add_range(taken, first, last, cell.deliveries)
        return taken

    def lease_ranges(self, lease: int) -> list[AcquiredRange]:
        """Return the records that a lease still holds."""
        found: list[AcquiredRange] = []
        for first, last, cell in self._cells.of_lease(lease):
            _add_range(found, first, last, cell.deliveries)
        return found

    def leases_of(self, leases: Collection[int]) -> Iterator[tuple[int, int, int]]:
        """Yield lease, first and last offset of the records that these leases still hold, in one pass."""
        for first, last, cell in self._cells.with_state(LEASED, self._start, self.tracked_end - 1):
            if cell.lease in leases:
                yield cell.lease, first, last

    def in_flight(self, after: int, limit: int) -> list[tuple[int, Cell]]:
        """Return up to `limit` records that are leased, delayed or archiving, from the one after `after` on."""
        found: list[tuple[int, Cell]] = []
        for first, last, cell in self._cells.segments(max(self._start, after + 1), self.tracked_end - 1):
            if cell.state in _IN_FLIGHT:
                last = min(last, first + limit - len(found) - 1)
                found += [(offset, cell) for offset in range(first, last + 1)]
                if len(found) >= limit:
                    break
        return found

    def _available(self, end: int, after: int) -> Iterator[Segment]:
        """Yield the records that may be acquired, the oldest first: those tracked, then new ones."""
        for segment in self._cells.available(after):
            if segment.first >= end:
                return
            yield segment if segment.last < end else segment._replace(last=end - 1)
        first = max(self.tracked_end, after + 1)
        last = min(end, self._start + MAX_TRACKED) - 1
        if first <= last and self._cells.chunks < MAX_CHUNKS:
            yield Segment(first, last, FRESH)

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
        key order and for whole batches. `isolate`: records near the delivery limit are taken fewer at a time, at
        last one (KIP-932, poison messages).
        """
        most = min(max_records, self.free)
        after = within[0][0] - 1 if within else -1
        found = self._available(end, after)
        if within is not None:
            found = _within(found, within)
        taken: list[AcquiredRange] = []
        runs: list[Run] = []
        for first, last, cell in found:
            if most <= 0:
                break
            last = min(last, first + most - 1)
            if isolate and self._near_limit(cell):
                if runs:
                    break
                last = min(last, first + self._fewer(cell, last - first + 1) - 1)
                most = 0
            most -= last - first + 1
            deliveries = redelivery.next_count(self.settings, cell)
            runs.append(Run(first, last, cell, Cell(LEASED, deliveries, lease, deadline_ms)))
            _add_range(taken, first, last, deliveries)
        return taken, self._changed(now_ms, runs)

    def _near_limit(self, cell: Cell) -> bool:
        limit = self.settings.delivery_limit
        return limit is not None and cell.deliveries >= max(2, -(-limit // 2))

    def _fewer(self, cell: Cell, records: int) -> int:
        """Return half of the records, or one for the last delivery."""
        limit = self.settings.delivery_limit
        return 1 if limit is not None and cell.deliveries >= limit - 1 else max(1, records // 2)

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

        `delay_ms` None is the back-off of the settings. `reason` is a part of the dead letter. Offsets from
        `tracked_end` on are INVALID.
        """
        outcomes: list[SettledRange] = []
        runs: list[Run] = []
        spare = self.free
        for low, high, cell in self._with_ends(first, last, outcomes):
            if cell.state in (SETTLED, ARCHIVING) or cell.lease != lease or not lease:
                _add_outcome(outcomes, low, high, _refused(cell, verb))
                continue
            live = cell.state == LEASED
            after = self._settled(now_ms, verb, cell, delay_ms, counted=counted)
            if cell.state == AVAILABLE and after.state == DELAYED:
                # A longer delay holds, unless it would exceed the limit of records in flight.
                number = high - low + 1
                after, spare = (after, spare - number) if number <= spare else (cell, spare)
            late = not live or cell.time <= _floor(now_ms)
            _add_outcome(outcomes, low, high, Outcome.LATE if late else Outcome.SETTLED)
            if after != cell:
                runs.append(Run(low, high, cell, after))
        self._add_invalid(first, last, outcomes)
        change = self._changed(now_ms, runs, reason=reason if verb is Verb.REJECT else "")
        return outcomes, change

    def _settled(self, now_ms: int, verb: Verb, cell: Cell, delay_ms: int | None, *, counted: bool) -> Cell:
        """Return what a record of a lease is after a settlement."""
        settings = self.settings
        if verb is Verb.ACCEPT:
            return DONE
        if verb is Verb.REJECT:
            return redelivery.given_up(settings, cell, Cause.REJECTED)
        if verb is not Verb.RELEASE:
            raise ValueError(f"{verb} does not settle")
        if delay_ms is not None:
            delay_ms = min(delay_ms, settings.max_delay_ms)
        if cell.state != LEASED:
            # It is released already; a longer delay holds.
            until = now_ms + (delay_ms or 0)
            return cell._replace(state=DELAYED, time=until) if delay_ms and until > cell.time else cell
        if not counted:
            cell = cell._replace(deliveries=max(0, cell.deliveries - 1))
        elif redelivery.gives_up(settings, cell):
            return redelivery.given_up(settings, cell, Cause.LIMIT)
        if delay_ms is None:
            delay_ms = redelivery.pause_ms(settings, cell) if counted else 0
        return redelivery.again(cell, now_ms, delay_ms)

    def extend(
        self, now_ms: int, lease: int, first: int, last: int, lock_ms: int
    ) -> tuple[list[SettledRange], Change | None]:
        """Let the lock of records run `lock_ms` from now on, at most MAX_HOLD_MS from the first extension on."""
        outcomes: list[SettledRange] = []
        runs: list[Run] = []
        since = self._held.get(lease, now_ms)
        until, floor = min(now_ms + lock_ms, since + MAX_HOLD_MS), _floor(now_ms)
        for low, high, cell in self._with_ends(first, last, outcomes):
            if cell.state != LEASED or cell.lease != lease or cell.time <= floor or until <= floor:
                _add_outcome(outcomes, low, high, Outcome.LEASE_LOST)
                continue
            _add_outcome(outcomes, low, high, Outcome.SETTLED)
            if cell.time != until:
                runs.append(Run(low, high, cell, cell._replace(time=until)))
        self._add_invalid(first, last, outcomes)
        held = {lease: since} if runs and lease not in self._held else {}
        return outcomes, self._changed(now_ms, runs, held=held)

    def acknowledge(
        self, now_ms: int, lease: int, batches: Sequence[AcknowledgeBatch], lock_ms: int
    ) -> Change | None:
        """Settle batches of a share consumer: all or nothing. Offsets below the start offset are passed over.

        Raises INVALID_RECORD_STATE if a record is not leased by `lease` or its lock has run out, INVALID_REQUEST if
        batches overlap or descend, or their types are not 1 or as many as offsets, or unknown (KIP-932).
        """
        runs: list[Run] = []
        floor = _floor(now_ms)
        for first, last, kind in list(_typed(batches)):
            if last >= self.tracked_end:
                raise _not_acquired(first, last)
            for low, high, cell in self._cells.segments(max(first, self._start), last):
                if cell.state != LEASED or cell.lease != lease or cell.time <= floor:
                    raise _not_acquired(low, high)
                runs.append(Run(low, high, cell, self._acknowledged(now_ms, kind, cell, lock_ms)))
        return self._changed(now_ms, runs)

    def _acknowledged(self, now_ms: int, kind: int, cell: Cell, lock_ms: int) -> Cell:
        if kind == _RENEW:
            return cell._replace(time=now_ms + lock_ms)
        if kind == _RELEASE:
            return self._settled(now_ms, Verb.RELEASE, cell, None, counted=True)
        return self._settled(
            now_ms, Verb.REJECT if kind == _REJECT else Verb.ACCEPT, cell, None, counted=True
        )

    def _with_ends(self, first: int, last: int, outcomes: list[SettledRange]) -> Iterator[Segment]:
        """Yield the cells of a range above the start offset; add the outcome of what lies below."""
        if first < self._start:
            _add_outcome(outcomes, first, min(last, self._start - 1), Outcome.ALREADY_SETTLED)
        yield from self._cells.segments(max(first, self._start), last)

    def _add_invalid(self, first: int, last: int, outcomes: list[SettledRange]) -> None:
        if last >= self.tracked_end:
            _add_outcome(outcomes, max(first, self.tracked_end), last, Outcome.INVALID)

    # --- time, the log, the dead letters -----------------------------------------------------------------------

    def expire(self, now_ms: int, max_chunks: int = 64) -> Expired:
        """Take back what has run out, make available what is due. Looks at `max_chunks` pieces of 1,024 offsets.

        If there is more, `next_due` returns a time that has passed. A call takes 20 ms at most.
        """
        timed_out = due = 0
        runs: list[Run] = []
        stored: list[Run] = []
        floor = _floor(now_ms)
        for first, last, cell in self._cells.due(now_ms, max_chunks, _MAX_RUNS):
            if cell.state == DELAYED:
                due += last - first + 1
                runs.append(Run(first, last, cell, cell._replace(state=AVAILABLE, time=0)))
                continue
            timed_out += last - first + 1
            after = redelivery.returned(self.settings, cell, cell.time, Cause.EXPIRED)
            if after.state == DELAYED and after.time <= floor:
                after = after._replace(state=AVAILABLE, time=0)
            run = Run(first, last, cell, after)
            runs.append(run)
            if after.state in (ARCHIVING, SETTLED):
                stored.append(run)
        self._changed(now_ms, runs)
        return Expired(timed_out, due, Change(self._now, self.tracked_end, stored) if stored else None)

    def missing(self, now_ms: int, first: int, last: int) -> Change | None:
        """Settle offsets that the log does not have: compacted, control records, aborted. No delivery counts."""
        return self._settle_all(now_ms, first, last)

    def given_up(self, limit: int) -> list[GivenUp]:
        """Return the oldest records to write to the dead-letter topic, `limit` of them at most."""
        found: list[GivenUp] = []
        for first, last, cell in self._cells.with_state(ARCHIVING, self._start, self.tracked_end - 1):
            last = min(last, first + limit - 1)
            limit -= last - first + 1
            found.append(GivenUp(first, last, cell.deliveries, CAUSES[cell.time]))
            if limit <= 0:
                break
        return found

    def reason(self, offset: int) -> str:
        """Return what the receiver said that rejected a record; "" if it said nothing."""
        return self._reasons.get(offset, "")

    def archived(self, now_ms: int, first: int, last: int) -> Change | None:
        """Settle records that are in the dead-letter topic."""
        found = self._cells.with_state(ARCHIVING, max(first, self._start), last)
        return self._changed(now_ms, [Run(low, high, cell, DONE) for low, high, cell in found])

    def trim(self, now_ms: int, log_start: int) -> Change | None:
        """Settle what lies below the log start offset, except what is on its way to the dead letters.

        `Change.lost` counts the records among them that were not settled.
        """
        if log_start <= self._start:
            return None
        change = self._settle_all(now_ms, self._start, log_start - 1)
        if change is not None:
            change.lost = sum(run.last - run.first + 1 for run in change.runs)
        return change

    def _settle_all(self, now_ms: int, first: int, last: int) -> Change | None:
        """Settle what is neither settled nor on its way to the dead letters, tracked or not."""
        first = max(first, self._start)
        runs = [
            Run(low, high, cell, DONE)
            for low, high, cell in self._cells.segments(first, last)
            if cell.state not in (SETTLED, ARCHIVING)
        ]
        new = max(first, self.tracked_end)
        if new <= last:
            runs.append(Run(new, last, FRESH, DONE))
        return self._changed(now_ms, runs)

    def cut(self, now_ms: int, log_end: int, nonce: int) -> Change | None:
        """Forget everything from the log end offset on: the log was truncated. None if nothing was known of it.

        Otherwise every lease ends: its records are available, and the new nonce makes receipts GONE.
        """
        if log_end >= self.tracked_end:
            return None
        leased = self._cells.with_state(LEASED, self._start, log_end - 1)
        runs = [
            Run(first, last, cell, Cell(AVAILABLE, cell.deliveries, 0, 0)) for first, last, cell in leased
        ]
        change = Change(max(now_ms, self._now), log_end, runs, nonce=nonce)
        self._apply(change)
        return change

    def seek(self, now_ms: int, start: int, nonce: int) -> Change:
        """Begin at another offset. Every lease ends; records on their way to the dead letters stay so."""
        kept = list(self._cells.with_state(ARCHIVING, self._start, self.tracked_end - 1))
        at = begin = min(start, kept[0].first) if kept else start
        runs: list[Run] = []
        for first, last, cell in kept:
            if at < (until := min(first, start)):
                runs.append(Run(at, until - 1, FRESH, DONE))
            runs.append(Run(first, last, cell, cell))
            at = last + 1
        if at < start:
            runs.append(Run(at, start - 1, FRESH, DONE))
        end = max(start, at)
        change = Change(
            max(now_ms, self._now),
            end,
            runs,
            start=begin,
            reset=True,
            nonce=nonce,
            reasons=dict(self._reasons),
        )
        self._apply(change)
        return change

    # --- the store ---------------------------------------------------------------------------------------------

    def _changed(
        self, now_ms: int, runs: list[Run], *, held: dict[int, int] | None = None, reason: str = ""
    ) -> Change | None:
        """Carry out runs, and return them as a change; None if there are none."""
        if not runs:
            return None
        self._now = max(self._now, now_ms)
        change = Change(self._now, max(self.tracked_end, runs[-1].last + 1), runs, held=held or {})
        if reason:
            change.reasons = {
                offset: reason
                for first, last, _, after in runs
                if after.state == ARCHIVING
                for offset in range(first, last + 1)
            }
        self._apply(change)
        return change

    def _apply(self, change: Change) -> None:
        """Make the state what a change says: the same for a call and for a stored row."""
        cells = self._cells
        if change.reset:
            cells = self._cells = Cells(change.start)
            self._start = change.start
            self._held, self._reasons = {}, {}
        if change.tracked_end < cells.end:
            cells.cut(change.tracked_end)
            self._reasons = {
                offset: reason for offset, reason in self._reasons.items() if offset < change.tracked_end
            }
        if change.nonce is not None:
            self.nonce = change.nonce
            self._held = {}
        for first, last, _, after in change.runs:
            cells.put(first, last, after)
            if self.watch is not None and after.state in _WATCHED:
                self.watch.append((first, last, after.state))
            if self._reasons and after.state != ARCHIVING:
                self._forget_reasons(first, last)
        if cells.end < change.tracked_end:
            cells.put(cells.end, change.tracked_end - 1, FRESH)
        lowest = min([run.first for run in change.runs]) if change.runs else cells.end
        if lowest <= self._start or cells.end < self._start:
            self._start = cells.first_unsettled(min(self._start, lowest, cells.end))
        if change.reasons:
            self._reasons.update(change.reasons)
        if change.held:
            self._hold(change.held)
        self._now = max(self._now, change.at_ms)

    def _forget_reasons(self, first: int, last: int) -> None:
        if last - first < len(self._reasons):
            for offset in range(first, last + 1):
                self._reasons.pop(offset, None)
        else:
            self._reasons = {
                offset: reason for offset, reason in self._reasons.items() if not first <= offset <= last
            }

    def _hold(self, held: dict[int, int]) -> None:
        """Remember when leases were first extended; drop those that have ended, from time to time."""
        self._held.update(held)
        if len(self._held) > self._most_held:
            live = self._cells.live_leases()
            self._held = {lease: since for lease, since in self._held.items() if lease in live}
            self._most_held = max(_MIN_HELD, 2 * len(self._held))

    def undo(self, change: Change) -> Change | None:
        """Take a change back that the store refused: what is still as it says becomes what it was before.

        Returns this as a change, for a caller that has stored a snapshot meanwhile. A refused `cut` or `seek` cannot
        be undone: load the partition from the store again. Raises ValueError for it.
        """
        if change.nonce is not None:
            raise ValueError("a cut or a seek cannot be undone")
        whole: list[Run] = []
        for first, last, before, after in reversed(change.runs):
            runs = [
                Run(low, high, cell, before)
                for low, high, cell in self._cells.segments(first, last)
                if cell == after
            ]
            self._changed(self._now, runs)
            whole += runs
        return Change(self._now, self.tracked_end, whole) if whole else None

    def snapshot(self) -> bytes:
        """Return everything, in place of all rows so far: 15 bytes a tracked record; compress it in a thread."""
        return _encode(
            _Snapshot(
                self._now,
                self._start,
                self.tracked_end,
                self.nonce,
                self._held,
                self._reasons,
                self._cells.pack(),
            )
        )


def _floor(now_ms: int) -> int:
    """Return the last tick: locks and delays up to it have ended."""
    return now_ms - now_ms % TICK_MS


def _add_range(ranges: list[AcquiredRange], first: int, last: int, deliveries: int) -> None:
    """Add offsets to ranges, joined with the last one if they continue it."""
    if ranges:
        before = ranges[-1]
        if before.last == first - 1 and before.delivery_count == deliveries:
            ranges[-1] = AcquiredRange(before.first, last, deliveries)
            return
    ranges.append(AcquiredRange(first, last, deliveries))


def _add_outcome(outcomes: list[SettledRange], first: int, last: int, outcome: Outcome) -> None:
    if outcomes:
        before = outcomes[-1]
        if before.last == first - 1 and before.outcome is outcome:
            outcomes[-1] = SettledRange(before.first, last, outcome)
            return
    outcomes.append(SettledRange(first, last, outcome))


def _refused(cell: Cell, verb: Verb) -> Outcome:
    """Return the outcome for a record that the lease does not hold."""
    if cell.state == SETTLED or (cell.state == ARCHIVING and verb is Verb.REJECT):
        return Outcome.ALREADY_SETTLED
    return Outcome.LEASE_LOST


def _within(found: Iterator[Segment], ranges: Sequence[tuple[int, int]]) -> Iterator[Segment]:
    """Yield the parts of ascending segments that lie in ascending ranges."""
    at = 0
    for first, last, cell in found:
        while at < len(ranges) and ranges[at][0] <= last:
            low, high = ranges[at]
            if high >= first:
                yield Segment(max(first, low), min(last, high), cell)
            if high > last:
                break
            at += 1
        if at == len(ranges):
            return


def _typed(batches: Sequence[AcknowledgeBatch]) -> Iterator[tuple[int, int, int]]:
    """Yield ranges with one type each. Raises INVALID_REQUEST."""
    end = -1
    for first, last, types in batches:
        if first < 0 or first < end or last < first:
            raise _bad(f"The batch {first} to {last} overlaps the one before it, or descends.")
        end = last + 1
        if len(types) not in (1, end - first):
            raise _bad(f"The batch {first} to {last} has {len(types)} types: send 1, or one for each offset.")
        if any(not _GAP <= kind <= _RENEW for kind in types):
            raise _bad(
                "Unknown acknowledge type: use 0 (gap), 1 (accept), 2 (release), 3 (reject), 4 (renew)."
            )
        if len(types) == 1:
            yield first, last, types[0]
            continue
        at = first
        for offset in range(first, end):
            if offset == last or types[offset + 1 - first] != types[at - first]:
                yield at, offset, types[at - first]
                at = offset + 1


def _bad(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)


def _not_acquired(first: int, last: int) -> BrokerError:
    return BrokerError(
        ErrorCode.INVALID_RECORD_STATE,
        f"The offsets {first} to {last} are not acquired by this member, or their lock has run out.",
    )
