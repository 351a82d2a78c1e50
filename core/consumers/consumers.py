"""Managed consumers: members of consumer groups that live in the broker, driven by polls from outside.

Every method names a consumer by its group and its own name, and raises RESOURCE_NOT_FOUND when there is none
(it may have expired: an idle consumer goes after its `ttl_ms`). All of them count as signs of life.

Two ways to poll:

- with tokens (native): `poll(ack=token)` acknowledges the batch before and gives the next. Until its token is
  acknowledged the same batch comes again. Acknowledged means committed in the group, durably.
- with `advance=True` (REST Proxy v2): each poll goes on behind what the poll before delivered. Nothing is
  committed but by `commit`, or by the option `auto_commit`. A request that follows proves that the answer before
  it arrived; a door that sees its client go away says so with `take_back`.

What survives a restart: everything. The consumer is the same member with the same partitions, the batch that was
outstanding comes again under its token, and its time to live goes on. How a consumer stays in its group stands in
`consumer_membership`, what it reads in `consumer_reading`; the verbs that move it are in `consumer_polls`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence

from core.consumers.polls import ConsumerPolls
from core.consumers.state import Consumer
from core.consumers.topic_pattern import compile_pattern
from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.groups import Groups
from core.groups.http_members import offers
from core.metadata.store import Store
from core.types import TopicPartition
from core.vocabulary.consumers import (
    MIXED_SUBSCRIPTION,
    ConsumerInfo,
    ConsumerOptions,
    Subscription,
    illegal_state,
)
from core.vocabulary.groups import Cut

log = logging.getLogger(__name__)

# A name stands in a path, and in the id of the member.
_NAME = re.compile(r"[^/\x00-\x1f\x7f]{1,249}")
# Consumers looked at in one turn of the loop: a millisecond or so.
_SLICE = 200
# A check that comes so many seconds late says that the whole process stood still; no client could poll then.
_STALL = 1.0
# After a restart an idle consumer has at least this many seconds, unless it never had so many.
_LEAST_TTL_AFTER_RESTART = 60.0
# A deadline is written again once it has moved by this share of the time to live.
_DEADLINE_DRIFT = 0.25


class Consumers(ConsumerPolls):
    """All managed consumers of a broker, as `broker.consumers`."""

    def __init__(self, broker: Logs, store: Store, groups: Groups) -> None:
        super().__init__(broker, store, groups)
        self._watching: asyncio.Task[None] | None = None
        # Consumers whose positions were cut back in memory, and not on the disk yet.
        self._cut_back: dict[Consumer, None] = {}
        # Consumers that are idle for too long, on their way out.
        self._ending: set[asyncio.Task[None]] = set()

    # --- with the broker -----------------------------------------------------------------------------------

    async def open(self) -> None:
        """Take over what the last run left, after the groups have been opened."""
        now, now_ms = self._monotonic(), self._broker.clock.wall_ms()
        for consumer, deadline_ms in await self._store.load():
            self._touch(consumer)
            # The wall clock may have jumped: never more than a whole time to live, never less than a chance.
            ttl = consumer.deadline - now
            left = max((deadline_ms - now_ms) / 1000, min(ttl, _LEAST_TTL_AFTER_RESTART))
            consumer.deadline = now + min(left, ttl)
            consumer.stored_deadline = consumer.deadline
            consumer.next_auto_commit = now
            self._put(consumer)
            self._membership.restore(consumer)
        self._groups.coordinator.watchers.append(self._group_moved)
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def cut_back(self, ends: Mapping[TopicPartition, int]) -> list[Cut]:
        """Move positions and outstanding batches beyond these ends of logs back to them; what was moved, durably.

        Raises KAFKA_STORAGE_ERROR; it may be tried again.
        """
        cuts: list[Cut] = []
        for consumer in self._all():
            moved = consumer.cut_back(ends)
            if moved:
                self._cut_back[consumer] = None
                cuts += moved
        for consumer in [one for one in self._cut_back if one.gone]:
            del self._cut_back[consumer]
        writes = {consumer: self._store.progress(consumer) for consumer in self._cut_back}
        for consumer, write in writes.items():
            await write
            del self._cut_back[consumer]
        return cuts

    def drain(self) -> None:
        """The broker stops: consumers stay the members that they are. Before the groups are drained."""
        self._membership.close()
        if self._watching is not None:
            self._watching.cancel()

    async def close(self) -> None:
        """End what still runs, before the store is closed."""
        self.drain()
        joins = [consumer.joining for consumer in self._all() if consumer.joining is not None]
        watching = [self._watching] if self._watching is not None else []
        for task in (*joins, *watching):
            task.cancel()
        await asyncio.gather(*joins, *watching, *self._ending, return_exceptions=True)

    def topic_deleted(self, topic: str) -> None:
        """A topic is gone; one that gets its name begins anew."""
        for consumer in self._all():
            gone = [address for address in consumer.positions if address.topic == topic]
            if gone:
                for address in gone:
                    del consumer.positions[address]
                    consumer.unsaved.pop(address, None)
                    consumer.outstanding.pop(address, None)
                self._store.progress(consumer, gone)

    # --- life ----------------------------------------------------------------------------------------------

    async def create(
        self,
        group_id: str,
        name: str | None = None,
        *,
        subscription: Subscription = Subscription(),  # noqa: B008 (frozen)
        options: ConsumerOptions = ConsumerOptions(),  # noqa: B008 (frozen)
    ) -> ConsumerInfo:
        """Make a consumer; durable when it returns. Without a name it gets one.

        It begins to join at once, if it has subscribed; nothing waits for that but a poll. Raises
        DUPLICATE_RESOURCE (the name is taken), INVALID_GROUP_ID, INVALID_REQUEST (the name, an option),
        INVALID_SESSION_TIMEOUT, UNSUPPORTED_ASSIGNOR, THROTTLING_QUOTA_EXCEEDED (too many consumers), and
        what `subscribe` and `assign` raise.
        """
        self._groups.coordinator.require_name(group_id)
        clock = self._broker.clock
        if name is None:
            name = f"consumer-{clock.uuid4().hex[:16]}"
        self._check(name, options)
        await self._check_subscription(group_id, subscription)
        if name in self._by_group.get(group_id, {}):
            raise BrokerError(
                ErrorCode.DUPLICATE_RESOURCE, f"Group {group_id!r} has a consumer {name!r} already."
            )
        if self._count >= self._config.max_consumers:
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"There are {self._count} managed consumers already; delete some of them.",
                limit=self._config.max_consumers,
            )
        nonce = clock.uuid4().hex[:8]
        consumer = Consumer(group_id, name, nonce, Subscription(), options, clock.wall_ms())
        consumer.member_id = self._membership.new_member_id(consumer)
        consumer.next_auto_commit = self._monotonic() + options.auto_commit_interval_ms / 1000
        self._put(consumer)
        with self._in_use(group_id, name):
            try:
                await self._read(consumer, subscription)
            except BaseException:
                await self._remove(consumer)
                raise
            return consumer.info(self._monotonic())

    def get(self, group_id: str, name: str) -> ConsumerInfo:
        """The consumer as it is."""
        with self._in_use(group_id, name) as consumer:
            return consumer.info(self._monotonic())

    def of_group(self, group_id: str) -> list[ConsumerInfo]:
        """The consumers of a group, by name. To look at them all is no sign of life."""
        consumers = self._by_group.get(group_id, {})
        return [consumers[name].info(self._monotonic()) for name in sorted(consumers)]

    async def delete(self, group_id: str, name: str) -> None:
        """Leave the group and forget the consumer. With `auto_commit`, what was delivered is committed before."""
        consumer = self._find(group_id, name)
        self._advance(consumer)
        await self._end(consumer)

    # --- subscription --------------------------------------------------------------------------------------

    async def subscribe(
        self, group_id: str, name: str, *, topics: Sequence[str] = (), pattern: str | None = None
    ) -> None:
        """Read topics, or all topics that match a pattern; replaces the subscription before.

        A topic that does not exist is created where the settings allow it, as for any Kafka consumer. No topics
        and no pattern unsubscribe. Raises INVALID_RECORD_STATE with reason `mixed-subscription` when the
        consumer has assigned itself partitions, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION,
        INVALID_REGULAR_EXPRESSION.
        """
        wanted = Subscription(tuple(dict.fromkeys(topics)), pattern)
        with self._in_use(group_id, name) as consumer:
            if consumer.subscription.assignments:
                raise illegal_state(
                    MIXED_SUBSCRIPTION, f"Consumer {name!r} has chosen its partitions; unsubscribe first."
                )
            await self._check_subscription(group_id, wanted)
            await self._read(consumer, wanted)

    async def assign(self, group_id: str, name: str, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions, without membership; replaces the assignment before.

        Raises INVALID_RECORD_STATE with reason `mixed-subscription` when the consumer has subscribed,
        UNKNOWN_TOPIC_OR_PARTITION, and NON_EMPTY_GROUP when the group has members, which commit for it.
        """
        wanted = Subscription(assignments=tuple(sorted(set(partitions))))
        with self._in_use(group_id, name) as consumer:
            if consumer.subscription.joins:
                raise illegal_state(
                    MIXED_SUBSCRIPTION, f"Consumer {name!r} has subscribed; unsubscribe first."
                )
            await self._check_subscription(group_id, wanted)
            await self._read(consumer, wanted)

    async def unsubscribe(self, group_id: str, name: str) -> None:
        """Read nothing any more; the member leaves the group. Also for consumers with assignments."""
        with self._in_use(group_id, name) as consumer:
            await self._read(consumer, Subscription())

    async def _read(self, consumer: Consumer, subscription: Subscription) -> None:
        """Another subscription is in force; durable when it returns."""
        joined = consumer.subscription.joins
        if joined and not subscription.joins:
            await self._commit_before_leaving(consumer)
            consumer.subscription = subscription
            await self._membership.leave(consumer)
        consumer.subscription = subscription
        if not subscription.joins:
            before = set(consumer.positions)
            kept = [address for address in consumer.assigned if address in subscription.assignments]
            consumer.replace_partitions(kept, subscription.assignments)
            for address in subscription.assignments:
                position = self._reading.place(consumer, address)
                if address not in consumer.positions and position is not None:
                    consumer.move(address, position)
            self._store.progress(consumer, before - consumer.positions.keys())
        await self._store.save(consumer)
        if subscription.joins:
            if joined and consumer.failure is None and not consumer.fenced:
                self._membership.review(consumer)
            else:
                consumer.failure, consumer.fenced = None, False
                self._membership.start(consumer)
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
        """Refuse what cannot be read, create the topics that are named and missing."""
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
        for address in wanted.assignments:
            self._broker.partitions.offsets(address)
        if wanted.assignments:
            view = self._groups.describe(group_id)
            if view is not None and view.members:
                raise self._groups.refusal(ErrorCode.NON_EMPTY_GROUP, group_id)

    # --- the end -------------------------------------------------------------------------------------------

    async def _end(self, consumer: Consumer) -> None:
        if consumer.gone:
            return
        if consumer.subscription and not consumer.fenced:
            await self._commit_before_leaving(consumer)
        await self._remove(consumer)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("an idle consumer could not be removed: %s", task.exception())

    async def _remove(self, consumer: Consumer) -> None:
        """The consumer is gone from here on; its polls hear so, its group does, and then the disk."""
        consumer.gone = True
        self._drop(consumer)
        self._purgatory.notify(consumer)
        await self._membership.leave(consumer)
        await self._store.remove(consumer)

    # --- time ----------------------------------------------------------------------------------------------

    def _group_moved(self, group_id: str) -> None:
        """A group is not stable (any more): its consumers look after that in the next turn of the loop."""
        consumers = self._by_group.get(group_id)
        if consumers:
            loop = asyncio.get_running_loop()
            for consumer in consumers.values():
                if consumer.joining is None:
                    loop.call_soon(self._membership.check, consumer)

    async def _watch(self) -> None:
        """The rhythm of all consumers: expiry, heartbeats, topics that have changed, deadlines to be stored."""
        interval = self._config.consumer_check_interval_ms / 1000
        version = self._broker.changes.version
        due = self._monotonic() + interval
        while True:
            await asyncio.sleep(interval)
            late = self._monotonic() - due
            due = self._monotonic() + interval
            changed, version = version != self._broker.changes.version, self._broker.changes.version
            for index, consumer in enumerate(self._all()):
                if index % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)
                if late > _STALL:
                    consumer.deadline += late
                try:
                    self._look_after(consumer, changed)
                except Exception:
                    log.exception("consumer %r of group %r", consumer.name, consumer.group_id)

    def _look_after(self, consumer: Consumer, topics_changed: bool) -> None:
        now = self._monotonic()
        if consumer.gone:
            return
        if consumer.polls == 0 and consumer.deadline <= now:
            log.info("consumer %r of group %r was idle for too long", consumer.name, consumer.group_id)
            task = asyncio.get_running_loop().create_task(self._end(consumer))
            self._ending.add(task)
            task.add_done_callback(self._ended)
            return
        if consumer.next_heartbeat <= now:
            self._membership.check(consumer)
        if topics_changed:
            self._membership.review(consumer)
        ttl = (consumer.options.ttl_ms or self._config.consumer_default_ttl_ms) / 1000
        if consumer.deadline - consumer.stored_deadline > ttl * _DEADLINE_DRIFT:
            self._store.progress(consumer)
