"""core.groups.line_members: members that send few lines delay no other member, and are fenced by generation."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from core.errors import BrokerError, ErrorCode
from core.groups.line_members import HOST, LineMembers
from core.vocabulary.groups import LineAssignment
from tests.core.consumers.consumer_world import World

SESSION = 45.0


@pytest.fixture
async def world(w: World) -> World:
    """A broker in virtual time; topic `t` has four partitions."""
    await w.topic(partitions=4)
    return w


def lines(world: World) -> LineMembers:
    return world.broker.groups.lines


async def join(world: World, name: str, **more: Any) -> LineAssignment:
    return await lines(world).join("g", "t", name, **more)


async def refused(work: Any) -> ErrorCode:
    with pytest.raises(BrokerError) as error:
        answer = work()
        if inspect.isawaitable(answer):
            await answer
    return error.value.code


def beats(world: World, name: str, generation: int) -> ErrorCode:
    try:
        lines(world).heartbeat("g", "t", name, generation)
    except BrokerError as error:
        return error.code
    return ErrorCode.NONE


async def test_one_alone_gets_everything_and_gets_it_again(world: World) -> None:
    given = await join(world, "c1", host="127.0.0.1")
    assert given == (1, [0, 1, 2, 3])
    assert await join(world, "c1") == given, "joining again begins no round"
    assert await lines(world).sync("g", "t", "c1", 1) == given
    assert beats(world, "c1", 1) is ErrorCode.NONE
    view = world.broker.groups.describe("g")
    assert view is not None and view.state == "Stable"
    assert [(m.member_id, m.client_host) for m in view.members] == [("c1", HOST + "127.0.0.1")]


async def test_a_second_one_does_not_wait_for_the_first_which_finds_out_by_its_next_line(
    world: World,
) -> None:
    await join(world, "c1", assignor="roundrobin")
    before = world.clock.monotonic()
    second = await join(world, "c2", assignor="roundrobin")
    assert world.clock.monotonic() - before < 0.1
    assert second == (2, [1, 3])
    assert beats(world, "c1", 1) is ErrorCode.ILLEGAL_GENERATION
    assert await refused(lambda: lines(world).sync("g", "t", "c1", 1)) is ErrorCode.ILLEGAL_GENERATION
    assert await refused(lambda: lines(world).commit("g", "t", "c1", 1, 0, 5)) is (
        ErrorCode.ILLEGAL_GENERATION
    )
    assert await join(world, "c1", assignor="roundrobin") == (2, [0, 2])
    assert beats(world, "c1", 2) is beats(world, "c2", 2) is ErrorCode.NONE


@pytest.mark.parametrize(("assignor", "expected"), [("range", [0, 1]), ("roundrobin", [0, 2]), ("", [0, 1])])
async def test_the_assignor_that_members_vote_for_deals_out(
    world: World, assignor: str, expected: list[int]
) -> None:
    first = asyncio.ensure_future(join(world, "c1", assignor=assignor))
    second = await join(world, "c2", assignor=assignor)
    assert sorted((await first).partitions + second.partitions) == [0, 1, 2, 3]
    assert (await first).partitions == expected


async def test_many_that_join_at_once_are_one_generation(world: World) -> None:
    given = await asyncio.gather(*(join(world, f"c{n}") for n in range(4)), join(world, "c0"))
    assert {one.generation for one in given} == {1}
    assert [one.partitions for one in given] == [[0], [1], [2], [3], [0]]


async def test_a_member_of_the_binary_port_and_one_of_lines_rebalance_together(world: World) -> None:
    await join(world, "c1")
    other = await world.other_member(session_timeout_ms=10_000)
    before = world.clock.monotonic()
    await other.join()
    assert world.clock.monotonic() - before < 0.1, "no client waits for a script that sleeps"
    assert beats(world, "c1", 1) is ErrorCode.ILLEGAL_GENERATION
    mine = await join(world, "c1")
    assert mine.generation == other.generation == 2
    assert sorted(mine.partitions + [p for _, p in other.owned]) == [0, 1, 2, 3]
    assert len(mine.partitions) == 2


async def test_one_of_lines_waits_for_members_of_the_binary_port(world: World) -> None:
    other = await world.other_member(session_timeout_ms=10_000)
    await other.join()
    joining = asyncio.ensure_future(join(world, "c1"))
    await asyncio.sleep(2)
    assert not joining.done()
    await other.join()
    given = await joining
    assert given.generation == 2 and len(given.partitions) == 2


async def test_a_join_that_takes_longer_than_a_session_is_told_to_ask_again(world: World) -> None:
    other = await world.other_member(session_timeout_ms=300_000, rebalance_timeout_ms=300_000)
    await other.join()
    assert await refused(lambda: join(world, "c1")) is ErrorCode.REBALANCE_IN_PROGRESS
    await other.join()
    assert (await join(world, "c1")).generation == 2


async def test_a_member_without_heartbeats_for_a_session_is_removed(world: World) -> None:
    await join(world, "c1")
    await join(world, "c2")
    await join(world, "c1")
    for _ in range(4):
        await asyncio.sleep(SESSION / 3)
        beats(world, "c1", 2)
    await asyncio.sleep(1)
    assert await join(world, "c1") == (3, [0, 1, 2, 3])
    assert beats(world, "c2", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert len(lines(world)) == 1


async def test_rounds_in_its_name_do_not_keep_a_silent_member(world: World) -> None:
    await join(world, "silent")
    for number in range(8):
        await asyncio.sleep(SESSION / 6)
        await join(world, f"c{number}")
        await lines(world).leave("g", "t", f"c{number}", (await join(world, f"c{number}")).generation)
    view = world.broker.groups.describe("g")
    assert view is not None and view.members == ()


async def test_leaving_gives_the_others_what_it_had(world: World) -> None:
    await join(world, "c1")
    await join(world, "c2")
    assert await refused(lambda: lines(world).leave("g", "t", "c2", 1)) is ErrorCode.ILLEGAL_GENERATION
    await lines(world).leave("g", "t", "c2", 2)
    assert await join(world, "c1") == (3, [0, 1, 2, 3])
    assert await refused(lambda: lines(world).leave("g", "t", "c2", 3)) is ErrorCode.UNKNOWN_MEMBER_ID
    await lines(world).leave("g", "t", "c1", 3)
    assert len(lines(world)) == 0
    assert (await join(world, "c3")).generation == 5  # an empty group is a generation, too


async def test_a_commit_must_match_generation_and_assignment(world: World) -> None:
    await join(world, "c1")
    await join(world, "c2")
    assert lines(world).committed("g", "t", 0) == -1
    await lines(world).commit("g", "t", "c1", 2, 0, 5)
    assert lines(world).committed("g", "t", 0) == 5
    for member, generation, partition, offset, code in (
        ("c1", 2, 2, 1, ErrorCode.ILLEGAL_GENERATION),
        ("c1", 2, 9, 1, ErrorCode.ILLEGAL_GENERATION),
        ("c1", 1, 0, 1, ErrorCode.ILLEGAL_GENERATION),
        ("c1", 3, 0, 1, ErrorCode.ILLEGAL_GENERATION),
        ("c9", 2, 0, 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("c1", 2, 0, -1, ErrorCode.INVALID_REQUEST),
    ):
        commit = lines(world).commit("g", "t", member, generation, partition, offset)
        assert await refused(lambda commit=commit: commit) is code
    assert await refused(lambda: lines(world).commit("g", "other", "c1", 2, 0, 1)) is (
        ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert await refused(lambda: lines(world).commit("empty", "t", "c1", -1, 0, 1)) is (
        ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert lines(world).committed("g", "t", 0) == 5


async def test_a_restart_and_kill_9_are_invisible(world: World) -> None:
    await join(world, "c1")
    await join(world, "c2")
    mine = await join(world, "c1")
    for again in (world.restart, world.kill):
        await again()
        assert await lines(world).sync("g", "t", "c1", 2) == mine
        assert beats(world, "c2", 2) is ErrorCode.NONE
    given = await join(world, "c3")
    assert given.generation == 3, "members of the last run come to the round as well"
    assert beats(world, "c2", 2) is ErrorCode.ILLEGAL_GENERATION
    await asyncio.sleep(SESSION + 1)
    assert beats(world, "c3", 3) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_group_that_was_killed_in_mid_round_continues(world: World) -> None:
    other = await world.other_member()
    await other.join()
    joining = asyncio.ensure_future(join(world, "c1"))
    await asyncio.sleep(0.1)
    await other.join()
    await joining
    joining = asyncio.ensure_future(join(world, "c2"))
    await asyncio.sleep(0.1)
    await world.kill()
    joining.cancel()
    assert (await asyncio.wait_for(join(world, "c1"), 100)).generation == 2
    assert beats(world, "c2", 2) is ErrorCode.UNKNOWN_MEMBER_ID, "nothing was promised to it yet"


async def test_topics_that_grow_are_dealt_out_by_the_next_join(world: World) -> None:
    await join(world, "c1")
    await join(world, "c2")
    await world.broker.topics.create_partitions("t", 6)
    grown = await join(world, "c2")
    assert grown == (3, [3, 4, 5])
    assert await join(world, "c1") == (3, [0, 1, 2])


async def test_another_topic_or_assignor_is_a_new_round(world: World) -> None:
    await world.topic("u", 2)
    await join(world, "c1")
    assert await lines(world).join("g", "u", "c1") == (2, [0, 1])
    assert beats(world, "c1", 2) is ErrorCode.UNKNOWN_MEMBER_ID, "it does not read t any more"
    assert (await lines(world).join("g", "u", "c1", "roundrobin")).generation == 3
    assert await lines(world).join("g", "new", "c1") == (4, [0])
    assert world.broker.topics.get("new").partitions == 1


async def test_names_that_cannot_be_are_refused(world: World) -> None:
    for group, name in (("", "c"), ("g", ""), ("g" * 250, "c"), ("g", "c" * 250), ("g", "c\x1b[2J")):
        assert await refused(lambda group=group, name=name: lines(world).join(group, "t", name)) is (
            ErrorCode.INVALID_REQUEST
        )
    other = await world.other_member()
    await other.join()
    assert await refused(lambda: join(world, other.member_id)) is ErrorCode.INVALID_REQUEST
    assert await refused(lambda: lines(world).join("g2", "no/topic", "c")) is (
        ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    assert len(lines(world)) == 0


async def test_a_group_of_another_broker_continues_in_its_generation(world: World) -> None:
    shares = {"c1": [0, 2], "c2": [1, 3]}
    assert await lines(world).take_over("g", "t", 7, "roundrobin", shares)
    assert await lines(world).sync("g", "t", "c1", 7) == (7, [0, 2])
    assert not await lines(world).take_over("g", "t", 7, "roundrobin", shares), "it is here already"
    await world.kill()
    assert beats(world, "c2", 7) is ErrorCode.NONE
    await lines(world).commit("g", "t", "c2", 7, 3, 5)
    given = await join(world, "c3", assignor="roundrobin")
    assert given == (8, [2])
    assert not await lines(world).take_over("g", "t", 7, "roundrobin", shares)
    assert await refused(lambda: lines(world).take_over("g", "t", 9, "", shares)) is (
        ErrorCode.NON_EMPTY_GROUP
    )
    assert await join(world, "c1", assignor="roundrobin") == (8, [0, 3])
    assert beats(world, "c2", 8) is ErrorCode.NONE


async def test_a_taken_over_member_without_heartbeats_is_removed(world: World) -> None:
    await lines(world).take_over("g", "t", 7, "range", {"c1": [0]})
    await asyncio.sleep(SESSION + 1)
    assert await join(world, "c2") == (9, [0, 1, 2, 3])


async def test_a_group_that_cannot_be_is_not_taken_over(world: World) -> None:
    async def takes(members: dict[str, list[int]], topic: str = "t", assignor: str = "") -> ErrorCode:
        return await refused(lambda: lines(world).take_over("g", topic, 7, assignor, members))

    assert await takes({"c1": [0], "c2": [0]}) is ErrorCode.INVALID_REQUEST
    assert await takes({"c1": [4]}) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await takes({"c1": [0]}, "nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await takes({"": [0]}) is ErrorCode.INVALID_REQUEST
    assert await takes({"c1": [0]}, assignor="none") is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert world.broker.groups.describe("g") is None
    assert await lines(world).take_over("g", "t", 7, "", {})
    assert await join(world, "c1") == (8, [0, 1, 2, 3])


@pytest.mark.settings(group_max_size=1)
async def test_a_full_group_says_so(world: World) -> None:
    await join(world, "c1")
    assert await refused(lambda: join(world, "c2")) is ErrorCode.GROUP_MAX_SIZE_REACHED


async def test_a_stop_answers_every_waiting_line(world: World) -> None:
    joining = asyncio.ensure_future(join(world, "c1"))
    await asyncio.sleep(0.1)
    world.broker.drain()
    assert await refused(lambda: joining) is ErrorCode.NOT_COORDINATOR
