"""The calls that listeners, surfaces and the packages above the logs may make on a broker.

The rule: a synchronous call answers from what is at hand, an awaited call brings it to hand first. `Broker` in
`core.broker` is the embedded implementation: everything is at hand there, so that its awaited calls suspend only for
the disk, for replicas, or because the caller asked to wait.

Offsets are those of Kafka: the log start offset is the first that can be read, the high watermark the first that
consumers cannot read yet, the log end offset the next to be written. Times are milliseconds of the Unix epoch unless
a name says seconds. Every refusal is a `BrokerError` with Kafka's code; a docstring names the codes to expect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from core.changes import TopicChanges
from core.clock import Clock
from core.config import Config, Endpoint
from core.counters import Counters
from core.errors import BrokerError
from core.purgatory import Purgatory
from core.records.record import NewRecord
from core.records.validation import ProduceBatches
from core.types import AppendResult, LogOffsets, ProducerState, TimestampOffset, TopicPartition
from core.vocabulary.consumers import (
    EARLIEST,
    Acknowledged,
    Batch,
    ConsumerInfo,
    ConsumerOptions,
    PartitionCommit,
    PartitionPosition,
    Seek,
    Subscription,
)
from core.vocabulary.foreign_groups import ForeignGroups
from core.vocabulary.freeze import Freezing
from core.vocabulary.group_calls import Groups
from core.vocabulary.groups import (
    CommittedOffset,
)
from core.vocabulary.holdings import Holdings
from core.vocabulary.idempotency import Idempotency
from core.vocabulary.one_shot import Draft
from core.vocabulary.partition import PartitionInfo
from core.vocabulary.queues import Queues
from core.vocabulary.quotas import Quotas
from core.vocabulary.records import AppendRecords, Fetched, FetchedAll, FetchRead, ProduceResult, ReadResult
from core.vocabulary.replicas import FollowerFetched, FollowerRead, Placement, Quorum, Role
from core.vocabulary.settlements import StagedAck
from core.vocabulary.topic import ConfigEntry, TopicInfo
from core.vocabulary.transactions import ProducerIdAndEpoch, TransactionalWrite, Transactions
from core.vocabulary.users import Tokens, Users
from core.vocabulary.webhooks import Webhooks


class Topics(Protocol):
    """Topics, as `broker.topics`."""

    def get(self, name: str) -> TopicInfo:
        """Return the topic of that name. Raises UNKNOWN_TOPIC_OR_PARTITION."""

    def name_of(self, topic_id: UUID) -> str:
        """Return the name that belongs to a topic id. Raises UNKNOWN_TOPIC_ID."""

    def all(self) -> Collection[TopicInfo]:
        """Return all topics, in no order. The collection changes with the topics."""

    async def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int = -1,
        replicas: Sequence[int] | None = None,
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> TopicInfo:
        """Create a topic and return it once it is durable; with `validate_only` only check it.

        `partitions` None or −1 and `replication_factor` −1 are the broker's defaults. `replicas` are broker ids, the
        first leader first, instead of a `replication_factor`. A replicated topic without min.insync.replicas gets the
        majority. Raises TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
        INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, NOT_CONTROLLER.
        """

    async def get_or_create(self, name: str) -> TopicInfo:
        """Return the topic; create it with the defaults if it is missing and auto-creation is on.

        Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION.
        """

    async def delete(self, name: str) -> None:
        """Delete a topic with its records and its committed offsets.

        Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION for an internal topic, NOT_CONTROLLER.
        """

    async def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> TopicInfo:
        """Grow a topic to `count` partitions. Raises INVALID_PARTITIONS unless that is more than it has."""

    async def alter_configs(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> TopicInfo:
        """Change settings of a topic; None puts one back to its default. Raises INVALID_CONFIG."""

    def describe_configs(self, name: str) -> list[ConfigEntry]:
        """Return all settings of a topic, by name. Raises UNKNOWN_TOPIC_OR_PARTITION."""

    def effective_configs(self, info: TopicInfo) -> list[ConfigEntry]:
        """Return all settings of a topic, by name; also of one that is not created yet."""

    # Last, because annotations after it would mean this method.
    def list(self, prefix: str = "", include_internal: bool = False) -> list[TopicInfo]:
        """Return the topics whose name begins with `prefix`, sorted by name."""


class Partitions(Protocol):
    """Partitions and their record batches, as `broker.partitions`."""

    def append(
        self,
        tp: TopicPartition,
        records: memoryview,
        *,
        acks: int = 1,
        built: bool = False,
        converted: ProduceBatches | None = None,
        transaction: TransactionalWrite | None = None,
    ) -> AppendResult:
        """Append the record batches of one produce request to one partition; return their offsets.

        `records` may be a receive buffer: offsets are written into it, and no reference to it is kept. `built`: this
        process has just built the batch. `converted` is a message set (Kafka 0.8 to 0.10) as batches; they are
        appended in place of `records`. `transaction` is what batches of a transaction belong to. The result is in the
        page cache and survives the death of the process; see `durable` for the disk. Raises CORRUPT_MESSAGE,
        MESSAGE_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP, NOT_ENOUGH_REPLICAS, NOT_LEADER_OR_FOLLOWER,
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, KAFKA_STORAGE_ERROR,
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED, and what `TransactionalWrite.check` raises.
        """

    def append_checked(self, tp: TopicPartition, checked: ProduceBatches) -> AppendResult:
        """Append batches that `core.records` has checked against the topic's rules; see `append`."""

    def durable(
        self, tp: TopicPartition, acks: int, timeout_ms: int | None = None
    ) -> asyncio.Future[None] | None:
        """Return a future for the disk if the acks or the topic's flush.messages ask for it, else None.

        acks=all waits for an fsync, so that the records survive power loss, and for all in-sync replicas, for
        `timeout_ms` at most. acks=1 is answered from the page cache, which survives kill −9. The future fails with
        KAFKA_STORAGE_ERROR; of a replicated partition also with REQUEST_TIMED_OUT,
        NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER.
        """

    def fetch_now(
        self, reads: Sequence[FetchRead], *, max_bytes: int, min_one_each: bool = False
    ) -> FetchedAll:
        """Return the batches that can be read at once.

        Batches come whole. At most `max_bytes` in all and the `max_bytes` of each read; but the first batch comes
        also if it alone is larger (KIP-74), and with `min_one_each` that of every read, until `max_bytes` are used
        up.
        """

    async def fetch(
        self,
        reads: Sequence[FetchRead],
        *,
        max_bytes: int,
        min_bytes: int,
        wait_ms: int,
        min_one_each: bool = False,
        first: FetchedAll | None = None,
    ) -> list[Fetched]:
        """Like `fetch_now`, but wait up to `wait_ms` until there are `min_bytes`, or an error to return.

        `first` is what `fetch_now` has returned for these reads; the wait begins with it instead of another read.
        Raises THROTTLING_QUOTA_EXCEEDED when too many requests wait already.
        """

    def check_leader_epoch(self, current: int, epoch: int) -> None:
        """Raise FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH for a client with another epoch (KIP-320); −1 is none."""

    def info(self, tp: TopicPartition) -> PartitionInfo:
        """Return the offsets, the size and the replicas of a partition. Raises UNKNOWN_TOPIC_OR_PARTITION."""

    def offsets(self, tp: TopicPartition) -> LogOffsets:
        """Return the offsets of a partition. Raises UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER."""

    def bounds(self, topic: str, partitions: Iterable[int]) -> list[LogOffsets]:
        """Return the offsets of some partitions of a topic, in their order. Raises UNKNOWN_TOPIC_OR_PARTITION."""

    def offset_for_time(
        self, tp: TopicPartition, timestamp: int, leader_epoch: int = -1, *, committed: bool = False
    ) -> TimestampOffset:
        """Return the first offset at or after `timestamp`; −1 latest, −2 and −4 earliest, −3 the largest timestamp.

        With `committed` the latest offset is the last stable one, and no record from there on is found.
        The offset is −1 if no record is that young, and for −5 and −6, which ask for tiered storage. Raises
        UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER,
        OFFSET_NOT_AVAILABLE (KIP-207).
        """

    def end_offset_for_epoch(
        self, tp: TopicPartition, epoch: int, current_epoch: int = -1
    ) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest leader epoch up to `epoch`; (−1, −1) if there is none."""

    def segment_offsets(self, tp: TopicPartition, timestamp: int, limit: int) -> list[int]:
        """Return base offsets of segments, newest first, as ListOffsets v0 does; at most `limit`."""

    def active_producers(self, tp: TopicPartition) -> Iterator[ProducerState]:
        """Return the idempotent producers that the partition remembers."""

    async def delete_records(self, asked: Sequence[tuple[TopicPartition, int]]) -> list[int | BrokerError]:
        """Delete the records before an offset of each partition (−1: the high watermark); return the log starts.

        A partition that is refused has its error instead: OFFSET_OUT_OF_RANGE above the high watermark,
        POLICY_VIOLATION for a topic that is compacted alone, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
        KAFKA_STORAGE_ERROR. Durable when it returns.
        """

    def disk_space(self) -> tuple[int, int]:
        """Return the (total, usable) bytes of the file system that holds the data directory."""


class Records(Protocol):
    """Single records, as `broker.records`."""

    async def produce(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        acks: int = -1,
        partition: int | None = None,
        timeout_ms: int | None = None,
        append: AppendRecords | None = None,
    ) -> list[ProduceResult]:
        """Append records; return one result for each, in order, with its own error if it was refused.

        The partition of a record is its own `partition`, else the `partition` of the call, else by its key (murmur2,
        as the Java client does), else one partition per call, which rotates. A missing topic is created if the
        settings allow it. `timeout_ms` is for acks=all, as in `Partitions.durable`. `append` appends the records of
        each batch in the place of `Partitions.append`. Raises UNKNOWN_TOPIC_OR_PARTITION if the topic may not be
        created.
        """

    def by_partition(
        self,
        topic: str,
        partitions: int,
        records: Sequence[NewRecord],
        partition: int | None = None,
        sticky: int = -1,
    ) -> dict[int, Sequence[int]]:
        """Return the indexes of the records for each of `partitions` partitions, as `produce` distributes them.

        `sticky` is the partition of the records that have no other; below 0 it is the next in turn.
        """

    def next_in_turn(self, topic: str, partitions: int) -> int:
        """Return the partition for the next records without a key."""

    def batches_below(
        self, limit: int, records: Sequence[NewRecord], indexes: Sequence[int], now: int
    ) -> list[tuple[Sequence[int], bytearray]]:
        """Build batches of at most `limit` bytes; return them with the indexes of their records.

        A larger record is alone in its batch.
        """

    async def draft(
        self, records: Mapping[str, Sequence[NewRecord]], producer: ProducerIdAndEpoch
    ) -> list[Draft]:
        """Build and check batches of a transaction, by topic; append nothing. A missing topic is created.

        Append them in the turn in which this returns. Raises `RefusedError`, by topic and index.
        """
        ...

    async def read(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        max_bytes: int,
        max_records: int,
        wait_ms: int = 0,
        min_bytes: int = 1,
        first: ReadResult | None = None,
        committed: bool = True,
    ) -> ReadResult:
        """Return decoded records from `offset` on, at least one if there is any; wait as `Partitions.fetch` does.

        With `committed` (read_committed) only records below the last stable offset are returned, and none of aborted
        transactions. Reading continues after a run of those; `next_offset` lies after them. `first` is what
        `read_now` has returned for this offset, without records; the wait begins with it instead of another read.
        Raises OFFSET_OUT_OF_RANGE with the bounds in `details`, UNKNOWN_TOPIC_OR_PARTITION,
        NOT_LEADER_OR_FOLLOWER, CORRUPT_MESSAGE.
        """

    def read_now(
        self, tp: TopicPartition, offset: int, *, max_bytes: int, max_records: int, committed: bool = True
    ) -> ReadResult:
        """Return the records of `read` that are at hand, of one piece of the log, without waiting.

        There may be none although there are more further on: if `next_offset` has moved, continue there.
        """


class Roles(Protocol):
    """Leaders, followers and the other brokers of the cluster, as `broker.roles`."""

    @property
    def metadata_leader(self) -> int:
        """The id of the broker that keeps topics, groups and offsets; −1 if none is known."""

    @property
    def alone(self) -> Placement | None:
        """The placement of every partition, as long as this broker leads all of them without replicas; else None."""

    async def set(self, tp: TopicPartition, role: Role, *, unclean: bool = False) -> PartitionInfo:
        """Let this broker lead a partition, or stop leading it.

        Raises UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER if it holds no replica,
        ELIGIBLE_LEADERS_NOT_AVAILABLE if an acknowledged record could get lost, unless `unclean`;
        KAFKA_STORAGE_ERROR.
        """

    def placed(self, topic: TopicInfo, partition: int) -> Placement:
        """Return the leader and the replicas of a partition, without opening its log."""

    def peers(self) -> list[tuple[int, Endpoint]]:
        """Return (id, address for Kafka clients) of the other brokers of the cluster, by id."""

    def broker_ids(self) -> list[int]:
        """Return the ids of all brokers of the cluster, sorted."""
        ...

    def is_peer(self, broker_id: int) -> bool:
        """Whether this is the id of another broker of the cluster."""

    def replicated(self) -> list[TopicPartition]:
        """Return the replicated partitions, with the one of metadata."""

    def leads(self) -> int:
        """Return the number of replicated partitions that this broker leads."""

    def quorum(self) -> Quorum | None:
        """Return the brokers that hold the metadata; None unless this broker leads them."""

    async def ask_metadata_leader(self, client_id: str | None, key: int, version: int, request: Any) -> Any:
        """Forward a client's request of the Kafka protocol to the broker that keeps topics, groups and offsets.

        Raises NOT_LEADER_OR_FOLLOWER if no other broker is known to keep them, if it does not answer, and for a
        request that was forwarded to this broker already.
        """

    async def lead_everything(self, *, unclean: bool = False) -> dict[TopicPartition, BrokerError | None]:
        """Let this broker lead all partitions of which it holds a replica; return the error of each, or None."""

    def report_progress(self, tp: TopicPartition, replica: int, offset: int) -> PartitionInfo:
        """Note that the follower on the broker `replica` has everything below `offset`.

        Raises NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST if that broker is no follower,
        OFFSET_OUT_OF_RANGE beyond the end of the log.
        """

    async def follower_fetch(
        self, replica: int, reads: Sequence[FollowerRead], *, max_bytes: int, wait_ms: int
    ) -> list[FollowerFetched]:
        """Return the batches that a follower lacks, also those that are not committed.

        Waits up to `wait_ms` until there are any, or a newer high watermark than the follower knows.
        """

    def check_peer(self, broker_id: int) -> None:
        """Raise CLUSTER_AUTHORIZATION_FAILED if the caller may not act as the broker `broker_id`."""

    async def exchange(self, data: bytes, asked_by: int | None = None) -> bytes:
        """Answer a question of another broker, `asked_by` if its id is proven. Raises ValueError, also without peers.

        Raises CLUSTER_AUTHORIZATION_FAILED for a question in the name of a third broker."""


class Logs(Protocol):
    """Topics, partitions and records: what groups, managed consumers and idempotency keys are built on."""

    @property
    def config(self) -> Config:
        """The settings of the process."""

    @property
    def clock(self) -> Clock:
        """The source of time and randomness."""

    @property
    def counters(self) -> Counters:
        """The counters that metrics show."""

    @property
    def purgatory(self) -> Purgatory:
        """The requests that wait."""

    @property
    def changes(self) -> TopicChanges:
        """The events on topics: the version for caches, and waits for all partitions of a topic."""

    @property
    def topics(self) -> Topics:
        """The topics."""

    @property
    def partitions(self) -> Partitions:
        """The partitions and their batches."""

    @property
    def records(self) -> Records:
        """Single records."""

    async def look(
        self,
        topics: Collection[str] | None = (),
        *,
        bounds: bool = False,
        configs: bool = False,
        partitions: Collection[TopicPartition] = (),
        moment: int | None = None,
        committed: bool = False,
        fresh: bool = True,
    ) -> None:
        """Bring topics and partitions to hand, for synchronous calls in the same turn of the event loop.

        `topics` are names, None is all topics: they are known then, with `configs` also their settings, with `bounds`
        the offsets of all their partitions. `partitions` are more partitions whose offsets are needed. With `moment`
        (as the timestamp of `Partitions.offset_for_time`), that call has its answer for all of these partitions. With
        `fresh` offsets are as new as this call; else partitions for which another caller waits are at hand as they
        are. What is missing or refused is raised by the synchronous call. An embedded broker returns at once. Raises
        NETWORK_EXCEPTION, REQUEST_TIMED_OUT if a cluster does not answer.
        """

    async def bring(self, reads: Sequence[FetchRead], *, max_bytes: int, fresh: bool = True) -> None:
        """Bring the batches of reads to hand, for `fetch_now` and `read_now` in the same turn of the event loop.

        Batches of one read at least, up to about `max_bytes` in all; of a read at the end, or outside of the log, its
        bounds. With `fresh` they are as new as this call; else partitions for which another caller waits are at hand
        as they are. What is refused is raised by the synchronous call. An embedded broker returns at once.
        """


class Consumers(Protocol):
    """Managed consumers, as `broker.consumers`.

    Every call on one consumer raises RESOURCE_NOT_FOUND if it is missing. A call that does not fit the consumer's
    state raises INVALID_RECORD_STATE with a reason of `core.vocabulary.consumers`.
    """

    async def create(
        self,
        group_id: str,
        name: str | None = None,
        *,
        subscription: Subscription = ...,
        options: ConsumerOptions = ...,
    ) -> ConsumerInfo:
        """Create a consumer; durable when it returns. It begins to join at once if it has subscribed.

        Raises DUPLICATE_RESOURCE, INVALID_GROUP_ID, INVALID_REQUEST, INVALID_SESSION_TIMEOUT, UNSUPPORTED_ASSIGNOR,
        THROTTLING_QUOTA_EXCEEDED, and what `subscribe` and `assign` raise.
        """

    def get(self, group_id: str, name: str) -> ConsumerInfo:
        """Return the consumer as it is."""

    def of_group(self, group_id: str) -> list[ConsumerInfo]:
        """Return the consumers of a group, by name. This does not extend their time to live."""

    async def delete(self, group_id: str, name: str) -> None:
        """Leave the group and forget the consumer. With `auto_commit`, delivered records are committed before."""

    async def subscribe(
        self, group_id: str, name: str, *, topics: Sequence[str] = (), pattern: str | None = None
    ) -> None:
        """Read topics, or all topics that match a pattern; replace the subscription before.

        Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REGULAR_EXPRESSION.
        """

    async def assign(self, group_id: str, name: str, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions without membership. Raises UNKNOWN_TOPIC_OR_PARTITION, NON_EMPTY_GROUP."""

    async def unsubscribe(self, group_id: str, name: str) -> None:
        """Read nothing any more, and leave the group."""

    def subscribed_topics(self, group_id: str, name: str) -> tuple[str, ...]:
        """Return the topics of the subscription; of a pattern, those that match now."""
        ...

    async def poll(
        self,
        group_id: str,
        name: str,
        *,
        limit: int,
        max_bytes: int,
        wait_ms: int,
        min_bytes: int = 1,
        ack: str | None = None,
        advance: bool = False,
    ) -> Batch:
        """Return the next batch: at most `limit` records and about `max_bytes`, but at least one record."""

    def take_back(self, group_id: str, name: str, token: str | None) -> None:
        """Deliver the batch of this token again at the next poll with `advance`: its client has not got it."""

    async def ack(self, group_id: str, name: str, token: str) -> Acknowledged:
        """Acknowledge the batch of this token without a poll. A repetition changes nothing."""

    def stage_ack(self, group_id: str, name: str, token: str) -> StagedAck:
        """Hold the consumer for a decision that acknowledges the batch of this token. Call `release` in the end."""
        ...

    def positions(self, group_id: str, name: str) -> list[PartitionPosition]:
        """Return the partitions that are assigned now, with the position of each."""

    async def seek(self, group_id: str, name: str, seeks: Sequence[Seek], *, wait_ms: int = 0) -> None:
        """Move positions, all or none; forget what is outstanding of these partitions. Durable when it returns."""

    async def seek_everywhere(
        self,
        group_id: str,
        name: str,
        to: str = EARLIEST,
        *,
        time_ms: int | None = None,
        wait_ms: int = 0,
    ) -> None:
        """Like `seek`, in all partitions that are assigned."""

    async def pause(
        self, group_id: str, name: str, partitions: Sequence[TopicPartition] | None = None
    ) -> None:
        """Deliver nothing of these partitions (None: of all, and of those that are assigned later)."""

    async def resume(
        self, group_id: str, name: str, partitions: Sequence[TopicPartition] | None = None
    ) -> None:
        """Deliver these partitions (None: all) again."""

    async def commit(
        self, group_id: str, name: str, offsets: Sequence[PartitionCommit] | None = None
    ) -> list[PartitionCommit]:
        """Commit these offsets, or (None) all that polls have delivered; return the commits once they are durable."""

    def committed(
        self, group_id: str, name: str, partitions: Sequence[TopicPartition]
    ) -> list[CommittedOffset | None]:
        """Return the committed offset of each of `partitions` in the consumer's group; None if there is none."""


