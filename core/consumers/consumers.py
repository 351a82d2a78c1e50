"""Managed consumers: members of consumer groups that live in the broker and are driven by polls from outside.

`Consumers` has every call on them. Each call names a consumer by its group and its own name, and raises
RESOURCE_NOT_FOUND if there is none: it may have expired, for an idle consumer is deleted after its `ttl_ms`. Every
call on one consumer begins this time again.

There are two ways to poll:

- with tokens (native API): `poll(ack=token)` acknowledges the previous batch and returns the next. Until its token is
  acknowledged, the same batch is delivered again. Acknowledged means committed in the group, durably.
- with `advance=True` (REST Proxy v2): each poll continues after the batch of the previous poll. Only `commit`, or the
  option `auto_commit`, commits. A further request proves that the previous answer arrived; a surface that sees its
  client disconnect says so with `take_back`.

Everything survives a restart. The consumer is the same member with the same partitions, the outstanding batch is
delivered again under its token, and its time to live continues.

The parts: `registry` (which consumers there are), `consumer` (the state of one), `membership` (in its group),
`rebalances` (what a rebalance does to it), `reading` (where it begins, sweeps), `polls` (batches, acknowledgements,
waits), `commits`, `store` (SQLite), `topic_pattern`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence

from core.consumers.commits import Commits
from core.consumers.consumer import Consumer
from core.consumers.interfaces import MemberGroups
from core.consumers.polls import Polls
from core.consumers.reading import Reading
from core.consumers.rebalances import Rebalances
from core.consumers.registry import Registry
from core.consumers.staged_acks import StagedBatch, require_unstaged, stage
from core.consumers.store import ConsumerStore
from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.hosted import offers
from core.groups.topic_pattern import SubscribedTopics, compile_pattern
from core.metadata.store import Store
from core.types import TopicPartition
from core.vocabulary.consumers import (
    EARLIEST,
    MIXED_SUBSCRIPTION,
    NOT_ASSIGNED,
    Acknowledged,
    Batch,
    ConsumerInfo,
    ConsumerOptions,
    PartitionCommit,
    PartitionPosition,
    Seek,
    Subscription,
    illegal_state,
)
from core.vocabulary.groups import Commit, CommittedOffset, Cut

log = logging.getLogger(__name__)

# The name is part of a path and of the member id. 249 characters: as for topics.
_NAME = re.compile(r"[^/\x00-\x1f\x7f]{1,249}")
# A cluster is asked for the topics of the subscriptions this often, as Kafka's clients do by metadata.max.age.ms.
_LOOK_SECONDS = 30.0
# Consumers checked in one turn of the event loop: about a millisecond.
_SLICE = 200
# A check that is late by this many seconds means that the whole process was stopped; no client could poll then.
_STALL = 1.0
# Seconds that an acknowledgement without a poll waits for a rebalance.
ACK_PATIENCE = 10.0


class Consumers:
    """All managed consumers of a broker, as `broker.consumers`."""

    def __init__(self, broker: Logs, store: Store, groups: MemberGroups) -> None:
        config, clock = broker.config, broker.clock
        self._broker = broker
        self._groups = groups
        self._config = config
        self._clock = clock
        self._monotonic = clock.monotonic
        self._purgatory = broker.purgatory
        self._store = ConsumerStore(store, clock)
        self._registry = Registry(config, clock, self._store)
        self._topics = SubscribedTopics(broker)
        self._reading = Reading(broker, groups)
        self._commits = Commits(groups, clock)
        self._rebalances = Rebalances(
            config, clock, broker.purgatory, groups, self._store, self._reading, self._commits, self._topics
        )
        self._polls = Polls(
            clock, broker.purgatory, groups, self._registry, self._store, self._reading, self._commits
        )
        self._watching: asyncio.Task[None] | None = None
        # The task that asks a cluster for the topics of the subscriptions, and when the next one is due.
        self._looking: asyncio.Task[None] | None = None
        self._look_at = 0.0
        # Tasks that delete consumers which were idle for too long.
        self._ending: set[asyncio.Task[None]] = set()

    # --- calls of the broker -------------------------------------------------------------------------------

    async def open(self) -> None:
        """Take over the consumers of the last run. Call it after the groups are open."""
        await self._registry.load(self._rebalances.membership_of)
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def cut_back(self, ends: Mapping[TopicPartition, int]) -> list[Cut]:
        """Move positions and outstanding ranges beyond these log end offsets back to them; durable when it returns.

        Return what was moved. Raises KAFKA_STORAGE_ERROR; it may be tried again.
        """
        return await self._registry.cut_back(ends)

    def topic_deleted(self, topic: str) -> None:
        """Forget the positions in a deleted topic; a new topic of the same name is read from its own beginning."""
        self._registry.topic_deleted(topic)

    def drain(self) -> None:
        """Begin to stop: consumers stay the members that they are. Call it before the groups are drained."""
        for consumer in self._registry.all():
            consumer.membership.close()
        for task in (self._watching, self._looking):
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        """End all tasks. Call it before the store is closed."""
        self.drain()
        watching = [one for one in (self._watching, self._looking) if one is not None]
        joins = [consumer.membership.stop() for consumer in self._registry.all()]
        await asyncio.gather(*joins, *watching, *self._ending, return_exceptions=True)

    # --- create, show, delete ------------------------------------------------------------------------------

    async def create(
        self,
        group_id: str,
        name: str | None = None,
        *,
        subscription: Subscription = Subscription(),  # noqa: B008 (frozen)
        options: ConsumerOptions = ConsumerOptions(),  # noqa: B008 (frozen)
    ) -> ConsumerInfo:
        """Create a consumer; durable when it returns. Without a name it gets one.

        If it has subscribed, it begins to join at once; only polls wait for that. Raises DUPLICATE_RESOURCE (the name
        is taken), INVALID_GROUP_ID, INVALID_REQUEST (the name, an option), INVALID_SESSION_TIMEOUT,
        UNSUPPORTED_ASSIGNOR, THROTTLING_QUOTA_EXCEEDED (too many consumers), and the errors of `subscribe` and
        `assign`.
        """
        self._groups.require_name(group_id)
        if name is None:
            name = f"consumer-{self._clock.uuid4().hex[:16]}"
        self._check(name, options)
        await self._check_subscription(group_id, subscription)
        if self._registry.get(group_id, name) is not None:
            raise BrokerError(
                ErrorCode.DUPLICATE_RESOURCE, f"Group {group_id!r} has a consumer {name!r} already."
            )
        if len(self._registry) >= self._config.max_consumers:
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"There are {len(self._registry)} managed consumers already; delete some of them.",
                limit=self._config.max_consumers,
            )
        nonce = self._clock.uuid4().hex[:8]
        now_ms = self._clock.wall_ms()
        consumer = Consumer(
            group_id, name, nonce, Subscription(), options, now_ms, self._rebalances.membership_of
        )
        consumer.next_auto_commit = self._monotonic() + options.auto_commit_interval_ms / 1000
        self._registry.put(consumer)
        with self._registry.in_use(group_id, name):
            try:
                await self._read(consumer, subscription)
            except BaseException:
                await self._remove(consumer)
                raise
            return consumer.info(self._monotonic())

    def get(self, group_id: str, name: str) -> ConsumerInfo:
        """Return the consumer as it is."""
        with self._registry.in_use(group_id, name) as consumer:
            return consumer.info(self._monotonic())

    def of_group(self, group_id: str) -> list[ConsumerInfo]:
        """Return the consumers of a group, by name. This does not begin their time to live again."""
        found = sorted(self._registry.of_group(group_id), key=lambda consumer: consumer.name)
        return [consumer.info(self._monotonic()) for consumer in found]

    async def delete(self, group_id: str, name: str) -> None:
        """Leave the group and delete the consumer. With `auto_commit`, commit first what was delivered."""
        consumer = self._registry.find(group_id, name)
        self._polls.advance(consumer)
        await self._end(consumer)

    # --- subscription --------------------------------------------------------------------------------------

    async def subscribe(
        self, group_id: str, name: str, *, topics: Sequence[str] = (), pattern: str | None = None
    ) -> None:
        """Read topics, or all topics that match a pattern, instead of the previous subscription.

        A topic that does not exist is created where the settings allow it, as for any Kafka consumer. No topics
        and no pattern unsubscribe. Raises INVALID_RECORD_STATE with reason `mixed-subscription` if the consumer has
        assigned itself partitions, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REGULAR_EXPRESSION.
        """
        wanted = Subscription(tuple(dict.fromkeys(topics)), pattern)
        with self._registry.in_use(group_id, name) as consumer:
            if consumer.subscription.assignments:
                raise illegal_state(
                    MIXED_SUBSCRIPTION, f"Consumer {name!r} has chosen its partitions; unsubscribe first."
                )
            await self._check_subscription(group_id, wanted)
            await self._read(consumer, wanted)

    async def assign(self, group_id: str, name: str, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions, without membership, instead of the previous assignment.

        Raises INVALID_RECORD_STATE with reason `mixed-subscription` if the consumer has subscribed,
        UNKNOWN_TOPIC_OR_PARTITION, and NON_EMPTY_GROUP if the group has members, which commit for it.
        """
        wanted = Subscription(assignments=tuple(sorted(set(partitions))))
        with self._registry.in_use(group_id, name) as consumer:
            if consumer.subscription.joins:
                raise illegal_state(
                    MIXED_SUBSCRIPTION, f"Consumer {name!r} has subscribed; unsubscribe first."
                )
            await self._check_subscription(group_id, wanted)
            await self._read(consumer, wanted)

    async def unsubscribe(self, group_id: str, name: str) -> None:
        """Read nothing any more, and leave the group. Also for consumers that have assigned themselves partitions."""
        with self._registry.in_use(group_id, name) as consumer:
            await self._read(consumer, Subscription())

    def subscribed_topics(self, group_id: str, name: str) -> tuple[str, ...]:
        """Return the topics of the subscription; of a pattern, those that match now."""
        with self._registry.in_use(group_id, name) as consumer:
            return self._topics.of(consumer.subscription)

    # --- polls ---------------------------------------------------------------------------------------------

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
        """Return the next batch: at most `limit` records and about `max_bytes` of them, but at least one record.

        A poll sweeps once over all partitions that are assigned and not paused. It is answered on the first data (of
        `min_bytes` together, where set; never more than `max_bytes`), at the latest after `wait_ms`, which includes
        the wait for the group. Cancelling the poll moves nothing. A second poll takes the place of one that waits,
        which is then answered with no records.

        Raises INVALID_RECORD_STATE with reason `unknown-token` or `not-subscribed`, FENCED_INSTANCE_ID,
        OFFSET_OUT_OF_RANGE (`start` is `none` and there is no position), CORRUPT_MESSAGE with `topic`,
        `partition` and `next_offset` (seek there), INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED,
        KAFKA_STORAGE_ERROR.
        """
        until = self._monotonic() + min(wait_ms, self._config.max_wait_ms) / 1000
        with self._registry.in_use(group_id, name) as consumer:
            consumer.require_subscription()
            require_unstaged(consumer)
            consumer.turn += 1
            self._purgatory.notify(consumer)
            unsaved = False
            if ack is not None:
                unsaved = await self._polls.acknowledge(consumer, ack, until)
            elif advance:
                if self._polls.advance(consumer):
                    self._store.progress(consumer)
                await self._commits.auto_commit_if_due(consumer)
            # A batch that is full is not worth waiting for more.
            min_bytes = min(min_bytes, max_bytes)
            batch = await self._polls.next_batch(
                consumer, limit, max_bytes, min_bytes, until, advance, unsaved
            )
            return batch or Batch((), None, (), False, consumer.state)

    async def ack(self, group_id: str, name: str, token: str) -> Acknowledged:
        """Acknowledge the batch of this token, without a poll. A repeated call changes nothing."""
        with self._registry.in_use(group_id, name) as consumer:
            require_unstaged(consumer)
            self._reading.trim(consumer)
            before = tuple(consumer.outstanding.values())
            newest = consumer.sequence_of(token) == consumer.sequence
            if await self._polls.acknowledge(consumer, token, self._monotonic() + ACK_PATIENCE):
                await self._store.progress(consumer)
            if not newest:
                return Acknowledged((), ())
            revoked = consumer.revoked
            return Acknowledged(tuple(one for one in before if one not in revoked), revoked)

    def stage_ack(self, group_id: str, name: str, token: str) -> StagedBatch:
        """Hold the consumer for a decision that acknowledges the batch of this token. Call `release` in the end.

        Raises INVALID_RECORD_STATE with reason `unknown-token`, `already-acknowledged`, `batch-changed`, or
        `ack-staged` while another one holds it; FENCED_INSTANCE_ID.
        """
        return stage(
            self._registry, self._reading, self._groups, self._store, group_id, name, token, self._purgatory.notify
        )  # fmt: skip

    def take_back(self, group_id: str, name: str, token: str | None) -> None:
        """Deliver the batch of this token again with the next `advance` poll: it did not reach its client."""
        consumer = self._registry.get(group_id, name)
        if consumer is not None and consumer.advancing and token is not None and token == consumer.token:
            consumer.outstanding = {}

    # --- positions -----------------------------------------------------------------------------------------

    def positions(self, group_id: str, name: str) -> list[PartitionPosition]:
        """Return the assigned partitions with the position of each."""
        with self._registry.in_use(group_id, name) as consumer:
            return list(consumer.partitions())

    async def seek(self, group_id: str, name: str, seeks: Sequence[Seek], *, wait_ms: int = 0) -> None:
        """Move positions, all or none, and forget what is outstanding of these partitions; durable when it returns.

        Waits up to `wait_ms` for the assignment. Raises INVALID_RECORD_STATE with reason `not-assigned` for a
        partition that is not assigned, and OFFSET_OUT_OF_RANGE with the `offset` and the bounds.
        """
        with self._registry.in_use(group_id, name) as consumer:
            await self._await_assignment(consumer, wait_ms)
            await self._move(consumer, seeks)

    async def seek_everywhere(
        self,
        group_id: str,
        name: str,
        to: str = EARLIEST,
        *,
        time_ms: int | None = None,
        wait_ms: int = 0,
    ) -> None:
        """Seek in all assigned partitions, as `seek`. If there are none it raises `not-assigned`."""
        with self._registry.in_use(group_id, name) as consumer:
            await self._await_assignment(consumer, wait_ms)
            if not consumer.assigned:
                raise illegal_state(NOT_ASSIGNED, f"Consumer {name!r} has no partitions at the moment.")
            await self._move(consumer, [Seek(t, p, to, time_ms) for t, p in consumer.assigned])

    async def pause(
        self, group_id: str, name: str, partitions: Sequence[TopicPartition] | None = None
    ) -> None:
        """Deliver no new records of these partitions (None: of any, also of those assigned later).

        Outstanding records are still delivered again. Raises INVALID_RECORD_STATE with reason `not-assigned`.
        """
        with self._registry.in_use(group_id, name) as consumer:
            if partitions is None:
                consumer.paused_all = True
            else:
                consumer.require_assigned(partitions)
                consumer.paused.update(partitions)
            await self._store.progress(consumer)

    async def resume(
        self, group_id: str, name: str, partitions: Sequence[TopicPartition] | None = None
    ) -> None:
        """Deliver records of these partitions again (None: of all). Raises as `pause`."""
        with self._registry.in_use(group_id, name) as consumer:
            consumer.resume(partitions)
            self._purgatory.notify(consumer)
            await self._store.progress(consumer)

    async def _await_assignment(self, consumer: Consumer, wait_ms: int) -> None:
        consumer.require_subscription()
        until = self._monotonic() + min(wait_ms, self._config.max_wait_ms) / 1000
        await self._polls.settled(consumer, until)

    async def _move(self, consumer: Consumer, seeks: Sequence[Seek]) -> None:
        consumer.require_assigned(TopicPartition(one.topic, one.partition) for one in seeks)
        await self._reading.bring_targets(consumer, seeks)
        targets = {}
        for one in seeks:
            tp = TopicPartition(one.topic, one.partition)
            consumer.require_assigned([tp])
            targets[tp] = self._reading.target(consumer, tp, one)
        self._polls.advance(consumer)
        for tp, position in targets.items():
            consumer.outstanding.pop(tp, None)
            consumer.move(tp, position)
        await self._store.progress(consumer)
        self._purgatory.notify(consumer)

    # --- commits without tokens ----------------------------------------------------------------------------

    async def commit(
        self, group_id: str, name: str, offsets: Sequence[PartitionCommit] | None = None
    ) -> list[PartitionCommit]:
        """Commit these offsets, or (None) all that polls have delivered; return what was committed, once durable.

        Raises INVALID_RECORD_STATE with reason `not-subscribed`, or `not-assigned` before the consumer has joined,
        ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS,
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        with self._registry.in_use(group_id, name) as consumer:
            consumer.require_subscription()
            if self._polls.advance(consumer):
                self._store.progress(consumer)
            if offsets is None:
                commits = await self._commits.bring_uncommitted(consumer)
            else:
                commits = [Commit(o.topic, o.partition, o.next_offset, metadata=o.metadata) for o in offsets]
            if not commits:
                return []
            consumer.membership.require_unfenced()
            if consumer.subscription.joins and not consumer.membership.joined:
                raise illegal_state(
                    NOT_ASSIGNED, f"Consumer {name!r} has not joined its group yet: poll first."
                )
            errors = await self._commits.commit(consumer, commits)
            for commit, error in zip(commits, errors, strict=True):
                if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._broker.partitions.info(TopicPartition(commit.topic, commit.partition))
                if error:
                    raise self._groups.refusal(error, group_id, consumer.membership.member_id)
            return [PartitionCommit(c.topic, c.partition, c.offset, c.metadata or "") for c in commits]

    def committed(
        self, group_id: str, name: str, partitions: Sequence[TopicPartition]
    ) -> list[CommittedOffset | None]:
        """Return the group's committed offset of each partition; None where there is none."""
        with self._registry.in_use(group_id, name):
            return [self._groups.committed(group_id, *tp) for tp in partitions]

    # --- steps of these calls ------------------------------------------------------------------------------

    async def _read(self, consumer: Consumer, subscription: Subscription) -> None:
        """Put another subscription in force; durable when it returns."""
        if consumer.subscription.joins and not subscription.joins:
            await self._commits.auto_commit(consumer)
            consumer.subscription = subscription
            await consumer.membership.leave()
        consumer.subscription = subscription
        if not subscription.joins:
            before = set(consumer.positions)
            kept = [tp for tp in consumer.assigned if tp in subscription.assignments]
            consumer.replace_partitions(kept, subscription.assignments)
            begins = [tp for tp in subscription.assignments if tp not in consumer.positions]
            await self._reading.bring_beginnings(consumer, begins)
            self._reading.begin(consumer, [tp for tp in begins if tp not in consumer.positions])
            self._store.progress(consumer, before - consumer.positions.keys())
        await self._store.save(consumer)
        if subscription.joins:
            consumer.membership.resubscribe()
        self._purgatory.notify(consumer)

    def _check(self, name: str, options: ConsumerOptions) -> None:
        if not _NAME.fullmatch(name) or name in (".", ".."):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                "The name of a consumer has 1 to 249 characters, without slashes and control characters.",
            )
        config = self._config
        if not 0 <= options.ttl_ms <= config.consumer_max_ttl_ms:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"The time to live can be up to {config.consumer_max_ttl_ms} ms, not {options.ttl_ms}.",
                limit=config.consumer_max_ttl_ms,
            )
        low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not low <= options.session_timeout_ms <= high:
            raise BrokerError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"The session timeout must be from {low} to {high} ms, not {options.session_timeout_ms}.",
            )
        if not 0 < options.rebalance_timeout_ms <= high or options.auto_commit_interval_ms < 0:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"A timeout must be from 1 to {high} ms.")
        offers((), options.assignor)

    async def _check_subscription(self, group_id: str, wanted: Subscription) -> None:
        """Refuse a subscription that cannot be read; create missing topics where the settings allow it."""
        limit = self._config.max_subscription
        if len(wanted.topics) > limit or len(wanted.assignments) > limit:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"A consumer can name {limit} topics or partitions at most.",
                limit=limit,
            )
        if wanted.pattern is not None:
            compile_pattern(wanted.pattern, self._config.max_pattern_bytes)
        for topic in wanted.topics:
            await self._broker.topics.get_or_create(topic)
        if wanted.assignments:
            await self._broker.look(partitions=wanted.assignments)
        for tp in wanted.assignments:
            self._broker.partitions.offsets(tp)
        if wanted.assignments:
            await self._groups.look(group_id)
            view = self._groups.describe(group_id)
            if view is not None and view.members:
                raise self._groups.refusal(ErrorCode.NON_EMPTY_GROUP, group_id)

    async def _end(self, consumer: Consumer) -> None:
        if consumer.gone:
            return
        if consumer.subscription and not consumer.membership.fenced:
            await self._commits.auto_commit(consumer)
        await self._remove(consumer)

    async def _remove(self, consumer: Consumer) -> None:
        """Remove the consumer: first its polls end, then it leaves its group, then its row is deleted."""
        consumer.gone = True
        self._registry.drop(consumer)
        self._purgatory.notify(consumer)
        await consumer.membership.leave(removed=True)
        await self._store.remove(consumer)

    # --- time ----------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Check all consumers at a steady rhythm: expiry, heartbeats, changed topics, deadlines to be stored."""
        interval = self._config.consumer_check_interval_ms / 1000
        version = self._broker.changes.version
        due = self._monotonic() + interval
        while True:
            await asyncio.sleep(interval)
            late = self._monotonic() - due
            due = self._monotonic() + interval
            self._look_at_topics()
            changed, version = version != self._broker.changes.version, self._broker.changes.version
            for index, consumer in enumerate(self._registry.all()):
                if index % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)
                if late > _STALL:
                    consumer.deadline += late
                try:
                    self._look_after(consumer, changed)
                except Exception:
                    log.exception("consumer %r of group %r", consumer.name, consumer.group_id)

    def _look_at_topics(self) -> None:
        """Ask a cluster for the topics of all subscriptions from time to time: they may grow, or more may match."""
        if self._groups.at_hand or self._monotonic() < self._look_at or self._looking is not None:
            return
        self._look_at = self._monotonic() + _LOOK_SECONDS
        subscriptions = [one.subscription for one in self._registry.all()]
        if subscriptions:
            self._looking = asyncio.get_running_loop().create_task(self._ask_for_topics(subscriptions))

    async def _ask_for_topics(self, subscriptions: Sequence[Subscription]) -> None:
        try:
            if any(one.pattern is not None for one in subscriptions):
                await self._broker.look(None)
            await self._broker.look({topic for one in subscriptions for topic in one.topics})
        except BrokerError as error:
            log.info("the topics of managed consumers could not be looked up: %s", error.message)
        finally:
            self._looking = None

    def _look_after(self, consumer: Consumer, topics_changed: bool) -> None:
        if consumer.gone:
            return
        if consumer.polls == 0 and consumer.deadline <= self._monotonic():
            log.info("consumer %r of group %r was idle for too long", consumer.name, consumer.group_id)
            task = asyncio.get_running_loop().create_task(self._end(consumer))
            self._ending.add(task)
            task.add_done_callback(self._ended)
            return
        if consumer.membership.heartbeat_due:
            consumer.membership.check()
        if topics_changed:
            consumer.membership.review()
        self._registry.store_drifted_deadline(consumer)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("an idle consumer could not be removed: %s", task.exception())
