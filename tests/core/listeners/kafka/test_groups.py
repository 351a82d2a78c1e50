"""The group APIs at the Kafka listener: what each version may say, and every error that the guides list."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.errors import ErrorCode
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener
from core.protocol.apis import APIS
from core.protocol.messages.delete_groups import DeleteGroupsRequest
from core.protocol.messages.describe_groups import DescribeGroupsRequest
from core.protocol.messages.find_coordinator import FindCoordinatorRequest
from core.protocol.messages.heartbeat import HeartbeatRequest
from core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from core.protocol.messages.list_groups import ListGroupsRequest
from core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.core.listeners.kafka.conftest import Client

FIND, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE = 10, 11, 12, 13, 14, 15, 16, 42


SETTINGS = {"group_initial_rebalance_delay_ms": 0}


def versions(key: int) -> range:
    return range(APIS[key].min_version, APIS[key].max_version + 1)


def joining(member_id: str = "", group: str = "g", **more: Any) -> JoinGroupRequest:
    protocols = more.pop("protocols", [JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\0\0\0\0")])
    return JoinGroupRequest(
        group,
        more.pop("session", 10_000),
        10_000,
        member_id,
        more.pop("instance", None),
        "consumer",
        protocols,
    )


async def member(client: Client, version: int = 9, group: str = "g", **more: Any) -> str:
    """Joins, with a second round trip where the version asks for one, and syncs; the member's id."""
    answer = await client.ask(JOIN, version, joining(group=group, **more))
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await client.ask(JOIN, version, joining(answer.member_id, group, **more))
    assert answer.error_code == 0
    member_id: str = answer.member_id
    given = [SyncGroupRequestAssignment(member_id, b"mine")]
    await client.newest(SYNC, SyncGroupRequest(group, answer.generation_id, member_id, assignments=given))
    return member_id


@pytest.mark.parametrize("version", versions(FIND))
async def test_the_coordinator_of_groups_and_transactions_is_this_broker(
    client: Client, version: int
) -> None:
    answer = await client.ask(FIND, version, FindCoordinatorRequest("g", 0, ["g", "h"]))
    if answer.coordinators:
        assert [(c.key, c.node_id, c.host, c.port, c.error_code) for c in answer.coordinators] == [
            ("g", 1, "127.0.0.1", 9092, 0),
            ("h", 1, "127.0.0.1", 9092, 0),
        ]
    else:
        assert (answer.node_id, answer.host, answer.port, answer.error_code) == (1, "127.0.0.1", 9092, 0)


