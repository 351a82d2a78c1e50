"""A managed consumer beside a member of the consumer protocol, in a broker with a real store (case 49)."""

from __future__ import annotations

import asyncio

from core.broker.broker import Broker
from core.clock import ManualClock
from core.errors import ErrorCode
from core.vocabulary.consumer_groups import ConsumerHeartbeat, ConsumerHeartbeatReply, MemberKind

TURN = 0.01
TRIES = 1_000


async def join(broker: Broker, member_id: str) -> ConsumerHeartbeatReply:
    request = ConsumerHeartbeat(member_id, 0, topics=["t"], rebalance_timeout_ms=60_000, owned={})
    return await broker.groups.consumer_heartbeat("g", request)


async def test_a_managed_consumer_shares_a_topic_with_a_member_of_the_consumer_protocol(
    broker: Broker, clock: ManualClock
) -> None:
    await broker.topics.create("t", partitions=2)
    first = await join(broker, "a")
    assert first.assignment is not None
    (topic_id,) = first.assignment
    await broker.consumers.create("g", "m")
    await broker.consumers.subscribe("g", "m", topics=["t"])
    epoch, owned = first.member_epoch, {0, 1}
    for _ in range(TRIES):
        view = broker.groups.describe_consumer("g")
        assert view is not None
        shares = {one.kind: one.assignment for one in view.members}
        if shares.get(MemberKind.CLASSIC):
            break
        beat = ConsumerHeartbeat("a", epoch, owned={topic_id: sorted(owned)})
        told = await broker.groups.consumer_heartbeat("g", beat)
        assert told.error is ErrorCode.NONE, told
        epoch = told.member_epoch
        if told.assignment is not None:
            owned = set(told.assignment.get(topic_id, ()))
        clock.advance(0.2)
        await asyncio.sleep(TURN)
    assert [len(share.partitions) for share in shares[MemberKind.CLASSIC]] == [1]
    assert len(owned) == 1