class Facade(Logs, Protocol):
    """A broker, as listeners and surfaces see it."""

    @property
    def ready(self) -> bool:
        """Whether the broker serves: it is open and not stopping."""

    @property
    def cluster_id(self) -> str:
        """The id of the cluster; empty if it is not known yet."""

    @property
    def capabilities(self) -> frozenset[str]:
        """The names of what this broker can do (`core.vocabulary.capabilities`); other calls raise or return null."""

    @property
    def endpoints(self) -> list[Endpoint]:
        """The addresses that TCP listeners are bound to."""

    @property
    def roles(self) -> Roles:
        """Leaders, followers, peers."""

    @property
    def groups(self) -> Groups:
        """Consumer groups. The object may be replaced when another broker takes them over: do not keep it."""

    @property
    def foreign_groups(self) -> ForeignGroups:
        """Consumer groups that ZooKeeper keeps (Kafka 0.7)."""

    @property
    def consumers(self) -> Consumers:
        """Managed consumers. The object may be replaced, like `groups`."""

    @property
    def idempotency(self) -> Idempotency:
        """Idempotency keys. The object may be replaced, like `groups`."""

    @property
    def transactions(self) -> Transactions:
        """Transactions. The object may be replaced, like `groups`."""

    @property
    def queues(self) -> Queues:
        """Queues. The object may be replaced, like `groups`."""

    @property
    def webhooks(self) -> Webhooks:
        """Webhooks of queues. The object may be replaced, like `groups`."""

    @property
    def users(self) -> Users:
        """Users and their passwords."""

    @property
    def tokens(self) -> Tokens:
        """Tokens of users."""

    @property
    def quotas(self) -> Quotas:
        """Client quotas."""

    @property
    def freezing(self) -> Freezing:
        """The switch that refuses writes, for a move to another cluster."""

    async def look_at_group(self, group_id: str) -> None:
        """Bring a group to hand: members, committed offsets, and the bounds that its lag needs.

        Synchronous calls on the group in the same turn of the event loop use it. Raises what the cluster refuses.
        """

    async def look_at_groups(self) -> None:
        """Bring the list of all groups to hand, as `look_at_group` does for one."""

    async def holdings(self, max_topics: int, max_lags: int) -> Holdings:
        """Count topics, partitions and groups, with sizes and lags, up to these limits; the oldest topics first."""
