"""A share partition as one dict: the table of meaning, record by record, without any care for time or memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from core.queues.redelivery import pause_ms
from core.queues.share_changes import ARCHIVING as ARCHIVING_STATE
from core.queues.share_changes import AVAILABLE as AVAILABLE_STATE
from core.queues.share_changes import CAUSES, VOLATILE, Cell
from core.queues.share_changes import DELAYED as DELAYED_STATE
from core.queues.share_changes import LEASED as LEASED_STATE
from core.vocabulary.queues import MAX_HOLD_MS, Cause, Outcome, QueueSettings, Verb

AVAILABLE, LEASED, SETTLED, ARCHIVING, DELAYED = "available", "leased", "settled", "archiving", "delayed"
TICK = 50
_NUMBERS = {
    AVAILABLE: AVAILABLE_STATE,
    LEASED: LEASED_STATE,
    ARCHIVING: ARCHIVING_STATE,
    DELAYED: DELAYED_STATE,
}


@dataclass(frozen=True)
class Fact:
    """What is known of one record."""

    state: str = AVAILABLE
    count: int = 0
    lease: int = 0
    until: int = 0
    cause: Cause | None = None

    def cell(self) -> Cell:
        """The same as the machine says it."""
        if self.state == SETTLED:
            return Cell(2, 0, 0, 0)
        time = CAUSES.index(self.cause) if self.cause is not None else self.until
        return Cell(_NUMBERS[self.state], self.count, self.lease, time)


DONE = Fact(SETTLED)


def fact_of(cell: Cell) -> Fact:
    """Turn a cell into a fact."""
    state = next((name for name, number in _NUMBERS.items() if number == cell.state), SETTLED)
    if state == ARCHIVING:
        return Fact(state, cell.deliveries, cell.lease, 0, CAUSES[cell.time])
    return Fact(state, cell.deliveries, cell.lease, cell.time)


@dataclass
class PlainPartition:
    """All offsets from `base` to `end`, exclusive, each with a fact."""

    settings: QueueSettings
    base: int
    end: int
    nonce: int
    facts: dict[int, Fact] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)

    def copy(self) -> PlainPartition:
        """Return an independent copy."""
        return replace(self, facts=dict(self.facts), held=dict(self.held))

    def number(self, state: str) -> int:
        """Count records in a state."""
        return sum(fact.state == state for fact in self.facts.values())

    @property
    def start(self) -> int:
        """The first offset that is not settled."""
        offset = self.base
        while offset < self.end and self.facts[offset] == DONE:
            offset += 1
        return offset

    @property
    def free(self) -> int:
        """Records that may be leased."""
        busy = self.number(LEASED) + self.number(DELAYED) + self.number(ARCHIVING)
        return max(0, self.settings.max_in_flight - busy)

    def track(self, end: int) -> None:
        """Give every offset below `end` a fact."""
        for offset in range(self.end, end):
            self.facts[offset] = Fact()
        self.end = max(self.end, end)

    def acquirable(self, end: int) -> list[int]:
        """Offsets that may be leased, the oldest first."""
        known = [
            offset for offset in range(self.start, min(end, self.end)) if self._state(offset) == AVAILABLE
        ]
        return known + list(range(self.end, end))

    def _state(self, offset: int) -> str:
        return self.facts[offset].state

    def acquire(self, lease: int, until: int, end: int, most: int, only: set[int] | None) -> dict[int, int]:
        """Lease; return the count of each offset."""
        chosen = [offset for offset in self.acquirable(end) if only is None or offset in only]
        chosen = chosen[: min(most, self.free)]
        if chosen:
            self.track(chosen[-1] + 1)
        for offset in chosen:
            fact = self.facts[offset]
            self.facts[offset] = Fact(LEASED, fact.count + (not self._last_delivery(fact)), lease, until)
        return {offset: self.facts[offset].count for offset in chosen}

    def _last_delivery(self, fact: Fact) -> bool:
        limit = self.settings.delivery_limit
        may_end = self.settings.drop or self.settings.dead_letter is not None
        return limit is not None and fact.count >= limit and may_end

    def _end_of(self, fact: Fact, cause: Cause) -> Fact:
        if self.settings.dead_letter is None:
            return DONE
        return Fact(ARCHIVING, fact.count, fact.lease, 0, cause)

    def expire(self, now: int) -> None:
        """Let time pass."""
        floor = now - now % TICK
        for offset, fact in list(self.facts.items()):
            if fact.state == DELAYED and fact.until <= floor:
                self.facts[offset] = replace(fact, state=AVAILABLE, until=0)
            if fact.state != LEASED or fact.until > floor:
                continue
            if self._last_delivery(fact):
                self.facts[offset] = self._end_of(fact, Cause.EXPIRED)
                continue
            pause = pause_ms(self.settings, fact.cell())
            until = fact.until + pause
            if not pause or until <= floor:
                self.facts[offset] = replace(fact, state=AVAILABLE, until=0)
            else:
                self.facts[offset] = replace(fact, state=DELAYED, until=until)

    def settle(
        self, now: int, verb: Verb, lease: int, offset: int, delay: int | None, counted: bool, spare: int
    ) -> tuple[Outcome, int]:
        """Settle one record; return the outcome, and how many more delays may be added."""
        if offset < self.start:
            return Outcome.ALREADY_SETTLED, spare
        if offset >= self.end:
            return Outcome.INVALID, spare
        fact = self.facts[offset]
        if fact.state == SETTLED:
            return Outcome.ALREADY_SETTLED, spare
        if fact.state == ARCHIVING:
            return (Outcome.ALREADY_SETTLED if verb is Verb.REJECT else Outcome.LEASE_LOST), spare
        if fact.lease != lease or not lease:
            return Outcome.LEASE_LOST, spare
        live = fact.state == LEASED and fact.until > now - now % TICK
        outcome = Outcome.SETTLED if live else Outcome.LATE
        if verb is Verb.ACCEPT:
            self.facts[offset] = DONE
        elif verb is Verb.REJECT:
            self.facts[offset] = self._end_of(fact, Cause.REJECTED)
        elif fact.state != LEASED:
            until = max(fact.until, now + (delay or 0))
            if delay and until > fact.until:
                if fact.state == AVAILABLE:
                    if not spare:
                        return outcome, spare
                    spare -= 1
                self.facts[offset] = replace(fact, state=DELAYED, until=until)
        else:
            self.facts[offset] = self._released(now, fact, delay, counted)
        return outcome, spare

    def _released(self, now: int, fact: Fact, delay: int | None, counted: bool) -> Fact:
        if not counted:
            fact = replace(fact, count=fact.count - 1)
        elif self._last_delivery(fact):
            return self._end_of(fact, Cause.LIMIT)
        if delay is None:
            delay = pause_ms(self.settings, fact.cell()) if counted else 0
        if delay:
            return replace(fact, state=DELAYED, until=now + delay)
        return replace(fact, state=AVAILABLE, until=0)

    def extend(self, now: int, lease: int, offset: int, lock_ms: int) -> Outcome:
        """Extend the lock of one record."""
        if offset < self.start:
            return Outcome.ALREADY_SETTLED
        if offset >= self.end:
            return Outcome.INVALID
        fact, floor = self.facts[offset], now - now % TICK
        until = min(now + lock_ms, self.held.get(lease, now) + MAX_HOLD_MS)
        if fact.state != LEASED or fact.lease != lease or fact.until <= floor or until <= floor:
            return Outcome.LEASE_LOST
        if fact.until != until:
            self.held.setdefault(lease, now)
            self.facts[offset] = replace(fact, until=until)
        return Outcome.SETTLED

    def settle_all(self, first: int, last: int) -> None:
        """Settle what is not given up, known or not."""
        self.track(last + 1)
        for offset in range(max(first, self.start), last + 1):
            if self._state(offset) != ARCHIVING:
                self.facts[offset] = DONE

    def archived(self, first: int, last: int) -> None:
        """Settle what is given up."""
        for offset in range(max(first, self.base), min(last + 1, self.end)):
            if self._state(offset) == ARCHIVING:
                self.facts[offset] = DONE

    def cut(self, end: int, nonce: int) -> None:
        """Forget what lies beyond the end; end all leases."""
        if end >= self.end:
            return
        self.facts = {
            offset: Fact(AVAILABLE, fact.count) if fact.state == LEASED else fact
            for offset, fact in self.facts.items()
            if offset < end
        }
        self.base, self.end, self.nonce, self.held = min(self.base, end), end, nonce, {}

    def seek(self, start: int, nonce: int) -> None:
        """Begin elsewhere; keep what is given up."""
        kept = {offset: fact for offset, fact in self.facts.items() if fact.state == ARCHIVING}
        self.base = min([start, *kept])
        self.end = max([start, *(offset + 1 for offset in kept)])
        self.facts = {
            offset: kept.get(offset, DONE if offset < start else Fact())
            for offset in range(self.base, self.end)
        }
        self.nonce, self.held = nonce, {}

    def restart(self, latest: int, now: int) -> None:
        """End the leases of sessions; move the times back if the clock was set back."""
        moved = min(0, now - latest)
        for offset, fact in self.facts.items():
            if fact.state in (LEASED, DELAYED):
                self.facts[offset] = fact = replace(fact, until=fact.until + moved)
            if fact.state == LEASED and fact.lease >= VOLATILE:
                self.facts[offset] = Fact(AVAILABLE, fact.count)
        self.held = {lease: since + moved for lease, since in self.held.items()}
