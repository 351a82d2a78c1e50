"""A queue and its partitions in memory. Touched on the event loop only."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from core.clock import Clock
from core.queues.key_order import KeyOrder
from core.queues.share_changes import VOLATILE
from core.queues.share_partition import SharePartition
from core.types import TopicPartition
from core.vocabulary.queues import Leased, QueueSettings, QueueView, Receive

# Numbers of leases that are reserved with one write.
LEASE_BLOCK = 1_000
# Milliseconds by which two readings of the clocks may differ, without a move of the wall clock.
_JITTER_MS = 20
# Leases whose places are remembered; those of older ones are looked up in the partitions.
MAX_KNOWN_LEASES = 20_000
# Attempts that are remembered for each queue.
MAX_ATTEMPTS = 10_000


# Leases are stored in 32 bits.
_MOST_VOLATILE = (1 << 32) - 1
_HALF = VOLATILE // 2


class QueueClock:
    """The time of leases: the wall clock at the start plus the monotonic time since. It never decreases."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._base_ms = clock.wall_ms() - clock.monotonic() * 1000
        # By how much the wall clock was moved since.
        self._shift_ms = 0

    def now_ms(self) -> int:
        """Return the time of leases."""
        return int(self._base_ms + self._clock.monotonic() * 1000)

    def shown(self, at_ms: int) -> int:
        """Return a time of leases as the wall clock has it now."""
        shift = self._clock.wall_ms() - self.now_ms()
        if abs(shift - self._shift_ms) > _JITTER_MS:
            self._shift_ms = shift
        return at_ms + self._shift_ms


class Share:
    """One partition of a queue. `stored`: its row is on the disk."""

    __slots__ = (
        "begin",
        "bytes_since_fold",
        "keys",
        "last_write",
        "machine",
        "oldest",
        "rows_since_fold",
        "seq",
        "stored",
        "topic_id",
        "tp",
    )

    def __init__(self, tp: TopicPartition, topic_id: UUID, machine: SharePartition, *, stored: bool) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.machine = machine
        self.stored = stored
        # Where it begins, until its row is stored.
        self.begin = machine.start
        self.keys: KeyOrder | None = None
        # The number of the newest row.
        self.seq = 0
        self.rows_since_fold = 0
        self.bytes_since_fold = 0
        self.last_write: asyncio.Future[None] | None = None
        # (start offset, timestamp of its record), as it was looked up last.
        self.oldest: tuple[int, int] = (-1, -1)

    def forget_keys(self) -> None:
        """End the order by key that was followed so far; the next receive begins another one if it needs one."""
        self.keys = None
        self.machine.watch = None

    @property
    def key(self) -> tuple[UUID, int]:
        """The topic id and the partition."""
        return self.topic_id, self.tp.partition


class Held(NamedTuple):
    """Offsets `first` to `last`, both inclusive, of a lease, in a life of a partition."""

    share: Share
    nonce: int
    first: int
    last: int


@dataclass(slots=True)
class Lease:
    """What a lease was given, for a settlement of the whole, and for a receive that is repeated."""

    number: int
    deadline_ms: int
    held: list[Held] = field(default_factory=list)
    in_process: bool = False
    # Whether records of it were settled by themselves; they are not in `held` any more.
    touched: bool = False

    def take_out(self, share: Share, first: int, last: int) -> None:
        """Leave offsets `first` to `last` out of what a settlement of the whole means."""
        self.touched = True
        left: list[Held] = []
        for held in self.held:
            if held.share is not share or held.last < first or held.first > last:
                left.append(held)
                continue
            if held.first < first:
                left.append(held._replace(last=first - 1))
            if held.last > last:
                left.append(held._replace(first=last + 1))
        self.held = left


@dataclass(slots=True)
class Taken:
    """Records that were leased; `write` is their way to the disk."""

    lease: Lease
    records: list[Leased]
    write: asyncio.Future[None] | None


class Receiver(NamedTuple):
    """A receiver that waits."""

    request: Receive
    given: asyncio.Future[Taken | None]


@dataclass(slots=True)
class Attempt:
    """A receive that may be repeated. `asked` is what it asked for; `lease` is 0 while it is under way."""

    asked: tuple[int, int, int | None]
    done: asyncio.Event
    lease: Lease | None = None


class Queue:
    """One queue. `shares` are its partitions, by topic id and partition."""

    def __init__(
        self, name: str, settings: QueueSettings, version: int, paused: bool, created_ms: int, leases: int
    ) -> None:
        self.name = name
        self.settings = settings
        self.version = version
        self.paused = paused
        self.created_ms = created_ms
        self.deleted = False
        self.shares: dict[tuple[UUID, int], Share] = {}
        self.loading: asyncio.Task[None] | None = None
        self.loaded = False
        # The version of the metadata at which `shares` were compared with the topics.
        self.seen_version = -1
        # Leases below the second number are durably reserved.
        self.next_lease = max(leases, 1)
        self.leases_reserved = leases
        self.leases: OrderedDict[int, Lease] = OrderedDict()
        self.next_volatile = VOLATILE
        # Member id → its lease.
        self.members: dict[str, int] = {}
        self.attempts: OrderedDict[str, Attempt] = OrderedDict()
        self.waiters: deque[Receiver] = deque()
        self.pump: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.timer_due = 0
        # The partition at which the next receive begins.
        self.turn = 0
        self.totals: Counter[str] = Counter()

    @property
    def view(self) -> QueueView:
        """The queue as callers see it."""
        return QueueView(self.name, self.settings, self.version, self.paused, self.created_ms)

    @property
    def token(self) -> tuple[str, str]:
        """The key of the purgatory for work of any partition."""
        return ("queue", self.name)

    def new_lease(self, *, volatile: bool) -> int:
        """Return a number that no lease has had, or none of the last two billion."""
        if volatile:
            if self.next_volatile > _MOST_VOLATILE:
                self.next_volatile = VOLATILE
            self.next_volatile += 1
            return self.next_volatile - 1
        if self.next_lease >= VOLATILE:
            self.next_lease, self.leases_reserved = 1, 0
        self.next_lease += 1
        return self.next_lease - 1

    def reserved(self, leases: int) -> None:
        """Note that the numbers below one are durably reserved; it is smaller than the last once they began again."""
        if leases > self.leases_reserved and leases - self.leases_reserved < _HALF:
            self.leases_reserved = leases

    def remember(self, lease: Lease) -> None:
        """Remember what a lease was given."""
        self.leases[lease.number] = lease
        while len(self.leases) > MAX_KNOWN_LEASES:
            self.leases.popitem(last=False)

    def in_turn(self) -> list[Share]:
        """Return the partitions in the order in which the next receive looks at them."""
        shares = list(self.shares.values())
        turn = self.turn % len(shares) if shares else 0
        return shares[turn:] + shares[:turn]

    @property
    def places(self) -> dict[tuple[UUID, int], int]:
        """The place of each partition among all."""
        return {key: place for place, key in enumerate(self.shares)}
