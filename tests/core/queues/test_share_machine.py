"""The share-partition machine under every order of events, compared with one dict after each step.

Invariants of queues: no two live leases on a record; what was accepted and stored is never delivered again, also
after a restart at any row; nothing is forgotten; the start offset passes no record that is not settled; in flight and
delayed stay within the limit; the counts are those of a recount; settled records take no memory; and a snapshot with
the rows after it is the state in memory, at any time.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from core.errors import BrokerError, ErrorCode
from core.queues import cells
from core.queues.share_changes import LEASED, VOLATILE, Change, decode
from core.queues.share_partition import SharePartition
from core.vocabulary.queues import (
    AcknowledgeBatch,
    AcquiredRange,
    Backoff,
    DeadLetter,
    Outcome,
    QueueSettings,
    Verb,
)
from tests.core.queues.plain_partition import (
    ARCHIVING,
    AVAILABLE,
    DELAYED,
    DONE,
    Fact,
    PlainPartition,
    fact_of,
)
from tests.core.queues.plain_partition import LEASED as LEASED_FACT

NOW = 1_700_000_000_000
BASE = cells.SIZE - 20
SETTINGS = (
    QueueSettings(max_in_flight=30, delivery_limit=2, dead_letter=DeadLetter("dead")),
    QueueSettings(max_in_flight=30, delivery_limit=1, drop=True),
    QueueSettings(max_in_flight=12, delivery_limit=3, backoff=Backoff(200, 3.0, 1_000, 0.5)),
    QueueSettings(max_in_flight=50, delivery_limit=None, backoff=Backoff(70)),
)
offsets = st.integers(0, 70)
lengths = st.integers(1, 25)


def flat(ranges: Iterable[AcquiredRange]) -> dict[int, int]:
    """Return the delivery count of each offset."""
    return {offset: count for first, last, count in ranges for offset in range(first, last + 1)}


class Machine(RuleBasedStateMachine):
    """Calls in any order on a machine, a dict, and a store of which a prefix survives."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.settings = SETTINGS[0]
        self.log_start, self.log_end = 0, BASE + 40
        self.lease, self.nonce = 0, 1
        self.machine = SharePartition(self.settings, BASE, self.nonce)
        self.plain = PlainPartition(self.settings, BASE, BASE, self.nonce)
        self.snapshot = self.machine.snapshot()
        self.rows: list[Change] = []
        # Of `rows`, how many are stored; and what was accepted in those.
        self.stored = 0
        self.accepted: set[int] = set()
        self.leases: list[int] = [0]
        self.lowest_start = BASE
        self.settings_changed = False
        # Whether the store has no less than memory: a delivery may be known that it has refused.
        self.exact = True

    # --- helpers -----------------------------------------------------------------------------------------------

    def noted(self, change: Change | None) -> None:
        """Put a change in line for the store."""
        if change is not None:
            self.rows.append(change)

    def expire(self) -> None:
        """Let the machine see the time, until nothing is due."""
        while (due := self.machine.next_due()) is not None and due <= self.now:
            self.noted(self.machine.expire(self.now, max_chunks=1).change)
        self.plain.expire(self.now)

    def own(self, number: int) -> int:
        """Return one of the latest leases."""
        return self.leases[-1 - number % min(len(self.leases), 4)]

    # --- receivers ---------------------------------------------------------------------------------------------

    @rule(most=st.integers(1, 20), lock=st.integers(1, 400), session=st.booleans(), isolate=st.just(False))
    def acquire(self, most: int, lock: int, session: bool, isolate: bool) -> None:
        self.expire()
        self.lease += 1
        lease = self.lease + (VOLATILE if session else 0)
        expected = self.machine.candidates(self.log_end, most)
        taken, change = self.machine.acquire(
            self.now, lease, self.now + lock, self.log_end, most, isolate=isolate
        )
        self.check_acquired(lease, lock, most, None, taken)
        assert list(flat(expected)) == list(flat(taken))
        self.noted(change)

    @rule(chosen=st.sets(offsets, max_size=12), most=st.integers(1, 20), lock=st.integers(1, 400))
    def acquire_some(self, chosen: set[int], most: int, lock: int) -> None:
        self.expire()
        self.lease += 1
        only = sorted(BASE + offset for offset in chosen)
        taken, change = self.machine.acquire(
            self.now,
            self.lease,
            self.now + lock,
            self.log_end,
            most,
            within=[(offset, offset) for offset in only],
        )
        self.check_acquired(self.lease, lock, most, set(only), taken)
        self.noted(change)

    def check_acquired(
        self, lease: int, lock: int, most: int, only: set[int] | None, taken: list[AcquiredRange]
    ) -> None:
        """Compare an acquisition with that of the dict."""
        given = flat(taken)
        assert not self.accepted & given.keys()
        assert given == self.plain.acquire(lease, self.now + lock, self.log_end, most, only)
        limit = self.settings.delivery_limit
        if limit is not None and self.settings is SETTINGS[0] and not self.settings_changed:
            assert all(count <= limit for count in given.values())
        self.leases.append(lease)
        assert flat(self.machine.lease_ranges(lease)) == given

    @rule(
        verb=st.sampled_from([Verb.ACCEPT, Verb.ACCEPT, Verb.RELEASE, Verb.REJECT]),
        number=st.integers(0, 3),
        at=offsets,
        length=lengths,
        delay=st.sampled_from([None, 0, 1, 130, 10**12]),
        counted=st.booleans(),
    )
    def settle(self, verb: Verb, number: int, at: int, length: int, delay: int | None, counted: bool) -> None:
        lease, first, last = self.own(number), BASE + at, BASE + at + length - 1
        spare = self.plain.free
        outcomes, change = self.machine.settle(
            self.now, verb, lease, first, last, delay_ms=delay, counted=counted, reason="bad"
        )
        if delay is not None:
            delay = min(delay, self.settings.max_delay_ms)
        expected = []
        whole = self.plain.copy()
        for offset in range(first, last + 1):
            outcome, spare = whole.settle(self.now, verb, lease, offset, delay, counted, spare)
            expected.append(outcome)
        # The dict moves its start with each record; the outcome is the same.
        self.plain = whole
        assert self.spread(outcomes, first) == expected
        self.noted(change)

    def spread(self, outcomes: Iterable[tuple[int, int, Outcome]], first: int) -> list[Outcome]:
        """Return the outcome of each offset; they follow each other without a gap."""
        spread: list[Outcome] = []
        for low, high, outcome in outcomes:
            assert low == first + len(spread)
            spread += [outcome] * (high - low + 1)
        return spread

    @rule(number=st.integers(0, 3), at=offsets, length=lengths, lock=st.sampled_from([1, 90, 500, 10**9]))
    def extend(self, number: int, at: int, length: int, lock: int) -> None:
        lease, first = self.own(number), BASE + at
        outcomes, change = self.machine.extend(self.now, lease, first, first + length - 1, lock)
        expected = [self.plain.extend(self.now, lease, first + n, lock) for n in range(length)]
        assert self.spread(outcomes, first) == expected
        self.noted(change)

    @rule(number=st.integers(0, 3), at=offsets, kinds=st.lists(st.integers(0, 4), min_size=1, max_size=6))
    def acknowledge(self, number: int, at: int, kinds: list[int]) -> None:
        lease, first = self.own(number), BASE + at
        whole, floor = self.plain.copy(), self.now - self.now % 50
        legal = True
        for offset, kind in enumerate(kinds, first):
            if offset < self.plain.start:
                continue
            fact = self.plain.facts.get(offset, Fact())
            if fact.state != LEASED_FACT or fact.lease != lease or fact.until <= floor:
                legal = False
            elif kind == 4:
                whole.facts[offset] = Fact(LEASED_FACT, fact.count, lease, self.now + 100)
            else:
                verb = (Verb.ACCEPT, Verb.ACCEPT, Verb.RELEASE, Verb.REJECT)[kind]
                whole.settle(self.now, verb, lease, offset, None, True, 0)
        legal = legal and first + len(kinds) <= self.plain.end
        try:
            batch = AcknowledgeBatch(first, first + len(kinds) - 1, kinds)
            change = self.machine.acknowledge(self.now, lease, [batch], 100)
        except BrokerError as error:
            assert error.code is ErrorCode.INVALID_RECORD_STATE
            assert not legal
            return
        assert legal
        self.plain = whole
        self.noted(change)

    # --- time, the log, the operator ---------------------------------------------------------------------------

    @rule(ms=st.sampled_from([0, 1, 49, 50, 120, 1_000, 5_000, 50_000_000]))
    def pass_time(self, ms: int) -> None:
        self.now += ms
        self.expire()

    @rule(records=st.integers(1, 12))
    def append(self, records: int) -> None:
        self.log_end = min(self.log_end + records, BASE + 90)

    @rule(at=offsets, length=lengths)
    def missing(self, at: int, length: int) -> None:
        last = min(BASE + at + length, self.log_end) - 1
        if BASE + at <= last:
            self.noted(self.machine.missing(self.now, BASE + at, last))
            self.plain.settle_all(BASE + at, last)

    @rule(at=offsets, length=lengths)
    def archived(self, at: int, length: int) -> None:
        given = self.machine.given_up(1_000)
        listed = {(n, r.cause) for r in given for n in range(r.first, r.last + 1)}
        assert listed == {(n, f.cause) for n, f in self.plain.facts.items() if f.state == ARCHIVING}
        self.noted(self.machine.archived(self.now, BASE + at, BASE + at + length - 1))
        self.plain.archived(BASE + at, BASE + at + length - 1)

    @rule(at=st.integers(0, 30))
    def trim(self, at: int) -> None:
        start = min(BASE + at, self.log_end)
        if start <= self.plain.start:
            assert self.machine.trim(self.now, start) is None
            return
        lost = sum(self.plain.facts.get(n, Fact()) != DONE for n in range(self.plain.start, start))
        lost -= sum(f.state == ARCHIVING for n, f in self.plain.facts.items() if n < start)
        change = self.machine.trim(self.now, start)
        assert (change.lost if change else 0) == lost
        self.plain.settle_all(self.plain.start, start - 1)
        self.noted(change)

    @rule(at=offsets)
    def cut(self, at: int) -> None:
        """The log is truncated; this is stored before anything else happens."""
        self.log_end = min(self.log_end, BASE + at)
        self.nonce += 1
        known = self.plain.end > BASE + at
        change = self.machine.cut(self.now, BASE + at, self.nonce)
        assert (change is not None) == known
        if change is not None:
            self.plain.cut(BASE + at, self.nonce)
            self.lowest_start = min(self.lowest_start, self.plain.start)
            self.accepted = {offset for offset in self.accepted if offset < BASE + at}
            self.noted(change)
            self.store_all()

    @rule(at=offsets)
    def seek(self, at: int) -> None:
        self.nonce += 1
        self.noted(self.machine.seek(self.now, BASE + at, self.nonce))
        self.plain.seek(BASE + at, self.nonce)
        self.accepted, self.lowest_start = set(), 0
        self.store_all()

    @rule(which=st.sampled_from(SETTINGS))
    def change_settings(self, which: QueueSettings) -> None:
        self.expire()
        self.settings_changed = True
        self.settings = self.machine.settings = self.plain.settings = which
        self.fold()

    # --- the store ---------------------------------------------------------------------------------------------

    def store_all(self) -> None:
        for change in self.rows[self.stored :]:
            self.accepted |= {
                n
                for run in change.runs
                if run.after.state == 2 and not change.reset
                for n in range(run.first, run.last + 1)
            }
            if change.nonce is not None:
                self.accepted = {n for n in self.accepted if n < change.tracked_end and not change.reset}
        self.stored = len(self.rows)

    @rule()
    def store(self) -> None:
        self.store_all()

    @rule()
    def fold(self) -> None:
        """A snapshot takes the place of the rows."""
        self.store_all()
        self.snapshot, self.rows, self.stored = self.machine.snapshot(), [], 0
        self.exact = True

    @rule()
    @precondition(lambda self: self.stored < len(self.rows))
    def refused(self) -> None:
        """The store refuses the newest row."""
        change = self.rows.pop()
        for first, last, before, after in reversed(change.runs):
            for offset in range(first, last + 1):
                if self.plain.facts.get(offset, DONE).cell() != after:
                    self.exact = False
                else:
                    self.plain.base = min(self.plain.base, offset)
                    self.plain.facts[offset] = fact_of(before)
        for offset in range(self.plain.base, self.plain.end):
            self.plain.facts.setdefault(offset, DONE)
        back = self.machine.undo(change)
        # New offsets stay tracked, and first extensions known: neither is a promise to a client.
        self.lowest_start = min(self.lowest_start, self.plain.start)
        self.noted(back)
        self.expire()

    @rule(jump=st.sampled_from([0, 0, 300, 3_600_000, -3_600_000]))
    def restart(self, jump: int) -> None:
        """Everything that is not stored is lost."""
        self.now += jump
        rows = self.rows[: self.stored]
        self.machine = SharePartition.restored(
            self.settings, self.snapshot, [change.encode() for change in rows], self.now
        )
        self.plain = self.folded(rows, self.now)
        self.rows = list(rows)
        self.expire()
        # Both restarts have moved the times: what is stored from here on is a new sequence.
        self.snapshot, self.rows, self.stored = self.machine.snapshot(), [], 0
        self.exact = True
        self.lowest_start = min(self.lowest_start, self.plain.start)

    def folded(self, rows: list[Change], now: int) -> PlainPartition:
        """Fold the store by hand, record by record."""
        latest = msgspec.msgpack.decode(self.snapshot)[0]
        base = SharePartition.restored(self.settings, self.snapshot, [], latest)
        plain = PlainPartition(self.settings, base.start, base.tracked_end, base.nonce)
        plain.facts = {n: fact_of(base.cell(n)) for n in range(base.start, base.tracked_end)}
        plain.held = dict(base.held)
        for change in rows:
            change = decode(change.encode())
            latest = max(latest, change.at_ms)
            if change.reset:
                plain = PlainPartition(self.settings, change.start, change.start, 0)
            if change.nonce is not None:
                plain.nonce, plain.held = change.nonce, {}
            if change.tracked_end < plain.end:
                plain.facts = {n: fact for n, fact in plain.facts.items() if n < change.tracked_end}
                plain.end = change.tracked_end
                plain.base = min(plain.base, plain.end)
            for first, last, _, after in change.runs:
                plain.track(first)
                for offset in range(first, last + 1):
                    if offset < plain.base:
                        plain.facts.update(dict.fromkeys(range(offset, plain.base), DONE))
                        plain.base = offset
                    plain.facts[offset] = fact_of(after)
                plain.end = max(plain.end, last + 1)
            plain.track(change.tracked_end)
            plain.held.update(change.held)
        plain.restart(latest, now)
        return plain

    @rule()
    def stored_rows_are_the_state(self) -> None:
        """Fold all rows in another machine: the same, but for sessions."""
        self.expire()
        other = SharePartition.restored(
            self.settings, self.snapshot, [change.encode() for change in self.rows], self.now
        )
        while (due := other.next_due()) is not None and due <= self.now:
            other.expire(self.now)
        if not self.exact:
            return
        assert other.tracked_end == self.machine.tracked_end
        assert other.nonce == self.machine.nonce
        for offset in range(BASE, self.machine.tracked_end):
            cell = self.machine.cell(offset)
            if cell.lease < VOLATILE:
                assert other.cell(offset) == cell
            elif cell.state == LEASED:
                assert other.cell(offset) == (0, cell.deliveries, 0, 0)

    @rule()
    def settle_everything(self) -> None:
        """Memory returns to its base."""
        end = self.machine.tracked_end
        if self.machine.start < end:
            self.noted(self.machine.missing(self.now, self.machine.start, end - 1))
            self.plain.settle_all(self.plain.start, end - 1)
        self.noted(self.machine.archived(self.now, 0, end))
        self.plain.archived(0, end)
        assert self.machine.chunks == 0
        assert self.machine.start == end

    # --- always ------------------------------------------------------------------------------------------------

    @invariant()
    def equals_the_dict(self) -> None:
        machine, plain = self.machine, self.plain
        assert machine.tracked_end == plain.end
        assert machine.start == plain.start
        for offset, fact in plain.facts.items():
            assert machine.cell(offset) == fact.cell()
        counts = [plain.number(state) for state in (AVAILABLE, LEASED_FACT, DELAYED, ARCHIVING)]
        assert [machine.available, machine.leased, machine.delayed, machine.archiving] == counts
        listed = [offset for offset, _ in machine.in_flight(-1, 1_000)]
        assert listed == sorted(
            n for n, f in plain.facts.items() if f.state in (LEASED_FACT, DELAYED, ARCHIVING)
        )

    @invariant()
    def the_start_offset_rises(self) -> None:
        assert self.machine.start >= self.lowest_start
        self.lowest_start = self.machine.start

    @invariant()
    def time_is_watched(self) -> None:
        times = [f.until for f in self.plain.facts.values() if f.state in (LEASED_FACT, DELAYED)]
        due = self.machine.next_due()
        assert not times or (due is not None and due <= -(-min(times) // 50) * 50)


def test_the_machine_is_the_dict_in_every_order_of_events() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=100,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