async def test_no_broker_coordinates_a_key_of_another_kind(client: Client) -> None:
    answer = await client.ask(FIND, 3, FindCoordinatorRequest("g", 2))
    assert (answer.error_code, answer.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    answer = await client.ask(FIND, 6, FindCoordinatorRequest("", 2, ["g"]))
    assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", versions(JOIN))
async def test_a_member_joins_and_gets_its_assignment_in_every_version(client: Client, version: int) -> None:
    first = await client.ask(JOIN, version, joining())
    if version >= 4:
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert (first.protocol_name, first.generation_id) == (None if version >= 7 else "", -1)
        first = await client.ask(JOIN, version, joining(first.member_id))
    assert (first.error_code, first.generation_id, first.leader) == (0, 1, first.member_id)
    assert first.protocol_name == "range" and first.member_id.startswith("test-")
    assert [m.member_id for m in first.members] == [first.member_id]
    given = [SyncGroupRequestAssignment(first.member_id, b"mine")]
    for sync_version in versions(SYNC):
        request = SyncGroupRequest("g", 1, first.member_id, None, "consumer", "range", given)
        answer = await client.ask(SYNC, sync_version, request)
        assert (answer.error_code, answer.assignment) == (0, b"mine")
        assert answer.protocol_name == ("range" if sync_version >= 5 else None)
    for beat_version in versions(HEARTBEAT):
        answer = await client.ask(HEARTBEAT, beat_version, HeartbeatRequest("g", 1, first.member_id))
        assert answer.error_code == 0


async def test_a_static_leader_that_comes_back_is_told_to_skip_the_assignment(client: Client) -> None:
    await member(client, instance="i")
    back = await client.ask(JOIN, 9, joining(instance="i"))
    assert (back.error_code, back.skip_assignment, back.leader) == (0, True, back.member_id)
    older = await client.ask(JOIN, 8, joining(instance="i"))
    assert (older.error_code, older.members, older.leader) == (0, [], back.member_id)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (joining(group=""), ErrorCode.INVALID_GROUP_ID),
        (joining(session=1), ErrorCode.INVALID_SESSION_TIMEOUT),
        (joining("ghost"), ErrorCode.UNKNOWN_MEMBER_ID),
        (joining(protocols=[]), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (joining("ghost", instance="i"), ErrorCode.FENCED_INSTANCE_ID),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else "",
)
async def test_a_join_is_refused_with_its_own_code(
    client: Client, request_: JoinGroupRequest, code: ErrorCode
) -> None:
    await member(client, instance="i")
    answer = await client.newest(JOIN, request_)
    assert (answer.error_code, answer.member_id, answer.members) == (code, request_.member_id, [])


async def test_a_full_group_says_so(tmp_path: Path) -> None:
    broker = Broker(
        Config(data_dir=tmp_path, group_initial_rebalance_delay_ms=0, group_max_size=1), ManualClock()
    )
    await broker.open()
    client = Client(KafkaListener(broker, HANDLERS))
    await member(client)
    answer = await client.ask(JOIN, 3, joining())
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    await broker.close()


async def test_syncs_and_heartbeats_are_refused_with_their_own_codes(
    listener: KafkaListener, client: Client
) -> None:
    one = await member(client)

    async def codes(group: str, generation: int, member_id: str, **more: Any) -> tuple[int, int]:
        sync = await client.newest(SYNC, SyncGroupRequest(group, generation, member_id, **more))
        more.pop("protocol_name", None)
        beat = await client.newest(HEARTBEAT, HeartbeatRequest(group, generation, member_id, **more))
        return sync.error_code, beat.error_code

    both = lambda code: (code, code)  # noqa: E731
    assert await codes("", 1, one) == both(ErrorCode.INVALID_GROUP_ID)
    assert await codes("other", 1, one) == both(ErrorCode.UNKNOWN_MEMBER_ID)
    assert await codes("g", 1, "ghost") == both(ErrorCode.UNKNOWN_MEMBER_ID)
    assert await codes("g", 9, one) == both(ErrorCode.ILLEGAL_GENERATION)
    assert await codes("g", 1, one, group_instance_id="i") == both(ErrorCode.UNKNOWN_MEMBER_ID)
    assert (await codes("g", 1, one, protocol_name="other"))[0] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    waiting = asyncio.create_task(Client(listener).ask(JOIN, 3, joining()))
    await asyncio.sleep(0.01)
    assert await codes("g", 1, one) == both(ErrorCode.REBALANCE_IN_PROGRESS)
    await client.newest(LEAVE, LeaveGroupRequest("g", "", [MemberIdentity(one)]))
    assert (await waiting).error_code == 0


async def test_the_first_version_of_heartbeat_is_refused_between_join_and_sync(client: Client) -> None:
    answer = await client.ask(JOIN, 3, joining())
    beat = HeartbeatRequest("g", 1, answer.member_id)
    assert (await client.ask(HEARTBEAT, 0, beat)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await client.ask(HEARTBEAT, 1, beat)).error_code == 0


@pytest.mark.parametrize("version", versions(LEAVE))
async def test_members_leave_one_by_one_or_together(client: Client, version: int) -> None:
    one = await member(client)
    request = LeaveGroupRequest(
        "g", one, [MemberIdentity(one), MemberIdentity("ghost"), MemberIdentity("", "i")]
    )
    answer = await client.ask(LEAVE, version, request)
    assert answer.error_code == 0
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [m.error_code for m in answer.members] == ([0, unknown, unknown] if version >= 3 else [])
    again = await client.ask(LEAVE, version, request)
    assert again.error_code == (0 if version >= 3 else unknown)
    nameless = await client.ask(LEAVE, version, LeaveGroupRequest("", one, [MemberIdentity(one)]))
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


async def test_the_reason_of_a_member_that_leaves_is_logged(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "core.listeners.kafka.groups")
    one = await member(client)
    why = MemberIdentity(one, reason="the consumer\nis being closed" + "!" * 1000)
    assert (await client.ask(LEAVE, 5, LeaveGroupRequest("g", members=[why]))).error_code == 0
    (told,) = [record.getMessage() for record in caplog.records if "leaves" in record.getMessage()]
    assert repr(one) in told and "the consumer\\nis being closed!!" in told and len(told) < 400


@pytest.mark.parametrize("version", versions(DESCRIBE))
async def test_groups_are_described_and_missing_ones_are_dead(client: Client, version: int) -> None:
    one = await member(client)
    answer = await client.ask(DESCRIBE, version, DescribeGroupsRequest(["g", "nope"], True))
    stable, missing = answer.groups
    assert (stable.group_state, stable.protocol_type, stable.protocol_data) == ("Stable", "consumer", "range")
    (shown,) = stable.members
    assert (shown.member_id, shown.client_id, shown.client_host) == (one, "test", "/127.0.0.1")
    assert (shown.member_metadata[:2], shown.member_assignment) == (b"\0\0", b"mine")
    assert stable.authorized_operations == (3400 if version >= 3 else -0x8000_0000)
    code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert (missing.group_state, missing.members, missing.error_code) == ("Dead", [], code)


@pytest.mark.parametrize("version", versions(LIST))
async def test_groups_are_listed_by_state_and_type(client: Client, version: int) -> None:
    await member(client)
    await member(client, group="h")
    answer = await client.ask(LIST, version, ListGroupsRequest([], []))
    assert [(g.group_id, g.protocol_type) for g in answer.groups] == [("g", "consumer"), ("h", "consumer")]
    if version >= 4:
        assert {g.group_state for g in answer.groups} == {"Stable"}
        assert (await client.ask(LIST, version, ListGroupsRequest(["Empty"], []))).groups == []
    if version >= 5:
        assert {g.group_type for g in answer.groups} == {"classic"}
        assert (await client.ask(LIST, version, ListGroupsRequest([], ["share"]))).groups == []


@pytest.mark.parametrize("version", versions(DELETE))
async def test_groups_without_members_are_deleted(client: Client, version: int) -> None:
    one = await member(client)
    request = DeleteGroupsRequest(["g", "nope"])
    answer = await client.ask(DELETE, version, request)
    codes = [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    assert [r.error_code for r in answer.results] == codes
    await client.newest(LEAVE, LeaveGroupRequest("g", "", [MemberIdentity(one)]))
    answer = await client.ask(DELETE, version, request)
    assert [r.error_code for r in answer.results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]


async def test_a_client_that_disconnects_leaves_no_member(listener: KafkaListener, client: Client) -> None:
    await member(client)
    waiting = asyncio.create_task(Client(listener).ask(JOIN, 3, joining()))
    await asyncio.sleep(0.01)
    assert len(listener.broker.groups.describe("g").members) == 2  # type: ignore[union-attr]
    waiting.cancel()
    await asyncio.sleep(0.01)
    assert len(listener.broker.groups.describe("g").members) == 1  # type: ignore[union-attr]


async def test_a_stopping_broker_answers_waiters_and_refuses_the_rest(
    listener: KafkaListener, client: Client
) -> None:
    one = await member(client)
    waiting = asyncio.create_task(Client(listener).ask(JOIN, 3, joining()))
    await asyncio.sleep(0.01)
    listener.broker.drain()
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await client.newest(HEARTBEAT, HeartbeatRequest("g", 1, one))).error_code == gone
    assert (await client.newest(SYNC, SyncGroupRequest("g", 1, one))).error_code == gone
    assert (await client.newest(LEAVE, LeaveGroupRequest("g", one, []))).error_code == gone
    assert (await client.newest(LIST, ListGroupsRequest())).error_code == gone
    assert (await client.newest(DESCRIBE, DescribeGroupsRequest(["g"]))).groups[0].error_code == gone
    assert (await client.newest(DELETE, DeleteGroupsRequest(["g"]))).results[0].error_code == gone


async def test_members_continue_after_a_restart(config: Config, broker: Broker, client: Client) -> None:
    one = await member(client)
    await broker.close()
    again = Broker(config, ManualClock())
    await again.open()
    try:
        client = Client(KafkaListener(again, HANDLERS))
        assert (await client.newest(HEARTBEAT, HeartbeatRequest("g", 1, one))).error_code == 0
        assert (await client.newest(SYNC, SyncGroupRequest("g", 1, one))).assignment == b"mine"
    finally:
        await again.close()
