"""core.consumers.registry: consumers in use do not expire; which offsets `commit` commits."""

from __future__ import annotations

import asyncio

import pytest

from core.errors import BrokerError, ErrorCode
from core.vocabulary.consumers import PartitionCommit
from tests.core.consumers.consumer_world import G, World


async def test_a_consumer_in_use_does_not_expire_and_lives_a_whole_time_afterwards(w: World) -> None:
    await w.topic()
    await w.create(ttl_ms=2_000)
    with w.registry.in_use(G, "c"):
        await asyncio.sleep(10)
    assert w.info().expires_in_ms == 2_000
    with pytest.raises(ZeroDivisionError), w.registry.in_use(G, "c") as consumer:
        raise ZeroDivisionError
    assert consumer.polls == 0
    await asyncio.sleep(4)
    with pytest.raises(BrokerError) as refused, w.registry.in_use(G, "c"):
        pass
    assert refused.value.code is ErrorCode.RESOURCE_NOT_FOUND
    assert refused.value.details == {"group": G, "consumer": "c"}


async def test_a_commit_before_the_group_has_settled_is_refused(w: World) -> None:
    await w.topic()
    await w.create()
    with pytest.raises(BrokerError) as refused:
        await w.consumers.commit(G, "c", [PartitionCommit("t", 0, 1)])
    assert refused.value.details == {"reason": "not-assigned"}
    assert w.committed() == {}
    await w.poll(wait_ms=4_000)
    with pytest.raises(BrokerError) as refused:
        await w.consumers.commit(G, "c", [PartitionCommit("t", 7, 1)])
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_only_what_differs_is_committed(w: World) -> None:
    await w.topic(partitions=2, records=2)
    await w.create()
    await w.poll(limit=2, advance=True)
    assert await w.consumers.commit(G, "c") == [PartitionCommit("t", 0, 2), PartitionCommit("t", 1, 0)]
    await w.poll(limit=1, advance=True)
    assert await w.consumers.commit(G, "c") == [PartitionCommit("t", 1, 1)]
