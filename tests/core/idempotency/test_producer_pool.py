"""core.idempotency.producer_pool: an id belongs to one borrower, and comes back only when all is known."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from core.broker.producer_ids import ProducerIds
from core.errors import BrokerError, ErrorCode
from core.idempotency.producer_pool import MAX_PARTITIONS, MAX_SEQUENCE, ProducerPool

TOPIC = uuid.UUID(int=1)


def pool(limit: int = 10) -> ProducerPool:
    reserved = 0

    async def reserve(count: int) -> int:
        nonlocal reserved
        await asyncio.sleep(0)
        reserved += count
        return reserved - count

    return ProducerPool(ProducerIds(reserve), limit)


async def test_what_is_given_back_is_lent_again_and_what_is_retired_is_not() -> None:
    lender = pool()
    first, second = await lender.borrow(2)
    lender.give_back([first])
    lender.retire([second])
    assert lender.lent == 0
    third, fourth = await lender.borrow(2)
    assert third is first
    assert fourth.producer_id not in (first.producer_id, second.producer_id)


async def test_a_lender_has_a_limit() -> None:
    lender = pool(3)
    held = await lender.borrow(3)
    with pytest.raises(BrokerError) as caught:
        await lender.borrow(1)
    assert caught.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    lender.give_back(held[:1])
    assert await lender.borrow(1) == held[:1]


async def test_borrowers_at_the_same_time_never_share() -> None:
    lender = pool(100)
    groups = await asyncio.gather(*(lender.borrow(5) for _ in range(20)))
    ids = [one.producer_id for group in groups for one in group]
    assert len(set(ids)) == 100


async def test_sequences_continue_where_they_were() -> None:
    lender = pool()
    (one,) = await lender.borrow(1)
    assert one.sequence(TOPIC, 0) == 0
    one.advance(TOPIC, 0, 7)
    assert (one.sequence(TOPIC, 0), one.sequence(TOPIC, 1), one.sequence(uuid.UUID(int=2), 0)) == (7, 0, 0)


async def test_an_id_that_is_used_up_is_not_lent_again() -> None:
    lender = pool()
    far, wide = await lender.borrow(2)
    far.advance(TOPIC, 0, MAX_SEQUENCE + 1)
    for partition in range(MAX_PARTITIONS + 1):
        wide.advance(TOPIC, partition, 1)
    lender.give_back([far, wide])
    assert lender.lent == 0
    assert not {far, wide} & set(await lender.borrow(5))


async def test_a_disk_that_refuses_ids_costs_none() -> None:
    async def broken(_: int) -> int:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "full")

    lender = ProducerPool(ProducerIds(broken), 2)
    for _ in range(5):
        with pytest.raises(BrokerError) as caught:
            await lender.borrow(2)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert lender.lent == 0
