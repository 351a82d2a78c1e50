"""What goes into the managed consumers and what comes out of them: plain data, for every door.

A managed consumer is a consumer that lives in the broker: the broker joins its group, assigns, heartbeats and
keeps its positions; its client only polls. `consumers.py` says how it behaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from core.errors import BrokerError, ErrorCode
from core.records.record import Record
from core.types import TopicPartition

EARLIEST, LATEST, NONE = "earliest", "latest", "none"


class Subscription(msgspec.Struct, frozen=True):
    """What a consumer reads: topics, or all topics that match a pattern, or partitions of its own choice.

    At most one of the three is set; nothing at all is a consumer that has not subscribed yet. A pattern is
    RE2, and must match the whole name. Whoever chooses partitions itself is no member of its group.
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
    """How a consumer behaves; fixed for its life.

    `start` says where a partition without a committed offset begins: `earliest`, `latest`, `none` (a poll then
    raises OFFSET_OUT_OF_RANGE), or a time in milliseconds. `settings` belong to the door that made the consumer
    (its format, for example) and are kept as they are.
    """

    start: str | int = EARLIEST
    # 0 is the broker's default.
    ttl_ms: int = 0
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 60_000
    group_instance_id: str | None = None
    # The assignor to vote for; which one is elected is for all members of the group to say.
    assignor: str = ""
    # Commit by itself, at the first poll after each interval and at the end, what polls have delivered. Only
    # for consumers that poll with `advance`.
    auto_commit: bool = False
    auto_commit_interval_ms: int = 5_000
    settings: dict[str, str] = {}


class PartitionPosition(NamedTuple):
    """A partition that a consumer owns: the next offset that it will be given, and whether it is paused."""

    topic: str
    partition: int
    position: int
    paused: bool


class Range(NamedTuple):
    """Offsets of one partition in a batch: from `first` up to, without, `next_offset`."""

    topic: str
    partition: int
    first: int
    next_offset: int


class ConsumerInfo(NamedTuple):
    """A consumer as doors show it.

    `state` is `unsubscribed`, `joining`, `stable`, `assigned` (partitions of its own choice), or `fenced`
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
    """What a poll delivers: records by partition, in offset order within each.

    `token` acknowledges all of it; None when there is nothing. `redelivered` says that these were delivered
    before, under the same token. `state` is that of `ConsumerInfo`: an empty batch of a consumer that is
    `joining` says that its group has not agreed yet.
    """

    records: Sequence[tuple[TopicPartition, list[Record]]]
    token: str | None
    ranges: tuple[Range, ...]
    redelivered: bool
    state: str


class Acknowledged(NamedTuple):
    """What an acknowledgement did: offsets now committed, and partitions that had been given up before.

    Records of the latter are delivered again, to whoever owns the partition now.
    """

    committed: tuple[Range, ...]
    revoked: tuple[Range, ...]


class PartitionCommit(NamedTuple):
    """An offset to commit: the next one to be read."""

    topic: str
    partition: int
    next_offset: int
    metadata: str = ""


class Seek(NamedTuple):
    """Where a consumer goes on in one partition: an offset, `earliest`, `latest`; or the first record that is
    not older than `time_ms`.
    """

    topic: str
    partition: int
    to: int | str = EARLIEST
    time_ms: int | None = None


# Why a consumer refuses what does not fit its state: `details["reason"]` of the BrokerError.
NOT_ASSIGNED = "not-assigned"
NOT_SUBSCRIBED = "not-subscribed"
MIXED_SUBSCRIPTION = "mixed-subscription"
UNKNOWN_TOKEN = "unknown-token"


def illegal_state(reason: str, message: str) -> BrokerError:
    """The refusal of what does not fit the consumer's state."""
    return BrokerError(ErrorCode.INVALID_RECORD_STATE, message, reason=reason)
