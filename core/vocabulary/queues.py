"""Queues: what receivers, settlers and operators say and see. A queue is a share group (KIP-932) of the same name.

A *lease* is what a receive gives: the right to settle its records until a deadline. A receiver is no member; its
lease is all that the broker keeps of it, so any process may settle. A *receipt* names one record of one lease.

Times are milliseconds of the Unix epoch unless a name says otherwise. Offsets are those of the source partitions.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol
from uuid import UUID

from core.errors import ErrorCode
from core.records.record import Record
from core.types import FileSlice, TopicPartition

# Limits of settings and requests.
MAX_RECEIVE = 1_000
MAX_SETTLE = 1_000
MAX_WAIT_MS = 60_000
MIN_LOCK_MS, MAX_LOCK_MS = 1_000, 12 * 3_600_000
# From the first delivery of a lease: no chain of extensions lasts longer.
MAX_HOLD_MS = 12 * 3_600_000
MAX_DELAY_MS = 7 * 86_400_000
MAX_DELIVERIES = 1_000

EARLIEST, LATEST = "earliest", "latest"


class Order(Enum):
    """Whether records of one key are delivered one at a time, in the order of their offsets."""

    NONE = "none"
    KEY = "key"


class Cause(Enum):
    """Why a record is given up."""

    REJECTED = "rejected"
    LIMIT = "limit"
    EXPIRED = "expired"
    LOST = "lost"


class Outcome(Enum):
    """What became of one item of a settlement."""

    SETTLED = "settled"
    ALREADY_SETTLED = "already-settled"
    # The lock had run out, but the record was not delivered again: it is settled all the same.
    LATE = "late"
    LEASE_LOST = "lease-lost"
    # The queue was deleted or sought, the topic created again, or the log cut since the receipt was given.
    GONE = "gone"
    INVALID = "invalid"

    # There is one object for each: a lookup by outcome need not call Python's code of `Enum`, once for each record.
    __hash__ = object.__hash__


class Verb(Enum):
    """What to do with records that are leased."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"
    EXTEND = "extend"

    # As for outcomes.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pause before a record is delivered again: first · factor^(n−1), at most `max_ms`, ± `jitter` of it."""

    first_ms: int = 0
    factor: float = 2.0
    max_ms: int = 600_000
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Where records go that are given up. With `copy` key, value and headers go along, else a pointer (KIP-1191)."""

    topic: str
    copy: bool = True


@dataclass(frozen=True, slots=True)
class Start:
    """Where a queue begins: EARLIEST, LATEST, a time, or the committed offsets of a consumer group."""

    at: str = LATEST
    time_ms: int | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue. Without a dead-letter topic no record is given up by count, unless `drop` is set.

    `topics` or `pattern` (RE2, the whole name). `delivery_limit` None is without limit. `max_in_flight` counts leased
    and delayed records of one partition.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: Start = Start()
    lock_ms: int = 30_000
    delivery_limit: int | None = 5
    backoff: Backoff = Backoff()
    dead_letter: DeadLetter | None = None
    drop: bool = False
    order: Order = Order.NONE
    max_in_flight: int = 20_000
    max_delay_ms: int = MAX_DELAY_MS
    read_committed: bool = True


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue as it is. `version` rises with each change of the settings; it is the ETag."""

    name: str
    settings: QueueSettings
    version: int
    paused: bool
    created_ms: int


class Receipt(NamedTuple):
    """The name of one delivery of one record; `nonce` is of the partition in its present life."""

    nonce: int
    lease: int
    topic_id: UUID
    partition: int
    offset: int


class Leased(NamedTuple):
    """One record of a lease."""

    tp: TopicPartition
    record: Record
    delivery_count: int
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Received:
    """The answer of a receive. Without records, `blocked` says why there are none although some are unsettled.

    `blocked` is one of in-flight-limit, key-order, paused, unserved, or None.
    """

    lease: int | None
    lock_until_ms: int
    records: Sequence[Leased] = ()
    blocked: str | None = None


@dataclass(frozen=True, slots=True)
class Receive:
    """What a receiver asks for. `attempt` makes the call repeatable: the same lease again while it lives untouched.

    `create` are the settings of a queue that is missing; None raises GROUP_ID_NOT_FOUND for it. `in_process`: the
    receiver is a task of this process (a webhook). Its lease ends with the process, so it need not be durable when
    `receive` returns; the count is stored soon after.
    """

    max_records: int = 1
    max_bytes: int = 1_048_576
    wait_ms: int = 0
    lock_ms: int | None = None
    attempt: str | None = None
    create: QueueSettings | None = None
    in_process: bool = False


class Settle(NamedTuple):
    """One item of a settlement: a receipt, or a whole lease (what is left of it)."""

    verb: Verb
    receipt: Receipt | None = None
    lease: int | None = None
    delay_ms: int | None = None
    lock_ms: int | None = None
    reason: str = ""
    # Whether the delivery counts; without it a release gives the attempt back.
    counted: bool = True


