"""Producer ids for idempotent producers, handed out from durably reserved blocks.

An id must never be given twice, not even across a crash: a second producer under the same id would have its
batches taken for retries of the first one's and silently dropped. So a whole block is reserved on disk
before the first id of it is handed out; what is left of the block at a crash is lost, never reused. One
durable write per `BLOCK_SIZE` producers is what Kafka pays too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from core.errors import BrokerError, ErrorCode

# Kafka's ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE. 2^63 ids last for 2^53 restarts at this size.
BLOCK_SIZE = 1000
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


class ProducerIdAndEpoch(NamedTuple):
    """What InitProducerId answers."""

    producer_id: int
    producer_epoch: int


class ProducerIds:
    """Hands out producer ids, each once for ever.

    `reserve(count)` durably sets aside `count` ids that nobody has had and answers the first of them; it may
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
                # Whoever waited for the lock finds a fresh block, unless others have used it up already.
                if self._next >= self._end:
                    first = await self._reserve(BLOCK_SIZE)
                    self._next, self._end = first, first + BLOCK_SIZE
        producer_id = self._next
        self._next += 1
        return producer_id

    async def init(
        self, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = NO_PRODUCER_EPOCH
    ) -> ProducerIdAndEpoch:
        """InitProducerId for a producer without a transactional id.

        Since v3 (KIP-360) the request may name the id and epoch that the producer has. Only a transactional
        producer gets the same id back with a higher epoch; an idempotent one raises its epoch by itself and
        asks here when the epoch is used up, or when its id is lost to the broker: it always gets a new id at
        epoch 0, as from Kafka. An id without an epoch, or the reverse, is INVALID_REQUEST.
        """
        if (producer_id == NO_PRODUCER_ID) != (producer_epoch == NO_PRODUCER_EPOCH):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                "producer_id and producer_epoch are given together or not at all",
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )
        return ProducerIdAndEpoch(await self.next(), 0)
