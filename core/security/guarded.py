"""The facade as one caller may use it: each call asks the authorizer first, then the broker.

This is the one place that grants. A listener or a surface gets a `Guarded` for its caller in the place of the broker,
and has nothing to check itself: a call that is not allowed raises, or returns for its part, TOPIC_, GROUP_ or
CLUSTER_AUTHORIZATION_FAILED. The right is asked for before the broker looks whether anything exists, and what a
caller may not describe is left out of lists. A call that waits asks again when it wakes, if the rules have changed.

The rights are those that Kafka asks for in the API with the same purpose (`docs/design/security.md` has the table).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

from core import facade
from core.changes import TopicChanges
from core.clock import Clock
from core.config import Config, Endpoint
from core.counters import Counters
from core.errors import BrokerError
from core.purgatory import Purgatory
from core.records.record import NewRecord
from core.records.validation import ProduceBatches
from core.security.acl import Operation, ResourceType
from core.security.authorizer import Authorizer, Rights
from core.security.guarded_groups import GuardedConsumers, GuardedGroups, visible_foreign_groups
from core.security.guarded_queues import GuardedQueues
from core.security.guarded_roles import GuardedRoles
from core.security.guarded_transactions import GuardedTransactions
from core.security.guarded_users import (
    GuardedAcls,
    GuardedFreezing,
    GuardedQuotas,
    GuardedTokens,
    GuardedUsers,
    Ruled,
)
from core.security.guarded_webhooks import GuardedWebhooks
from core.security.meter import Meter
from core.security.principal import Caller
from core.security.quotas import QuotaTable
from core.security.scopes import Scope
from core.types import AppendResult, LogOffsets, ProducerState, TimestampOffset, TopicPartition
from core.vocabulary.foreign_groups import ForeignGroups
from core.vocabulary.freeze import Freezing
from core.vocabulary.group_calls import Groups
from core.vocabulary.holdings import Holdings
from core.vocabulary.idempotency import Idempotency, KeyedAnswer, KeyedRequest
from core.vocabulary.one_shot import Draft, Keep
from core.vocabulary.partition import PartitionInfo
from core.vocabulary.queues import Queues
from core.vocabulary.quotas import Quotas
from core.vocabulary.records import AppendRecords, Fetched, FetchedAll, FetchRead, ProduceResult, ReadResult
from core.vocabulary.settlements import Fault, RefusedError
from core.vocabulary.topic import ConfigEntry, TopicInfo
from core.vocabulary.transactions import ProducerIdAndEpoch, TransactionalWrite, Transactions
from core.vocabulary.users import Tokens, Users
from core.vocabulary.webhooks import Webhooks

T = TypeVar("T")

_TOPIC, _CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
_READ, _WRITE, _DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE

# What another broker of the cluster is checked by, once its number is proven.
_NO_AUTHORIZER = Authorizer()
# Facades that are kept; above it all are dropped, and made again when they are asked for.
_MAX_CALLERS = 1_000


class Guarding(Protocol):
    """What gives the guarded facades of callers: `Guards`, or the callers of a gateway that acts as them."""

    def of(self, caller: Caller, *, mutes: bool = False) -> Guarded:
        """Return the facade of a caller. `mutes`: its listener counts changes of topics itself."""
        ...


class Guards:
    """The guarded facades of one broker, one for each principal, host and scope."""

    def __init__(self, broker: Ruled, authorizer: Authorizer, quotas: QuotaTable) -> None:
        self._broker = broker
        self._authorizer = authorizer
        self._quotas = quotas
        self._guarded: dict[tuple[str, str, Scope | None, bool], Guarded] = {}

    def of(self, caller: Caller, *, mutes: bool = False) -> Guarded:
        """Return the facade of a caller. `mutes`: its listener counts changes of topics itself."""
        key = (str(caller.principal), caller.host, caller.scope, mutes)
        found = self._guarded.get(key)
        if found is None:
            if len(self._guarded) >= _MAX_CALLERS:
                self._guarded.clear()
            meter = Meter(self._quotas, self._broker.clock, caller.principal.name, mutes=mutes)
            rights = Rights(self._authorizer, str(caller.principal), caller.host, caller.scope)
            found = self._guarded[key] = Guarded(self._broker, rights, meter)
        return found

    def of_peer(self, caller: Caller, broker_id: int) -> Guarded:
        """Return the facade of another broker of the cluster, whose number is proven: it may copy everything."""
        rights = Rights(_NO_AUTHORIZER, str(caller.principal), caller.host)
        # A follower has no quota.
        meter = Meter(QuotaTable(), self._broker.clock, caller.principal.name, mutes=True)
        return Guarded(self._broker, rights, meter, broker_id)


class Guarded:
    """A broker as one caller may use it; implements `core.facade.Facade`. `peer` is the broker that the caller is."""

    def __init__(self, broker: Ruled, rights: Rights, meter: Meter, peer: int | None = None) -> None:
        self._broker = broker
        self.rights = rights
        self.meter = meter
        self._topics = GuardedTopics(broker, rights, meter)
        self._partitions = GuardedPartitions(broker, rights)
        self._records = GuardedRecords(broker, rights, self._topics, meter)
        self._roles = GuardedRoles(broker, rights, peer)

    # --- what is no resource: settings, clock, waits -----------------------------------------------------------

    @property
    def unguarded(self) -> facade.Facade:
        """The broker without rights, for what callers with the same broker share: check the right of each."""
        return self._broker

    @property
    def config(self) -> Config:
        """See `Facade.config`."""
        return self._broker.config

    @property
    def clock(self) -> Clock:
        """See `Facade.clock`."""
        return self._broker.clock

    @property
    def counters(self) -> Counters:
        """See `Facade.counters`."""
        return self._broker.counters

    @property
    def purgatory(self) -> Purgatory:
        """See `Facade.purgatory`."""
        return self._broker.purgatory

    @property
    def changes(self) -> TopicChanges:
        """See `Facade.changes`. A wait on a topic says that something happened, and nothing of it."""
        return self._broker.changes

    @property
    def ready(self) -> bool:
        """See `Facade.ready`."""
        return self._broker.ready

    @property
    def cluster_id(self) -> str:
        """See `Facade.cluster_id`."""
        return self._broker.cluster_id

    @property
    def capabilities(self) -> frozenset[str]:
        """See `Facade.capabilities`."""
        return self._broker.capabilities

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
        """See `Facade.look`. Nothing is asked about topics that the caller may not describe."""
        if not self.rights.unlimited:
            may = self.rights.may
            topics = topics and [name for name in topics if may(_DESCRIBE, _TOPIC, name)]
            partitions = [tp for tp in partitions if may(_DESCRIBE, _TOPIC, tp.topic)]
        await self._broker.look(
            topics,
            bounds=bounds,
            configs=configs,
            partitions=partitions,
            moment=moment,
            committed=committed,
            fresh=fresh,
        )

    async def bring(self, reads: Sequence[FetchRead], *, max_bytes: int, fresh: bool = True) -> None:
        """See `Facade.bring`. Nothing is asked about topics that the caller may not read."""
        if not self.rights.unlimited:
            reads = [read for read in reads if self.rights.may(_READ, _TOPIC, read.tp.topic)]
        await self._broker.bring(reads, max_bytes=max_bytes, fresh=fresh)

    async def look_at_group(self, group_id: str) -> None:
        """See `Facade.look_at_group`. Nothing is asked about a group that the caller may not describe."""
        if self.rights.may(_DESCRIBE, ResourceType.GROUP, group_id):
            await self._broker.look_at_group(group_id)

    async def look_at_groups(self) -> None:
        """See `Facade.look_at_groups`."""
        await self._broker.look_at_groups()

    @property
    def endpoints(self) -> list[Endpoint]:
        """See `Facade.endpoints`."""
        return self._broker.endpoints

    # --- nouns -----------------------------------------------------------------------------------------------

    @property
    def topics(self) -> facade.Topics:
        """See `Facade.topics`."""
        return self._topics

    @property
    def partitions(self) -> facade.Partitions:
        """See `Facade.partitions`."""
        return self._partitions

    @property
    def records(self) -> facade.Records:
        """See `Facade.records`."""
        return self._records

    @property
    def roles(self) -> facade.Roles:
        """See `Facade.roles`."""
        return self._roles

    @property
    def groups(self) -> Groups:
        """See `Facade.groups`."""
        return GuardedGroups(self._broker.groups, self.rights)

    @property
    def foreign_groups(self) -> ForeignGroups:
        """See `Facade.foreign_groups`."""
        return visible_foreign_groups(self._broker.foreign_groups, self.rights)

    @property
    def consumers(self) -> facade.Consumers:
        """See `Facade.consumers`."""
        return GuardedConsumers(self._broker.consumers, self.rights, self.meter)

    @property
    def idempotency(self) -> Idempotency:
        """See `Facade.idempotency`."""
        return GuardedIdempotency(self._broker, self._records, self.meter)

    @property
    def transactions(self) -> Transactions:
        """See `Facade.transactions`."""
        return GuardedTransactions(self._broker, self.rights)

    @property
    def queues(self) -> Queues:
        """See `Facade.queues`."""
        return GuardedQueues(self._broker.queues, self.rights, self.meter)

    @property
    def webhooks(self) -> Webhooks:
        """See `Facade.webhooks`."""
        return GuardedWebhooks(self._broker.webhooks, self._broker.queues, self.rights)

    @property
    def users(self) -> Users:
        """See `Facade.users`."""
        return GuardedUsers(self._broker.users, self.rights)

    @property
    def tokens(self) -> Tokens:
        """See `Facade.tokens`."""
        return GuardedTokens(self._broker.tokens, self.rights)

    @property
    def quotas(self) -> Quotas:
        """See `Facade.quotas`."""
        return GuardedQuotas(self._broker.quotas, self.rights)

    @property
    def freezing(self) -> Freezing:
        """See `Facade.freezing`."""
        return GuardedFreezing(self._broker.freezing, self.rights)

    @property
    def acls(self) -> GuardedAcls:
        """The access rules."""
        return GuardedAcls(self._broker.acls, self.rights)

    def require_write(self, topic: str) -> None:
        """Raise TOPIC_AUTHORIZATION_FAILED unless the topic may be written, and created if it is missing."""
        self._records.require_write(topic)

    def require_create(self, topic: str) -> None:
        """Raise TOPIC_AUTHORIZATION_FAILED unless the topic may be created."""
        self._topics.require_create(topic)

    async def holdings(self, max_topics: int, max_lags: int) -> Holdings:
        """See `Facade.holdings`: needs DESCRIBE on the cluster."""
        self.rights.require(_DESCRIBE, _CLUSTER)
        return await self._broker.holdings(max_topics, max_lags)


class GuardedTopics:
    """`Facade.topics` for one caller."""

    def __init__(self, broker: facade.Facade, rights: Rights, meter: Meter) -> None:
        self._broker = broker
        self._rights = rights
        self._meter = meter

    def get(self, name: str) -> TopicInfo:
        """See `Topics.get`: needs DESCRIBE."""
        self._rights.require(_DESCRIBE, _TOPIC, name)
        return self._broker.topics.get(name)

    def name_of(self, topic_id: UUID) -> str:
        """See `Topics.name_of`. It needs no right: rules go by name, and each call with the name needs one."""
        return self._broker.topics.name_of(topic_id)

    def all(self) -> Collection[TopicInfo]:
        """See `Topics.all`: those that may be described."""
        return self._visible(self._broker.topics.all())

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
        """See `Topics.create`: needs CREATE on the cluster or on the topic."""
        self.require_create(name)
        count = max(partitions or 0, 0) or self._broker.config.default_partitions
        with self._meter.changing(0 if validate_only else count):
            creating = self._broker.topics.create(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                replicas=replicas,
                configs=configs,
                validate_only=validate_only,
            )
            return await (creating if validate_only else self._noted("CREATE_TOPIC", name, creating))

    async def get_or_create(self, name: str) -> TopicInfo:
        """See `Topics.get_or_create`: needs DESCRIBE, and CREATE if the topic is missing."""
        self._rights.require(_DESCRIBE, _TOPIC, name)
        await self._broker.look((name,))
        self.require_create_if_missing(name)
        finding = self._broker.topics.get_or_create(name)
        if self._rights.enforced:
            try:
                self._broker.topics.get(name)
            except BrokerError:
                return await self._noted("CREATE_TOPIC", name, finding)
        return await finding

    async def delete(self, name: str) -> None:
        """See `Topics.delete`: needs DELETE on the cluster or on the topic."""
        if not self._rights.may(Operation.DELETE, _CLUSTER):
            self._rights.require(Operation.DELETE, _TOPIC, name)
        await self._broker.look((name,))
        with self._meter.changing(self._broker.topics.get(name).partitions):
            await self._noted("DELETE_TOPIC", name, self._broker.topics.delete(name))

    async def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> TopicInfo:
        """See `Topics.create_partitions`: needs ALTER."""
        self._rights.require(Operation.ALTER, _TOPIC, name)
        await self._broker.look((name,))
        more = 0 if validate_only else count - self._broker.topics.get(name).partitions
        with self._meter.changing(max(more, 0)):
            growing = self._broker.topics.create_partitions(name, count, validate_only=validate_only)
            return await (growing if validate_only else self._noted("CREATE_PARTITIONS", name, growing))

    async def alter_configs(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> TopicInfo:
        """See `Topics.alter_configs`: needs ALTER_CONFIGS."""
        self._rights.require(Operation.ALTER_CONFIGS, _TOPIC, name)
        changing = self._broker.topics.alter_configs(name, changes, validate_only=validate_only)
        return await (changing if validate_only else self._noted("ALTER_CONFIGS", name, changing))

    async def _noted(self, operation: str, name: str, work: Awaitable[T]) -> T:
        return await self._rights.noted(operation, f"TOPIC:{name}", work)

    def describe_configs(self, name: str) -> list[ConfigEntry]:
        """See `Topics.describe_configs`: needs DESCRIBE_CONFIGS."""
        self._rights.require(Operation.DESCRIBE_CONFIGS, _TOPIC, name)
        return self._broker.topics.describe_configs(name)

    def effective_configs(self, info: TopicInfo) -> list[ConfigEntry]:
        """See `Topics.effective_configs`: needs DESCRIBE_CONFIGS."""
        self._rights.require(Operation.DESCRIBE_CONFIGS, _TOPIC, info.name)
        return self._broker.topics.effective_configs(info)

    def require_create(self, name: str) -> None:
        """Raise TOPIC_AUTHORIZATION_FAILED unless the caller may create the topic."""
        if not self._rights.may(Operation.CREATE, _CLUSTER):
            self._rights.require(Operation.CREATE, _TOPIC, name)

    def require_create_if_missing(self, name: str) -> None:
        """The same, if the topic is missing."""
        if self._rights.unlimited:
            return
        try:
            self._broker.topics.get(name)
        except BrokerError:
            self.require_create(name)

    def _visible(self, topics: Iterable[TopicInfo]) -> list[TopicInfo]:
        may = self._rights.may
        return [topic for topic in topics if may(_DESCRIBE, _TOPIC, topic.name)]

    # Last, because annotations after it would mean this method.
    def list(self, prefix: str = "", include_internal: bool = False) -> list[TopicInfo]:
        """See `Topics.list`: those that may be described."""
        topics = self._broker.topics.list(prefix, include_internal)
        return topics if self._rights.unlimited else self._visible(topics)


class GuardedPartitions:
    """`Facade.partitions` for one caller."""

    def __init__(self, broker: facade.Facade, rights: Rights) -> None:
        self._broker = broker
        self._rights = rights

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
        """See `Partitions.append`: needs WRITE."""
        self._rights.require(_WRITE, _TOPIC, tp.topic)
        return self._broker.partitions.append(
            tp, records, acks=acks, built=built, converted=converted, transaction=transaction
        )

    def append_checked(self, tp: TopicPartition, checked: ProduceBatches) -> AppendResult:
        """See `Partitions.append_checked`: needs WRITE."""
        self._rights.require(_WRITE, _TOPIC, tp.topic)
        return self._broker.partitions.append_checked(tp, checked)

    def durable(
        self, tp: TopicPartition, acks: int, timeout_ms: int | None = None
    ) -> asyncio.Future[None] | None:
        """See `Partitions.durable`. It follows an `append`, which needed the right."""
        return self._broker.partitions.durable(tp, acks, timeout_ms)

    def fetch_now(
        self, reads: Sequence[FetchRead], *, max_bytes: int, min_one_each: bool = False
    ) -> FetchedAll:
        """See `Partitions.fetch_now`: needs READ for each topic; the others have the error in their answer."""
        denied = self._denied(reads)
        if not denied:
            return self._broker.partitions.fetch_now(reads, max_bytes=max_bytes, min_one_each=min_one_each)
        allowed = [read for position, read in enumerate(reads) if position not in denied]
        found = self._broker.partitions.fetch_now(allowed, max_bytes=max_bytes, min_one_each=min_one_each)
        answers = iter(found.answers)
        every = [denied.get(position) or next(answers) for position in range(len(reads))]
        return FetchedAll(every, found.size, True, found.event)

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
        """See `Partitions.fetch`: needs READ for each topic, also when the wait ends."""
        if self._denied(reads):
            return self.fetch_now(reads, max_bytes=max_bytes, min_one_each=min_one_each).answers
        generation = self._rights.generation
        answers = await self._broker.partitions.fetch(
            reads,
            max_bytes=max_bytes,
            min_bytes=min_bytes,
            wait_ms=wait_ms,
            min_one_each=min_one_each,
            first=first,
        )
        if generation == self._rights.generation:
            return answers
        denied = self._denied(reads)
        return [denied.get(position, answer) for position, answer in enumerate(answers)]

    def _denied(self, reads: Sequence[FetchRead]) -> dict[int, Fetched]:
        """Return the refusals by the position of the read."""
        may = self._rights.may
        return {
            position: Fetched(read.tp, None, self._rights.refusal(_READ, _TOPIC, read.tp.topic))
            for position, read in enumerate(reads)
            if not may(_READ, _TOPIC, read.tp.topic)
        }

    def check_leader_epoch(self, current: int, epoch: int) -> None:
        """See `Partitions.check_leader_epoch`."""
        self._broker.partitions.check_leader_epoch(current, epoch)

    def info(self, tp: TopicPartition) -> PartitionInfo:
        """See `Partitions.info`: needs DESCRIBE."""
        self._rights.require(_DESCRIBE, _TOPIC, tp.topic)
        return self._broker.partitions.info(tp)

    def offsets(self, tp: TopicPartition) -> LogOffsets:
        """See `Partitions.offsets`: needs DESCRIBE."""
        self._rights.require(_DESCRIBE, _TOPIC, tp.topic)
        return self._broker.partitions.offsets(tp)

    def bounds(self, topic: str, partitions: Iterable[int]) -> list[LogOffsets]:
        """See `Partitions.bounds`: needs DESCRIBE."""
        self._rights.require(_DESCRIBE, _TOPIC, topic)
        return self._broker.partitions.bounds(topic, partitions)

    def offset_for_time(
        self, tp: TopicPartition, timestamp: int, leader_epoch: int = -1, *, committed: bool = False
    ) -> TimestampOffset:
        """See `Partitions.offset_for_time`: needs DESCRIBE."""
        self._rights.require(_DESCRIBE, _TOPIC, tp.topic)
        return self._broker.partitions.offset_for_time(tp, timestamp, leader_epoch, committed=committed)

    def end_offset_for_epoch(
        self, tp: TopicPartition, epoch: int, current_epoch: int = -1
    ) -> tuple[int, int]:
        """See `Partitions.end_offset_for_epoch`: needs DESCRIBE, or CLUSTER_ACTION on the cluster."""
        if not self._rights.may(Operation.CLUSTER_ACTION, _CLUSTER):
            self._rights.require(_DESCRIBE, _TOPIC, tp.topic)
        return self._broker.partitions.end_offset_for_epoch(tp, epoch, current_epoch)

    def segment_offsets(self, tp: TopicPartition, timestamp: int, limit: int) -> list[int]:
        """See `Partitions.segment_offsets`: needs DESCRIBE."""
        self._rights.require(_DESCRIBE, _TOPIC, tp.topic)
        return self._broker.partitions.segment_offsets(tp, timestamp, limit)

    def active_producers(self, tp: TopicPartition) -> Iterator[ProducerState]:
        """See `Partitions.active_producers`: needs READ."""
        self._rights.require(_READ, _TOPIC, tp.topic)
        return self._broker.partitions.active_producers(tp)

    async def delete_records(self, asked: Sequence[tuple[TopicPartition, int]]) -> list[int | BrokerError]:
        """See `Partitions.delete_records`: needs DELETE for each topic."""
        may = self._rights.may
        allowed = [one for one in asked if may(Operation.DELETE, _TOPIC, one[0].topic)]
        deleted = await self._broker.partitions.delete_records(allowed) if allowed else []
        for (tp, _), outcome in zip(allowed, deleted, strict=True):
            error = outcome.code.name if isinstance(outcome, BrokerError) else ""
            self._rights.note("DELETE_RECORDS", f"TOPIC:{tp}", error)
        results = iter(deleted)
        permitted = {tp.topic for tp, _ in allowed}
        return [
            next(results)
            if tp.topic in permitted
            else self._rights.refusal(Operation.DELETE, _TOPIC, tp.topic)
            for tp, _ in asked
        ]

    def disk_space(self) -> tuple[int, int]:
        """See `Partitions.disk_space`: needs DESCRIBE on the cluster."""
        self._rights.require(_DESCRIBE, _CLUSTER)
        return self._broker.partitions.disk_space()


class GuardedRecords:
    """`Facade.records` for one caller. A call beyond a quota raises THROTTLING_QUOTA_EXCEEDED and does nothing."""

    def __init__(self, broker: facade.Facade, rights: Rights, topics: GuardedTopics, meter: Meter) -> None:
        self._broker = broker
        self._rights = rights
        self._topics = topics
        self._meter = meter

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
        """See `Records.produce`: needs WRITE, and CREATE if the topic is missing."""
        if not self._rights.unlimited:
            await self._broker.look((topic,))
        self.require_write(topic)
        self._meter.produce(records)
        return await self._broker.records.produce(
            topic, records, acks=acks, partition=partition, timeout_ms=timeout_ms, append=append
        )

    def require_write(self, topic: str) -> None:
        """Raise TOPIC_AUTHORIZATION_FAILED unless the topic may be written, and created if it is missing."""
        self._rights.require(_WRITE, _TOPIC, topic)
        self._topics.require_create_if_missing(topic)

    def by_partition(
        self,
        topic: str,
        partitions: int,
        records: Sequence[NewRecord],
        partition: int | None = None,
        sticky: int = -1,
    ) -> dict[int, Sequence[int]]:
        """See `Records.by_partition`."""
        return self._broker.records.by_partition(topic, partitions, records, partition, sticky)

    def next_in_turn(self, topic: str, partitions: int) -> int:
        """See `Records.next_in_turn`."""
        return self._broker.records.next_in_turn(topic, partitions)

    def batches_below(
        self, limit: int, records: Sequence[NewRecord], indexes: Sequence[int], now: int
    ) -> list[tuple[Sequence[int], bytearray]]:
        """See `Records.batches_below`."""
        return self._broker.records.batches_below(limit, records, indexes, now)

    async def draft(
        self, records: Mapping[str, Sequence[NewRecord]], producer: ProducerIdAndEpoch
    ) -> list[Draft]:
        """See `Records.draft`: needs WRITE on each topic, and CREATE for those that are missing."""
        faults = []
        for topic in () if self._rights.unlimited else records:
            try:
                self.require_write(topic)
            except BrokerError as error:
                faults.append(Fault((topic,), error))
        if faults:
            raise RefusedError(faults)
        self._meter.produce([record for some in records.values() for record in some])
        return await self._broker.records.draft(records, producer)

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
        """See `Records.read`: needs READ, also when the wait ends."""
        self._rights.require(_READ, _TOPIC, tp.topic)
        result = await self._broker.records.read(
            tp,
            offset,
            max_bytes=self._meter.readable(max_bytes),
            max_records=max_records,
            wait_ms=wait_ms,
            min_bytes=min_bytes,
            first=first,
            committed=committed,
        )
        self._rights.require(_READ, _TOPIC, tp.topic)
        if result is not first:
            self._meter.read(result.records)
        return result

    def read_now(
        self, tp: TopicPartition, offset: int, *, max_bytes: int, max_records: int, committed: bool = True
    ) -> ReadResult:
        """See `Records.read_now`: needs READ."""
        self._rights.require(_READ, _TOPIC, tp.topic)
        max_bytes = self._meter.readable(max_bytes)
        result = self._broker.records.read_now(
            tp, offset, max_bytes=max_bytes, max_records=max_records, committed=committed
        )
        self._meter.read(result.records)
        return result


class GuardedIdempotency:
    """`Facade.idempotency` for one caller."""

    def __init__(self, broker: facade.Facade, records: GuardedRecords, meter: Meter) -> None:
        self._broker = broker
        self._records = records
        self._meter = meter

    async def produce(
        self,
        request: KeyedRequest,
        topic: str,
        records: Sequence[NewRecord],
        *,
        acks: int,
        render: Any,
    ) -> KeyedAnswer:
        """See `Idempotency.produce`: needs what `Records.produce` needs, for an answer that is stored, too."""
        self._records.require_write(topic)
        self._meter.produce(records)
        return await self._broker.idempotency.produce(request, topic, records, acks=acks, render=render)

    async def decide(
        self, request: KeyedRequest, work: Callable[[Keep], Coroutine[Any, Any, bytes]]
    ) -> KeyedAnswer:
        """See `Idempotency.decide`. `work` asks for its own rights, and a key belongs to its principal."""
        return await self._broker.idempotency.decide(request, work)
