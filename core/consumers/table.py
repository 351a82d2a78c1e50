"""The managed consumers of a broker by group and name, and what all their verbs share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from core.consumers.membership import Membership
from core.consumers.reading import ConsumerReading
from core.consumers.state import Consumer
from core.consumers.store import ConsumerStore
from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.groups import Groups
from core.metadata.store import Store
from core.types import TopicPartition
from core.vocabulary.groups import Commit

log = logging.getLogger(__name__)


class ConsumerTable:
    """All managed consumers. Touched on the event loop only."""

    def __init__(self, broker: Logs, store: Store, groups: Groups) -> None:
        self._broker = broker
        self._groups = groups
        self._config = broker.config
        self._monotonic = broker.clock.monotonic
        self._purgatory = broker.purgatory
        self._by_group: dict[str, dict[str, Consumer]] = {}
        self._count = 0
        self._store = ConsumerStore(store, broker.clock)
        self._reading = ConsumerReading(broker, groups)
        self._membership = Membership(
            broker, groups, self._store, self._reading.place, self._commit_before_leaving
        )

    # --- the table -----------------------------------------------------------------------------------------

    def _find(self, group_id: str, name: str) -> Consumer:
        consumer = self._by_group.get(group_id, {}).get(name)
        if consumer is None:
            raise BrokerError(
                ErrorCode.RESOURCE_NOT_FOUND,
                f"Group {group_id!r} has no consumer {name!r}: it was never there, was deleted, or was idle for too "
                "long. Create it again.",
                group=group_id,
                consumer=name,
            )
        return consumer

    def _all(self) -> list[Consumer]:
        return [consumer for consumers in self._by_group.values() for consumer in consumers.values()]

    def _put(self, consumer: Consumer) -> None:
        self._by_group.setdefault(consumer.group_id, {})[consumer.name] = consumer
        self._count += 1

    def _drop(self, consumer: Consumer) -> None:
        consumers = self._by_group.get(consumer.group_id, {})
        if consumers.get(consumer.name) is consumer:
            del consumers[consumer.name]
            self._count -= 1
            if not consumers:
                del self._by_group[consumer.group_id]

    @contextmanager
    def _in_use(self, group_id: str, name: str) -> Iterator[Consumer]:
        """A consumer that does not expire meanwhile; its time to live starts anew at the end."""
        consumer = self._find(group_id, name)
        consumer.polls += 1
        self._touch(consumer)
        try:
            yield consumer
        finally:
            consumer.polls -= 1
            self._touch(consumer)

    def _touch(self, consumer: Consumer) -> None:
        ttl_ms = consumer.options.ttl_ms or self._config.consumer_default_ttl_ms
        consumer.deadline = self._monotonic() + ttl_ms / 1000

    # --- commits -------------------------------------------------------------------------------------------

    async def _commit_to_group(self, consumer: Consumer, commits: list[Commit]) -> list[ErrorCode]:
        """Commit as the member that the consumer is; without membership, as a simple consumer."""
        if consumer.subscription.joins:
            return await self._groups.commit(
                consumer.group_id,
                commits,
                member_id=consumer.member_id,
                generation=max(consumer.generation, 0),
                group_instance_id=consumer.options.group_instance_id,
            )
        errors = await self._groups.commit(consumer.group_id, commits)
        if ErrorCode.UNKNOWN_MEMBER_ID in errors:
            raise BrokerError(
                ErrorCode.NON_EMPTY_GROUP,
                f"Group {consumer.group_id!r} has members, which commit for it. A consumer with partitions of its "
                "own choice needs a group of its own.",
                group=consumer.group_id,
            )
        return errors

    def _uncommitted(self, consumer: Consumer) -> list[Commit]:
        """The positions that differ from what is committed."""
        commits = []
        for topic, partition in consumer.assigned:
            position = consumer.positions.get(TopicPartition(topic, partition))
            committed = self._groups.committed(consumer.group_id, topic, partition)
            if position is not None and (committed is None or committed.offset != position):
                commits.append(Commit(topic, partition, position))
        return commits

    async def _commit_before_leaving(self, consumer: Consumer) -> None:
        """Commit what is done with before partitions are given up; what cannot be committed comes again."""
        if not consumer.options.auto_commit or not consumer.subscription:
            return
        try:
            commits = self._uncommitted(consumer)
            if commits:
                await self._commit_to_group(consumer, commits)
        except BrokerError as error:
            log.info("consumer %r of group %r: %s", consumer.name, consumer.group_id, error)
