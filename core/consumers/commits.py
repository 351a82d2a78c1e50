"""Commits of managed consumers: which offsets, and as which member of the group."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from core.clock import Clock
from core.consumers.consumer import Consumer
from core.consumers.interfaces import MemberGroups
from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition
from core.vocabulary.groups import Commit, CommitRequest

log = logging.getLogger(__name__)


class Commits:
    """Commits offsets for managed consumers."""

    def __init__(self, groups: MemberGroups, clock: Clock) -> None:
        self._groups = groups
        self._clock = clock

    async def commit(self, consumer: Consumer, commits: Sequence[Commit]) -> list[ErrorCode]:
        """Commit as the consumer's member, or without membership if it has assigned itself partitions.

        Return one error for each commit, in order, once they are durable. Raises NON_EMPTY_GROUP if the consumer is
        no member and the group has members.
        """
        if consumer.subscription.joins:
            return await consumer.membership.commit(commits)
        errors = await self._groups.commit(consumer.group_id, CommitRequest(commits))
        if ErrorCode.UNKNOWN_MEMBER_ID in errors:
            raise BrokerError(
                ErrorCode.NON_EMPTY_GROUP,
                f"Group {consumer.group_id!r} has members, which commit for it. A consumer with partitions of its "
                "own choice needs a group of its own.",
                group=consumer.group_id,
            )
        return errors

    async def bring_uncommitted(self, consumer: Consumer) -> list[Commit]:
        """Return the positions that differ from the committed offsets; ask a cluster for these if need be."""
        await self._groups.bring(consumer.group_id, consumer.assigned)
        return self.uncommitted(consumer)

    def uncommitted(self, consumer: Consumer) -> list[Commit]:
        """Return the positions that differ from the committed offsets."""
        commits = []
        for topic, partition in consumer.assigned:
            position = consumer.positions.get(TopicPartition(topic, partition))
            committed = self._groups.committed(consumer.group_id, topic, partition)
            if position is not None and (committed is None or committed.offset != position):
                commits.append(Commit(topic, partition, position))
        return commits

    async def auto_commit(self, consumer: Consumer) -> None:
        """Commit the positions if the consumer has `auto_commit`.

        Log a failed commit; the records are delivered again.
        """
        if not consumer.options.auto_commit or not consumer.subscription:
            return
        try:
            commits = await self.bring_uncommitted(consumer)
            if commits:
                await self.commit(consumer, commits)
        except BrokerError as error:
            log.info("consumer %r of group %r: %s", consumer.name, consumer.group_id, error)

    async def auto_commit_if_due(self, consumer: Consumer) -> None:
        """Commit as `auto_commit` if the consumer's interval has passed."""
        now = self._clock.monotonic()
        if consumer.options.auto_commit and now >= consumer.next_auto_commit:
            consumer.next_auto_commit = now + consumer.options.auto_commit_interval_ms / 1000
            await self.auto_commit(consumer)
