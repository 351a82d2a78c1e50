"""Producer ids for idempotent producers, handed out from durably reserved blocks.

An id must never be assigned again, not even after a crash. Otherwise the batches of the second producer would count
as retries of the first one's and be dropped silently. So a whole block is reserved on disk before its first id is
assigned. The rest of a block is lost in a crash and never reused. One durable write per `BLOCK_SIZE` producers is
what Kafka needs as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from core.clock import Clock
from core.config import Config
from core.metadata.store import Store
from core.metadata.topics import put_setting
from core.vocabulary.transactions import NO_PRODUCER, ProducerIdAndEpoch, check_known

# Kafka's ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE. 2^63 ids last for 2^53 restarts at this size.
BLOCK_SIZE = 1000
# The settings that hold the first id which is not reserved: of a broker alone, and of each broker of a cluster.
_PRODUCER_ID = "producer.id.next"
_OWN_PRODUCER_ID = "local.producer.id.next"
# In a cluster the bits above these are the broker id.
_PRODUCER_ID_BITS = 48


class ReservedIds:
    """The blocks of ids that the store has noted as reserved. Call `load` before `reserve`."""

    def __init__(self, config: Config, clock: Clock, store: Store) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self._next = 0

    def load(self, settings: Mapping[str, str]) -> None:
        """Continue where the last run ended.

        In a cluster each broker has ids of its own. One that has lost its database begins at a number that it cannot
        have reached before: the time.
        """
        if not self._config.peers:
            self._next = int(settings.get(_PRODUCER_ID, "0"))
            return
        first = (self._config.broker_id << _PRODUCER_ID_BITS) + self._clock.wall_ms()
        self._next = int(settings.get(_OWN_PRODUCER_ID, str(first)))

    async def reserve(self, count: int) -> int:
        """Reserve `count` ids durably and return the first of them. Raises KAFKA_STORAGE_ERROR."""
        first = self._next
        self._next = first + count
        name = _OWN_PRODUCER_ID if self._config.peers else _PRODUCER_ID
        await self._store.submit([put_setting(name, str(first + count))], local=bool(self._config.peers))
        return first


class ProducerIds:
    """Assigns producer ids, each only once.

    `reserve(count)` durably reserves `count` ids that were never given and returns the first of them; it may
    raise, and then the callers of `next` see that error and a later call tries again.
    """

    def __init__(self, reserve: Callable[[int], Awaitable[int]]) -> None:
        self._reserve = reserve
        self._next = 0
        self._end = 0
        # Held while a block is being reserved, so that many producers at once cost one block and not many.
        self._reserving = asyncio.Lock()

    async def next(self) -> int:
        """A producer id that was never given before. Waits for the disk once per `BLOCK_SIZE` calls."""
        while self._next >= self._end:
            async with self._reserving:
                # After the lock there is a new block, unless other callers have used it up already.
                if self._next >= self._end:
                    first = await self._reserve(BLOCK_SIZE)
                    self._next, self._end = first, first + BLOCK_SIZE
        producer_id = self._next
        self._next += 1
        return producer_id

    async def init(self, known: ProducerIdAndEpoch = NO_PRODUCER) -> ProducerIdAndEpoch:
        """InitProducerId for a producer without a transactional id.

        Since v3 (KIP-360) the request may name the id and epoch that the producer has. Only a transactional
        producer gets the same id back with a higher epoch; an idempotent one raises its epoch by itself and
        asks here when the epoch is used up, or when its id is lost to the broker: it always gets a new id at
        epoch 0, as from Kafka. An id without an epoch, or the reverse, is INVALID_REQUEST.
        """
        check_known(known)
        return ProducerIdAndEpoch(await self.next(), 0)
