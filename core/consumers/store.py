"""Managed consumers on disk: their state as effects of the metadata store.

The store keeps the order of writes. When a write is durable, all writes before it are durable too. So a caller that
needs no answer submits a write without waiting for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from core.clock import Clock
from core.consumers.consumer import Consumer
from core.consumers.membership import Membership
from core.errors import BrokerError
from core.metadata import consumers as tables
from core.metadata.groups import Effect, Row
from core.metadata.store import Store
from core.types import TopicPartition
from core.vocabulary.consumers import ConsumerOptions, Range, Subscription

log = logging.getLogger(__name__)

_encode = msgspec.msgpack.Encoder().encode
_subscription = msgspec.msgpack.Decoder(Subscription).decode
_options = msgspec.msgpack.Decoder(ConsumerOptions).decode


class _Paused(msgspec.Struct, array_like=True):
    all: bool
    partitions: tuple[TopicPartition, ...]


_ranges = msgspec.msgpack.Decoder(tuple[Range, ...]).decode
_paused = msgspec.msgpack.Decoder(_Paused).decode


class StoredConsumer(NamedTuple):
    """A consumer as it was stored, its member id and generation, and its expiry in wall time (ms)."""

    consumer: Consumer
    member_id: str
    generation: int
    deadline_ms: int


class ConsumerStore:
    """Stores managed consumers in the broker's metadata store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def load(self, membership_of: Callable[[Consumer], Membership]) -> list[StoredConsumer]:
        """Return all stored consumers. Their assignment is the partitions that have a position."""
        rows, positions = await self._store.read(tables.load_consumers)
        found: dict[tuple[str, str], StoredConsumer] = {}
        for row in rows:
            found[row[0], row[1]] = _restored(row, membership_of)
        for group_id, name, topic, partition, position in positions:
            stored = found.get((group_id, name))
            if stored is not None:
                stored.consumer.positions[TopicPartition(topic, partition)] = position
        for stored in found.values():
            stored.consumer.assigned = tuple(sorted(stored.consumer.positions))
        return list(found.values())

    def save(self, consumer: Consumer) -> asyncio.Future[None]:
        """Store the whole consumer: it is new, or has another subscription."""
        row = (
            consumer.group_id,
            consumer.name,
            consumer.nonce,
            _encode(consumer.subscription),
            _encode(consumer.options),
            consumer.created_ms,
            *self._progress(consumer),
        )
        return self._submit([tables.put_consumer(row), *self._positions(consumer)], consumer)

    def progress(self, consumer: Consumer, removed: Iterable[TopicPartition] = ()) -> asyncio.Future[None]:
        """Store what polls and rebalances change. The positions of `removed` partitions are deleted."""
        identity = consumer.group_id, consumer.name
        effects = [tables.put_progress(*identity, self._progress(consumer))]
        forgotten = list(removed)
        if forgotten:
            effects.append(tables.remove_positions(*identity, forgotten))
        return self._submit([*effects, *self._positions(consumer)], consumer)

    def settlement(self, consumer: Consumer, ranges: Iterable[Range]) -> list[Effect]:
        """Return the effects of a decision that acknowledges these ranges, which are `settling`."""
        rows = [
            (consumer.group_id, consumer.name, one.topic, one.partition, one.next_offset) for one in ranges
        ]
        progress = tables.put_progress(consumer.group_id, consumer.name, self._progress(consumer))
        return [progress, tables.put_positions(rows)]

    def remove(self, consumer: Consumer) -> asyncio.Future[None]:
        """Delete a consumer."""
        return self._submit([tables.remove_consumer(consumer.group_id, consumer.name)], None)

    def _progress(self, consumer: Consumer) -> Row:
        left = consumer.deadline - self._clock.monotonic()
        consumer.stored_deadline = consumer.deadline
        outstanding = [one for one in consumer.outstanding.values() if one not in consumer.settling]
        return (
            consumer.membership.member_id,
            consumer.membership.generation,
            consumer.sequence,
            # Without a token the client cannot prove that an answer before a restart arrived: it is delivered again.
            _encode(() if consumer.advancing else outstanding),
            _encode(_Paused(consumer.paused_all, tuple(sorted(consumer.paused)))),
            self._clock.wall_ms() + round(left * 1000),
        )

    def _positions(self, consumer: Consumer) -> list[Effect]:
        rows = [(consumer.group_id, consumer.name, *tp, consumer.positions[tp]) for tp in consumer.unsaved]
        return [tables.put_positions(rows)] if rows else []

    def _submit(self, effects: list[Effect], consumer: Consumer | None) -> asyncio.Future[None]:
        unsaved: dict[TopicPartition, None] = {}
        if consumer is not None:
            unsaved, consumer.unsaved = consumer.unsaved, {}
        try:
            future = self._store.submit(effects)
        except BrokerError as error:
            future = asyncio.get_running_loop().create_future()
            future.set_exception(error)

        def done(future: asyncio.Future[None]) -> None:
            if not future.cancelled():
                if future.exception() is None:
                    return
                log.error("managed consumer: its state could not be stored: %s", future.exception())
            if consumer is not None:
                # The next write includes them. A caller that is cancelled cancels the future, and its outcome is not
                # known; a second write of the same positions does no harm.
                consumer.unsaved |= {tp: None for tp in unsaved if tp in consumer.positions}

        future.add_done_callback(done)
        return future


def _restored(row: Row, membership_of: Callable[[Consumer], Membership]) -> StoredConsumer:
    group_id, name, nonce, subscription, options, created_ms, *progress = row
    member_id, generation, sequence, outstanding, paused, deadline_ms = progress
    consumer = Consumer(
        group_id, name, nonce, _subscription(subscription), _options(options), created_ms, membership_of
    )
    consumer.sequence = sequence
    consumer.outstanding = {TopicPartition(one.topic, one.partition): one for one in _ranges(outstanding)}
    stopped = _paused(paused)
    consumer.paused_all, consumer.paused = stopped.all, set(stopped.partitions)
    return StoredConsumer(consumer, member_id, generation, deadline_ms)
