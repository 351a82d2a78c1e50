"""Managed consumers: what callers pass in and get back.

A managed consumer lives in the broker: the broker joins its group, sends its heartbeats and keeps its positions; its
client only polls. `core.consumers.consumers` describes how it behaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from core.errors import BrokerError, ErrorCode
from core.records.record import Record
from core.types import TopicPartition

EARLIEST, LATEST, NONE = "earliest", "latest", "none"
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"


class Subscription(msgspec.Struct, frozen=True):
    """What a consumer reads: topics, or all topics that match a pattern, or partitions that it assigns to itself.

    At most one of the three is set; none is set for a consumer that has not subscribed yet. A pattern is RE2, and
    must match the whole name. A consumer that assigns itself partitions is no member of its group.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignments: tuple[TopicPartition, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.topics or self.assignments) or self.pattern is not None

    @property
    def joins(self) -> bool:
        """Whether the consumer is a member of its group."""
        return bool(self.topics) or self.pattern is not None


class ConsumerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a consumer behaves; fixed when it is created.

    `start` is where a partition without a committed offset begins: `earliest`, `latest`, `none` (a poll then raises
    OFFSET_OUT_OF_RANGE), or a time in ms. `settings` belong to the surface that created the consumer (its format, for
    example) and are kept as they are. With `isolation_level` `read_uncommitted` the consumer also reads records of
    open and of aborted transactions.
    """

    start: str | int = EARLIEST
    # 0 is the broker's default.
    ttl_ms: int = 0
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 60_000
    group_instance_id: str | None = None
    # The assignor to vote for; the votes of all members decide.
    assignor: str = ""
    # Commit what polls have delivered, at the first poll after each interval and at the end. Only for consumers that
    # poll with `advance`.
    auto_commit: bool = False
    auto_commit_interval_ms: int = 5_000
    settings: dict[str, str] = {}
    isolation_level: str = READ_COMMITTED

    @property
    def committed(self) -> bool:
        """Whether the consumer reads committed records only."""
        return self.isolation_level != READ_UNCOMMITTED


class PartitionPosition(NamedTuple):
    """A partition that is assigned to a consumer: the next offset to deliver, and whether it is paused."""

    topic: str
    partition: int
    position: int
    paused: bool


class Range(NamedTuple):
    """Offsets of one partition in a batch: from `first` up to and without `next_offset`."""

    topic: str
    partition: int
    first: int
    next_offset: int


class ConsumerInfo(NamedTuple):
    """A consumer as callers see it.

    `state` is `unsubscribed`, `joining`, `stable`, `assigned` (it assigned itself partitions), or `fenced`
    (another client has taken over its instance id). `outstanding` is the batch that was delivered and not
    acknowledged, with its token.
    """

    group_id: str
    name: str
    state: str
    subscription: Subscription
    options: ConsumerOptions
    member_id: str
    generation: int
    partitions: tuple[PartitionPosition, ...]
    token: str | None
    outstanding: tuple[Range, ...]
    created_ms: int
    expires_in_ms: int


class Batch(NamedTuple):
    """The records of a poll by partition, in offset order within each.

    `token` acknowledges all of them; None if there are none. `redelivered`: they were delivered before, under the
    same token. `state` is that of `ConsumerInfo`: an empty batch of a consumer that is `joining` means that its group
    still rebalances.
    """

    records: Sequence[tuple[TopicPartition, list[Record]]]
    token: str | None
    ranges: tuple[Range, ...]
    redelivered: bool
    state: str


class Acknowledged(NamedTuple):
    """The ranges that an acknowledgement has committed, and those of partitions that were given up before it.

    The records of the latter are delivered again, by the partition's new owner.
    """

    committed: tuple[Range, ...]
    revoked: tuple[Range, ...]


class PartitionCommit(NamedTuple):
    """An offset to commit: the next one to read."""

    topic: str
    partition: int
    next_offset: int
    metadata: str = ""


class Seek(NamedTuple):
    """A new position in one partition: an offset, `earliest`, `latest`; or the first record at or after `time_ms`."""

    topic: str
    partition: int
    to: int | str = EARLIEST
    time_ms: int | None = None


# `details["reason"]` of the BrokerError when a call does not fit the state of the consumer.
NOT_ASSIGNED = "not-assigned"
NOT_SUBSCRIBED = "not-subscribed"
MIXED_SUBSCRIPTION = "mixed-subscription"
UNKNOWN_TOKEN = "unknown-token"


def illegal_state(reason: str, message: str) -> BrokerError:
    """Return the error of a call that does not fit the state of the consumer."""
    return BrokerError(ErrorCode.INVALID_RECORD_STATE, message, reason=reason)
