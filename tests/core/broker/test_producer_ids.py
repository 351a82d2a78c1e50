"""Producer ids: each only once, one durable write per block, errors that pass."""

from __future__ import annotations

import asyncio

import pytest

from core.broker.producer_ids import BLOCK_SIZE, ProducerIds
from core.errors import BrokerError, ErrorCode
from core.vocabulary.transactions import ProducerIdAndEpoch


class Disk:
    """A durable counter, as the store keeps it."""

    def __init__(self) -> None:
        self.reserved = 0
        self.writes = 0
        self.broken = False

    async def reserve(self, count: int) -> int:
        await asyncio.sleep(0)
        if self.broken:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")
        first = self.reserved
        self.reserved += count
        self.writes += 1
        return first


async def test_ids_are_dense_and_cost_one_write_per_block() -> None:
    disk = Disk()
    ids = ProducerIds(disk.reserve)
    got = [await ids.next() for _ in range(2 * BLOCK_SIZE)]
    assert got == list(range(2 * BLOCK_SIZE))
    assert disk.writes == 2


async def test_a_restart_never_gives_an_id_again() -> None:
    disk = Disk()
    first = await ProducerIds(disk.reserve).next()
    second = await ProducerIds(disk.reserve).next()
    assert second == first + BLOCK_SIZE


async def test_many_at_once_share_one_reservation_and_get_different_ids() -> None:
    disk = Disk()
    ids = ProducerIds(disk.reserve)
    got = await asyncio.gather(*(ids.next() for _ in range(BLOCK_SIZE)))
    assert len(set(got)) == BLOCK_SIZE
    assert disk.writes == 1


async def test_more_waiters_than_a_block_holds_reserve_again() -> None:
    disk = Disk()
    ids = ProducerIds(disk.reserve)
    got = await asyncio.gather(*(ids.next() for _ in range(BLOCK_SIZE + 5)))
    assert len(set(got)) == BLOCK_SIZE + 5
    assert disk.writes == 2


async def test_a_failed_reservation_is_told_and_the_next_call_tries_again() -> None:
    disk = Disk()
    ids = ProducerIds(disk.reserve)
    disk.broken = True
    with pytest.raises(BrokerError) as refused:
        await ids.next()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.broken = False
    assert await ids.next() == 0


async def test_a_cancelled_caller_does_not_block_the_others() -> None:
    disk = Disk()
    ids = ProducerIds(disk.reserve)
    waiting = asyncio.ensure_future(ids.next())
    await asyncio.sleep(0)
    waiting.cancel()
    assert await ids.next() >= 0


async def test_init_gives_a_new_id_at_epoch_zero_also_to_a_producer_that_names_its_old_one() -> None:
    ids = ProducerIds(Disk().reserve)
    first = await ids.init()
    again = await ids.init(first)
    assert first.producer_epoch == again.producer_epoch == 0
    assert again.producer_id != first.producer_id


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 3)])
async def test_half_of_an_identity_is_an_invalid_request(producer_id: int, epoch: int) -> None:
    with pytest.raises(BrokerError) as refused:
        await ProducerIds(Disk().reserve).init(ProducerIdAndEpoch(producer_id, epoch))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
