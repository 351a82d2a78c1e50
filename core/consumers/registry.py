"""The managed consumers of a broker by group and name: which there are, which are in use, when they expire."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from core.clock import Clock
from core.config import Config
from core.consumers.consumer import Consumer
from core.consumers.membership import Membership
from core.consumers.store import ConsumerStore
from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition
from core.vocabulary.groups import Cut

# After a restart an idle consumer has at least this many seconds, unless its time to live is shorter.
_LEAST_TTL_AFTER_RESTART = 60.0
# The deadline is stored again once it has moved by this share of the time to live.
_DEADLINE_DRIFT = 0.25


class Registry:
    """All managed consumers. Use it on the event loop only."""

    def __init__(self, config: Config, clock: Clock, store: ConsumerStore) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self._by_group: dict[str, dict[str, Consumer]] = {}
        self._count = 0
        # Consumers whose positions were cut back in memory and not on disk yet.
        self._cut_back: dict[Consumer, None] = {}

    # --- which there are -----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    def find(self, group_id: str, name: str) -> Consumer:
        """Return a consumer. Raises RESOURCE_NOT_FOUND."""
        consumer = self.get(group_id, name)
        if consumer is None:
            raise BrokerError(
                ErrorCode.RESOURCE_NOT_FOUND,
                f"Group {group_id!r} has no consumer {name!r}: it was never there, was deleted, or was idle for too "
                "long. Create it again.",
                group=group_id,
                consumer=name,
            )
        return consumer

    def get(self, group_id: str, name: str) -> Consumer | None:
        """Return a consumer; None if it does not exist."""
        return self._by_group.get(group_id, {}).get(name)

    def all(self) -> list[Consumer]:
        """Return all consumers, as a list of its own."""
        return [consumer for consumers in self._by_group.values() for consumer in consumers.values()]

    def of_group(self, group_id: str) -> Iterable[Consumer]:
        """Return the consumers of a group, in no order."""
        return self._by_group.get(group_id, {}).values()

    def put(self, consumer: Consumer) -> None:
        """Add a consumer."""
        self._by_group.setdefault(consumer.group_id, {})[consumer.name] = consumer
        self._count += 1

    def drop(self, consumer: Consumer) -> None:
        """Remove a consumer, if it is still there."""
        consumers = self._by_group.get(consumer.group_id, {})
        if consumers.get(consumer.name) is consumer:
            del consumers[consumer.name]
            self._count -= 1
            if not consumers:
                del self._by_group[consumer.group_id]

    # --- when they expire ----------------------------------------------------------------------------------

    @contextmanager
    def in_use(self, group_id: str, name: str) -> Iterator[Consumer]:
        """Find a consumer and keep it from expiring; its time to live begins again at the end.

        Raises RESOURCE_NOT_FOUND.
        """
        consumer = self.find(group_id, name)
        consumer.polls += 1
        self._renew(consumer)
        try:
            yield consumer
        finally:
            consumer.polls -= 1
            self._renew(consumer)

    def store_drifted_deadline(self, consumer: Consumer) -> None:
        """Store the consumer if its deadline has moved far from the stored one."""
        if consumer.deadline - consumer.stored_deadline > self._ttl(consumer) * _DEADLINE_DRIFT:
            self._store.progress(consumer)

    def _renew(self, consumer: Consumer) -> None:
        consumer.deadline = self._clock.monotonic() + self._ttl(consumer)

    def _ttl(self, consumer: Consumer) -> float:
        """The time to live in seconds."""
        return (consumer.options.ttl_ms or self._config.consumer_default_ttl_ms) / 1000

    # --- changes from outside ------------------------------------------------------------------------------

    async def load(self, membership_of: Callable[[Consumer], Membership]) -> None:
        """Take over the consumers that the last run has stored, and let their members continue."""
        now, now_ms = self._clock.monotonic(), self._clock.wall_ms()
        for consumer, member_id, generation, deadline_ms in await self._store.load(membership_of):
            # The wall clock may have jumped: at most a whole time to live, and time for a client to come back.
            ttl = self._ttl(consumer)
            left = max((deadline_ms - now_ms) / 1000, min(ttl, _LEAST_TTL_AFTER_RESTART))
            consumer.deadline = consumer.stored_deadline = now + min(left, ttl)
            consumer.next_auto_commit = now
            self.put(consumer)
            if consumer.subscription.joins and not member_id:
                # Only `sluice move` stores a consumer without a member id: this cluster's group does not know it.
                consumer.moved = True
                consumer.assigned = tuple(sorted(consumer.positions))
                consumer.membership.start()
            elif consumer.subscription.joins:
                consumer.membership.restore(member_id, generation)
            else:
                consumer.assigned = consumer.subscription.assignments

    async def cut_back(self, ends: Mapping[TopicPartition, int]) -> list[Cut]:
        """Move positions and outstanding ranges beyond these log end offsets back to them; durable when it returns.

        Return what was moved. Raises KAFKA_STORAGE_ERROR; it may be tried again.
        """
        cuts: list[Cut] = []
        for consumer in self.all():
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

    def topic_deleted(self, topic: str) -> None:
        """Forget the positions in a deleted topic; a new topic of the same name is read from its own beginning."""
        for consumer in self.all():
            if forgotten := consumer.forget_topic(topic):
                self._store.progress(consumer, forgotten)
