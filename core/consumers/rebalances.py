"""What a rebalance does to a managed consumer: its positions, its outstanding batch, the disk.

Positions are kept over a rebalance only from one generation to the very next: then no other member can have owned the
partition in between. Other partitions begin at the committed offset, or where the consumer's `start` says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from functools import partial

from core.clock import Clock
from core.config import Config
from core.consumers.commits import Commits
from core.consumers.consumer import Consumer
from core.consumers.interfaces import MemberGroups
from core.consumers.membership import Membership
from core.consumers.reading import Reading
from core.consumers.store import ConsumerStore
from core.errors import BrokerError
from core.groups.topic_pattern import SubscribedTopics
from core.purgatory import Purgatory
from core.types import TopicPartition

log = logging.getLogger(__name__)


class Rebalances:
    """Makes the memberships of consumers, and carries out what they report."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        purgatory: Purgatory,
        groups: MemberGroups,
        store: ConsumerStore,
        reading: Reading,
        commits: Commits,
        topics: SubscribedTopics,
    ) -> None:
        self._config = config
        self._clock = clock
        self._purgatory = purgatory
        self._groups = groups
        self._store = store
        self._reading = reading
        self._commits = commits
        self._topics = topics

    def membership_of(self, consumer: Consumer) -> Membership:
        """Make the membership of a new consumer, which has not joined yet."""
        return Membership(
            self._groups,
            self._clock,
            consumer.group_id,
            consumer.name,
            consumer.options,
            subscription=lambda: consumer.subscription,
            topics_of=self._topics.of,
            named=partial(self._named, consumer),
            bring=partial(self._bring, consumer),
            before_rejoin=partial(self._before_rejoin, consumer),
            assigned=partial(self._assigned, consumer),
            revoked=partial(self._revoked, consumer),
            lost=partial(self._lost, consumer),
            changed=partial(self._purgatory.notify, consumer),
        )

    def _named(self, consumer: Consumer) -> None:
        """Store the member id before the member joins under it: else a crash would leave a member in the group."""
        if not consumer.gone:
            self._store.progress(consumer)

    async def _bring(self, consumer: Consumer, owned: Collection[TopicPartition]) -> None:
        try:
            await self._reading.bring_offsets(consumer, owned)
        except BrokerError as error:
            # The next poll asks again.
            log.info("consumer %r of group %r: %s", consumer.name, consumer.group_id, error)

    async def _before_rejoin(self, consumer: Consumer) -> None:
        await self._linger(consumer)
        await self._commits.auto_commit(consumer)

    async def _linger(self, consumer: Consumer) -> None:
        """Give the client time to acknowledge the outstanding batch."""
        grace = self._config.consumer_revoke_grace_ms
        patience = min(grace, consumer.options.rebalance_timeout_ms // 2) / 1000
        if not consumer.outstanding or consumer.advancing or not consumer.membership.joined or patience <= 0:
            return
        consumer.lingering = asyncio.Event()
        try:
            async with asyncio.timeout(patience):
                await consumer.lingering.wait()
        except TimeoutError:
            pass
        finally:
            consumer.lingering = None

    def _assigned(
        self, consumer: Consumer, owned: set[TopicPartition], follows: bool, new_generation: bool
    ) -> None:
        kept = owned & set(consumer.assigned) if follows else set()
        if consumer.moved:
            kept, consumer.moved = self._unread_since(consumer, owned), False
        lost = consumer.positions.keys() - kept
        consumer.replace_partitions(kept, owned)
        self._reading.begin(consumer, owned - kept)
        if not new_generation and not self._groups.at_hand:
            self._catch_up(consumer, kept)
        if new_generation or lost or consumer.unsaved:
            self._store.progress(consumer, lost - consumer.positions.keys())
        self._purgatory.notify(consumer)

    def _catch_up(self, consumer: Consumer, kept: set[TopicPartition]) -> None:
        """Move positions up to the committed offsets: a crash came after a commit, and before it was stored here."""
        for tp in kept:
            try:
                committed = self._groups.committed(consumer.group_id, *tp)
            except BrokerError:
                continue
            position = consumer.positions.get(tp)
            if committed is None or position is None or committed.offset <= position:
                continue
            one = consumer.outstanding.get(tp)
            if one is not None and one.next_offset == committed.offset:
                consumer.take((one,))
            else:
                consumer.outstanding.pop(tp, None)
                consumer.move(tp, committed.offset)

    def _unread_since(self, consumer: Consumer, owned: set[TopicPartition]) -> set[TopicPartition]:
        """Return partitions of a moved consumer in which its group has committed just its position.

        Then no other member has acknowledged anything since the move, and the outstanding batch is still right.
        """
        kept = set()
        for tp in owned & set(consumer.assigned):
            try:
                committed = self._groups.committed(consumer.group_id, *tp)
            except BrokerError:
                continue
            if committed is not None and committed.offset == consumer.positions.get(tp):
                kept.add(tp)
        return kept

    def _revoked(self, consumer: Consumer) -> None:
        consumer.replace_partitions((), ())
        self._purgatory.notify(consumer)

    def _lost(self, consumer: Consumer) -> None:
        lost = list(consumer.positions)
        consumer.replace_partitions((), ())
        if not consumer.gone:
            self._store.progress(consumer, lost)
