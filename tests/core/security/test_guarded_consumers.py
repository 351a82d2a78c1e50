"""Managed consumers of a caller whose rights change while its polls wait."""

from __future__ import annotations

import asyncio

import pytest

from core.errors import BrokerError, ErrorCode
from core.records.record import NewRecord
from core.security.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from core.security.principal import Caller, Principal
from core.vocabulary.consumers import Batch, Subscription
from tests.core.consumers.consumer_world import World

SETTINGS = {"super_users": ("User:ANONYMOUS",), "group_initial_rebalance_delay_ms": 0}


def rule(kind: ResourceType, name: str) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)


@pytest.mark.parametrize("advance", [True, False])
async def test_a_batch_that_a_revoked_right_has_kept_back_is_delivered_when_it_is_granted_again(
    w: World, advance: bool
) -> None:
    broker = w.broker
    await broker.topics.create("t", partitions=1)
    readable = rule(ResourceType.TOPIC, "t")
    await broker.acls.create([readable, rule(ResourceType.GROUP, "g")])
    consumers = broker.guards.of(Caller(Principal(name="alice"))).consumers
    await consumers.create("g", "c", subscription=Subscription(topics=("t",)))

    def poll(wait_ms: int) -> asyncio.Future[Batch]:
        asked = consumers.poll("g", "c", limit=10, max_bytes=1000, wait_ms=wait_ms, advance=advance)
        return asyncio.ensure_future(asked)

    waiting = poll(20_000)
    await asyncio.sleep(10)
    assert not waiting.done()
    await broker.acls.delete([AclFilter(resource_type=ResourceType.TOPIC)])
    await broker.records.produce("t", [NewRecord(value=b"kept back")])
    with pytest.raises(BrokerError) as refused:
        await waiting
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    await broker.acls.create([readable])
    batch = await poll(10_000)
    assert [record.value for _, records in batch.records for record in records] == [b"kept back"]
