"""Members that speak HTTP: short requests in long rounds, and a broker that leads in their name."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from core.broker.broker import Broker
from core.errors import BrokerError, ErrorCode
from core.protocol.consumer_protocol import Subscription, decode_subscription, encode_subscription
from core.types import TopicPartition
from core.vocabulary.groups import Joining, JoinReply, JoinRequest, SyncRequest
from core.vocabulary.member_metadata import assigned_partitions, assignment_of
from tests.core.consumers.consumer_world import World

SETTINGS = {"group_initial_rebalance_delay_ms": 0, "group_min_session_timeout_ms": 1}


@pytest.fixture
async def broker(w: World) -> Broker:
    """A broker in virtual time; topic `t` has four partitions."""
    await w.topic(partitions=4)
    return w.broker


def request(member_id: str = "", **more: object) -> JoinRequest:
    asked = JoinRequest(member_id, "", (), 10_000, 10_000, "curl", "/127.0.0.1")
    return replace(asked, **more)  # type: ignore[arg-type]


def java(member_id: str = "", name: str = "range") -> JoinRequest:
    metadata = encode_subscription(Subscription(["t"]), 1)
    return JoinRequest(member_id, "consumer", ((name, metadata),), 10_000, 10_000, "java", "/127.0.0.1")


async def curl(broker: Broker, member_id: str = "", *, wait_ms: int = 5_000, **more: object) -> Joining:
    return await broker.groups.members.join_topics("g", request(member_id), ["t"], wait_ms=wait_ms, **more)  # type: ignore[arg-type]


async def sync(broker: Broker, member_id: str, generation: int) -> set[int]:
    reply = await broker.groups.members.sync("g", SyncRequest(member_id, generation), wait_ms=5_000)
    assert reply is not None
    return {address.partition for address in assigned_partitions(reply.assignment)}


def reply_of(joining: Joining) -> JoinReply:
    assert joining.reply is not None
    return joining.reply


async def test_a_script_alone_gets_everything_without_assigning(broker: Broker) -> None:
    reply = reply_of(await curl(broker))
    assert reply.leader_id == reply.member_id and reply.member_id.startswith("curl-")
    assert broker.groups.describe("g").state == "Stable"  # type: ignore[union-attr]
    assert await sync(broker, reply.member_id, 1) == {0, 1, 2, 3}


async def test_a_script_that_leads_assigns_to_java_too(broker: Broker) -> None:
    script = (await curl(broker)).member_id
    joining = asyncio.create_task(broker.groups.join("g", java()))
    await asyncio.sleep(0.01)
    with pytest.raises(BrokerError) as error:
        await broker.groups.members.heartbeat("g", script, 1)
    assert error.value.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert reply_of(await curl(broker, script)).generation == 2
    client = await joining
    assert client.leader_id == script and client.protocol == "range"
    got = await broker.groups.sync("g", SyncRequest(client.member_id, 2))
    theirs = {address.partition for address in assigned_partitions(got.assignment)}
    ours = await sync(broker, script, 2)
    assert ours | theirs == {0, 1, 2, 3} and not ours & theirs
    await broker.groups.members.heartbeat("g", script, 2)


async def test_java_that_leads_finds_metadata_it_can_read(broker: Broker) -> None:
    client = await broker.groups.join("g", java())
    await broker.groups.sync("g", SyncRequest(client.member_id, 1, [(client.member_id, b"")]))
    joining = asyncio.create_task(curl(broker))
    await asyncio.sleep(0.01)
    led = await broker.groups.join("g", java(client.member_id))
    script = (await joining).member_id
    metadata = {m.member_id: m.metadata for m in led.members}[script]
    assert decode_subscription(metadata).topics == ["t"]
    waiting = asyncio.create_task(sync(broker, script, 2))
    await broker.groups.sync("g", SyncRequest(client.member_id, 2, [(script, broker_assignment(1))]))
    assert await waiting == {1}


def broker_assignment(*partitions: int) -> bytes:
    return assignment_of(TopicPartition("t", p) for p in partitions)


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky", "roundrobin", "RoundRobinAssigner"])
async def test_a_script_fits_into_groups_of_every_usual_protocol(broker: Broker, name: str) -> None:
    client = await broker.groups.join("g", java(name=name))
    joining = asyncio.create_task(curl(broker))
    await asyncio.sleep(0.01)
    assert (await broker.groups.join("g", java(client.member_id, name))).protocol == name
    assert reply_of(await joining).protocol == name


async def test_a_script_never_breaks_a_group_whose_protocol_it_cannot_speak(broker: Broker) -> None:
    streams = await broker.groups.join("g", java(name="stream"))
    await broker.groups.sync("g", SyncRequest(streams.member_id, 1, [(streams.member_id, b"tasks")]))
    with pytest.raises(BrokerError) as error:
        await curl(broker)
    assert error.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert broker.groups.heartbeat("g", streams.member_id, 1) is ErrorCode.NONE


async def test_a_round_that_is_longer_than_the_request_is_asked_for_again(broker: Broker) -> None:
    client = await broker.groups.join("g", java())
    first = await curl(broker, wait_ms=5)
    assert first.reply is None and first.member_id.startswith("curl-")
    assert (await curl(broker, first.member_id, wait_ms=5)).reply is None
    led = await broker.groups.join("g", java(client.member_id))
    assert {m.member_id for m in led.members} == {client.member_id, first.member_id}
    assert reply_of(await curl(broker, first.member_id)).generation == led.generation


async def test_a_leader_assigns_although_its_join_is_not_fetched(broker: Broker) -> None:
    script = (await curl(broker)).member_id
    joining = asyncio.create_task(broker.groups.join("g", java()))
    await asyncio.sleep(0.01)
    again = asyncio.create_task(curl(broker, script, wait_ms=0))
    client = await joining
    got = await asyncio.wait_for(broker.groups.sync("g", SyncRequest(client.member_id, 2)), 60)
    assert assigned_partitions(got.assignment)
    await again


async def test_an_answer_that_is_not_fetched_is_forgotten_after_a_session(broker: Broker) -> None:
    client = await broker.groups.join("g", java())
    joining = await broker.groups.members.join_topics("g", request(session_timeout_ms=50), ["t"], wait_ms=1)
    assert joining.reply is None
    await broker.groups.join("g", java(client.member_id))
    await asyncio.sleep(0.2)
    with pytest.raises(BrokerError) as error:
        await curl(broker, joining.member_id)
    assert error.value.code is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_sync_that_the_leader_lets_wait_is_asked_for_again(broker: Broker) -> None:
    client = await broker.groups.join("g", java())
    joining = asyncio.create_task(curl(broker))
    await asyncio.sleep(0.01)
    await broker.groups.join("g", java(client.member_id))
    script = (await joining).member_id
    asked = SyncRequest(script, 2)
    assert await broker.groups.members.sync("g", asked, wait_ms=1) is None
    await broker.groups.sync("g", SyncRequest(client.member_id, 2, [(script, broker_assignment(3))]))
    assert await sync(broker, script, 2) == {3}


async def test_a_leader_whose_assignment_was_lost_in_a_crash_assigns_at_its_sync(broker: Broker) -> None:
    reply = reply_of(await broker.groups.members.join("g", java(), wait_ms=5_000))
    assert broker.groups.describe("g").state == "CompletingRebalance"  # type: ignore[union-attr]
    assert await sync(broker, reply.member_id, 1) == {0, 1, 2, 3}


async def test_the_assignor_that_is_asked_for_is_voted_for(broker: Broker) -> None:
    assert reply_of(await curl(broker, assignor="sticky")).protocol == "sticky"
    with pytest.raises(BrokerError) as error:
        await curl(broker, assignor="homemade")
    assert error.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


async def test_members_leave_and_are_told_what_is_wrong_in_words(broker: Broker) -> None:
    script = (await curl(broker)).member_id
    members = broker.groups.members
    await members.leave("g", script)
    for work in (members.leave("g", script), members.sync("g", SyncRequest(script, 1), wait_ms=1)):
        with pytest.raises(BrokerError) as error:
            await work
        assert error.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert script in error.value.message


async def test_a_stop_answers_every_waiting_member(broker: Broker) -> None:
    await broker.groups.join("g", java())
    joining = asyncio.create_task(curl(broker))
    await asyncio.sleep(0.01)
    broker.drain()
    with pytest.raises(BrokerError) as error:
        await joining
    assert error.value.code is ErrorCode.NOT_COORDINATOR