class Settled(NamedTuple):
    """What became of an item. `records` is how many records of a lease it was."""

    outcome: Outcome
    records: int = 1


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """The counts of one partition of a queue. `served` is false if its leader is another broker."""

    tp: TopicPartition
    start: int
    end: int
    available: int
    in_flight: int
    delayed: int
    archiving: int
    oldest_unsettled_ms: int | None
    served: bool = True


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The counts of a queue, and what happened since the start of the process."""

    partitions: Sequence[PartitionStats]
    waiting_receivers: int = 0
    totals: Mapping[str, int] = field(default_factory=dict)


class InFlight(NamedTuple):
    """A record that is leased, delayed or on its way to the dead letters. `state` is leased, delayed or archiving.

    `Queues.record` has two more states: available and settled.
    """

    tp: TopicPartition
    offset: int
    state: str
    delivery_count: int
    lease: int | None
    until_ms: int | None
    cause: Cause | None = None


class AcknowledgeBatch(NamedTuple):
    """A range of offsets with one type for all, or one for each.

    The types are those of KIP-932: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
    """

    first: int
    last: int
    types: Sequence[int]


class AcquiredRange(NamedTuple):
    """Offsets that a share consumer has acquired."""

    first: int
    last: int
    delivery_count: int


class Acquired(NamedTuple):
    """What a share consumer has acquired, in ascending order, and the batches of the log that hold it.

    `records` are whole batches as they are in the log, in ascending order and as slices of files: they may hold
    offsets that are in no range, and a batch between two that holds none may be left out.
    """

    ranges: Sequence[AcquiredRange] = ()
    records: Sequence[FileSlice] = ()


class DeadRecord(NamedTuple):
    """A record in the dead-letter topic of a queue: `tp` and `offset` are where it came from, `dead` where it is.

    Key, value and headers of `record` are those of the source, without the headers of KIP-1191; `pointer`: the source
    was not copied, or its log had lost it.
    """

    dead: TopicPartition
    dead_offset: int
    tp: TopicPartition
    offset: int
    delivery_count: int
    cause: Cause
    reason: str
    record: Record
    pointer: bool


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """Some dead letters. `after` continues: the next offset of each partition of the topic; None: that was all."""

    records: Sequence[DeadRecord]
    after: Mapping[int, int] | None


@dataclass(frozen=True, slots=True)
class Redrive:
    """Which dead letters to append again, and where. What is None matches all.

    `to` None is the source of each record, else a topic. `rate` is records a second, None as fast as possible.
    """

    topic: str | None = None
    partition: int | None = None
    cause: Cause | None = None
    to: str | None = None
    rate: float | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class RedriveTask:
    """A redrive. `state` is running, done, cancelled or failed, and `error` says why it failed.

    `moved` were appended, or would be by a dry run; `skipped` match and cannot be: pointers without a record,
    records that are too large, and those of a source that the queue does not read.
    """

    id: str
    state: str
    redrive: Redrive
    moved: int
    skipped: int
    created_ms: int
    error: str = ""


class DeadLetters(Protocol):
    """The dead letters of queues, as `broker.queues.dead_letters`.

    Raises GROUP_ID_NOT_FOUND for a missing queue, INVALID_REQUEST for one without a dead-letter topic.
    """

    async def list(
        self, name: str, *, after: Mapping[int, int] | None = None, limit: int = 100
    ) -> DeadLetterPage:
        """Return the dead letters of a queue that are neither redriven nor purged, by partition and offset."""
        ...

    async def redrive(self, name: str, redrive: Redrive) -> RedriveTask:
        """Begin to append dead letters again, from the oldest to the newest of now; a dry run returns when done.

        Each is appended exactly once, also over restarts, with the header `sluice.redriven-from`. Raises
        CONCURRENT_TRANSACTIONS while a redrive of the queue is running, UNKNOWN_TOPIC_OR_PARTITION for `to`.
        """
        ...

    def tasks(self, name: str) -> Sequence[RedriveTask]:
        """Return the redrives of a queue, the newest first; those that ended are kept up to a limit."""
        ...

    async def cancel(self, name: str, task_id: str) -> RedriveTask:
        """End a redrive after the batch under way. Raises RESOURCE_NOT_FOUND."""
        ...

    async def purge(self, name: str) -> None:
        """Forget all dead letters of a queue up to now. The records stay in the topic until its retention."""
        ...


def work_key(name: str, tp: TopicPartition) -> Hashable:
    """Return the key of the purgatory for records of a partition that a queue has got back.

    An event of it is a release, a lock that ran out, a queue that was resumed or sought: what is no append.
    """
    return ("queue", name, tp)


class QueueIds(Protocol):
    """The names of queues among the ids of all groups, and their members, as `broker.groups.shares`."""

    def keep(self, name: str) -> None:
        """Take the id of a queue that is loaded or about to be created; it may be taken for it already.

        Raises GROUP_ID_NOT_FOUND with the reason "group-type" if a group of another type has it, POLICY_VIOLATION if
        there are too many groups.
        """
        ...

    def forget(self, name: str) -> None:
        """Give the id of a queue back that is deleted, or could not be created. Its members are removed."""
        ...

    def has_members(self, name: str) -> bool:
        """Return whether share consumers are members of a queue."""
        ...


class Queues(Protocol):
    """Queues, as `broker.queues`.

    A missing queue is GROUP_ID_NOT_FOUND; so is a group of another type, with the reason "group-type".
    What a call says is durable when it returns, unless its docstring says otherwise.
    """

    async def put(self, name: str, settings: QueueSettings, *, if_version: int | None = None) -> QueueView:
        """Create a queue, or change its settings. 0 in `if_version` creates only.

        Raises INVALID_REQUEST, INVALID_CONFIG.
        """
        ...

    def get(self, name: str) -> QueueView:
        """Return a queue."""
        ...

    def names(self) -> Sequence[str]:
        """Return the names of all queues, sorted."""
        ...

    def topics(self, name: str) -> Sequence[str]:
        """Return the topics that a queue reads now: those of its settings that exist, or that match its pattern."""
        ...

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Delete a queue. Raises NON_EMPTY_GROUP while leases live or members are there, unless `force`."""

    async def receive(self, name: str, request: Receive) -> Received:
        """Lease records: at most `max_records`, at least one record if there is any; wait up to `wait_ms` for one."""
        ...

    async def take_back(self, name: str, lease: int) -> None:
        """Give records back whose receiver has left before its answer: at once, and without a delivery."""

    async def settle(self, name: str, items: Sequence[Settle]) -> Sequence[Settled]:
        """Settle records; return an outcome for each item, in order. Raises KAFKA_STORAGE_ERROR: none is settled."""
        ...

    async def pause(self, name: str) -> QueueView:
        """Lease nothing any more until `resume`; leases live on."""
        ...

    async def resume(self, name: str) -> QueueView:
        """Lease again."""
        ...

    async def seek(self, name: str, start: Start, *, force: bool = False) -> None:
        """Begin at another place in all partitions; receipts are `gone`. Raises NON_EMPTY_GROUP while leases live."""

    async def peek(self, name: str, limit: int, max_bytes: int) -> Sequence[Leased]:
        """Return records that would be delivered next, without a lease and without a count. The receipts are void."""
        ...

    async def look(self, name: str) -> None:
        """Bring to hand what `stats`, `in_flight` and `record` show: after a start it is on the disk."""

    def stats(self, name: str) -> QueueStats:
        """Return the counts of a queue."""
        ...

    def in_flight(
        self, name: str, *, after: tuple[TopicPartition, int] | None = None, limit: int = 100
    ) -> Sequence[InFlight]:
        """Return records in flight by topic, partition and offset, from the one after `after` on."""
        ...

    def record(self, name: str, tp: TopicPartition, offset: int) -> InFlight:
        """Return what is known of one record: in flight, or the state is available or settled.

        Below the start it is settled, from the end of what is tracked on available. Raises
        UNKNOWN_TOPIC_OR_PARTITION for a partition that the queue does not read, NOT_LEADER_OR_FOLLOWER.
        """
        ...

    @property
    def dead_letters(self) -> DeadLetters:
        """The dead letters of all queues."""
        ...

    # --- share consumers (KIP-932) -----------------------------------------------------------------------------

    async def subscribe(self, name: str, topics: Sequence[str], create: QueueSettings) -> QueueView:
        """Let a queue read these topics besides those that it reads already; durable when it returns.

        A missing queue is created with `create`; its start is also where new topics of the queue begin. Needs no
        rights to change the settings. Raises GROUP_ID_NOT_FOUND for a group of another type.
        """
        ...

    async def move(
        self, name: str, offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Let partitions begin at these offsets, as AlterShareGroupOffsets; return the error of each, or NONE.

        A topic that the queue did not read is added to it. Raises NON_EMPTY_GROUP while leases live or members are
        there.
        """
        ...

    async def forget(self, name: str, topics: Sequence[str]) -> Sequence[ErrorCode]:
        """Forget all of some topics, as DeleteShareGroupOffsets; return an error of each, in order.

        Raises NON_EMPTY_GROUP while leases live or members are there.
        """
        ...

    async def acquire(
        self,
        name: str,
        tp: TopicPartition,
        member_id: str,
        *,
        max_records: int,
        max_bytes: int,
        batch_size: int,
        strict: bool,
    ) -> Acquired:
        """Acquire available records for a member, without waiting. Nothing of it need be durable.

        `strict`: at most `max_records`; else whole batches of the log, of which the last may exceed it. `records`
        have `max_bytes` at most, unless the first batch is larger. A range has one count and at most about
        `batch_size` records. To wait, see `work_key`. Raises NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION.
        """
        ...

    async def acknowledge(
        self, name: str, tp: TopicPartition, member_id: str, batches: Sequence[AcknowledgeBatch]
    ) -> ErrorCode:
        """Settle what a member has acquired: all or nothing of a partition. INVALID_RECORD_STATE, INVALID_REQUEST.

        Type 4 renews the lock. Acknowledgements are durable when it returns NONE.
        """
        ...

    async def release_member(self, name: str, member_id: str) -> None:
        """Make what a member has acquired available, because its session or connection has ended."""
