"""The coordinator's membership verbs: durable before answered, woken in time, back after a restart."""

from __future__ import annotations

import asyncio

import pytest

from core.errors import BrokerError, ErrorCode
from core.vocabulary.groups import JoinRequest, Leaver
from tests.core.groups.machine import SESSION_MS
from tests.core.groups.world import World, world

# --- what is refused before any group is asked -------------------------------------------------------------


async def test_before_the_groups_are_loaded_everything_is_told_to_wait() -> None:
    w = World()
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await w.join()).result().error is loading
    assert (await w.sync("a")).result().error is loading
    assert w.coordinator.heartbeat("g", "a", 1) is loading
    for refused in (w.coordinator.leave("g", [Leaver("a")]), w.coordinator.delete("g")):
        with pytest.raises(BrokerError) as error:
            await refused
        assert error.value.code is loading
    for call in (lambda: w.coordinator.describe("g"), w.coordinator.list):
        with pytest.raises(BrokerError) as error:
            call()
        assert error.value.code is loading


async def test_an_empty_group_id_is_invalid() -> None:
    w = await world()
    invalid = ErrorCode.INVALID_GROUP_ID
    assert (await w.join("")).result().error is invalid
    assert (await w.sync("a", group="")).result().error is invalid
    assert w.coordinator.heartbeat("", "a", 1) is invalid
    with pytest.raises(BrokerError) as error:
        await w.coordinator.leave("", [Leaver("a")])
    assert error.value.code is invalid


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, -1])
async def test_a_session_timeout_out_of_bounds_is_invalid(session_ms: int) -> None:
    w = await world()
    reply = (await w.join(session_timeout_ms=session_ms)).result()
    assert reply.error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert w.coordinator.describe("g") is None


async def test_a_group_that_is_not_there_knows_no_members() -> None:
    w = await world()
    assert (await w.join(member_id="ghost")).result().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert (await w.sync("ghost")).result().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert w.coordinator.heartbeat("g", "ghost", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    replies = await w.coordinator.leave("g", [Leaver("ghost"), Leaver("", "i")])
    assert [r.error for r in replies] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert w.coordinator.list() == []


async def test_metadata_and_assignments_above_the_limit_are_refused() -> None:
    w = await world(group_max_member_bytes=1000)
    reply = (await w.join(protocols=(("range", b"x" * 1001),))).result()
    assert reply.error is ErrorCode.INVALID_REQUEST
    [leader] = await w.stable()
    assert (await w.sync(leader, {leader: b"x" * 1001})).result().error is ErrorCode.INVALID_REQUEST


async def test_more_groups_than_allowed_are_refused_and_unused_ones_make_space() -> None:
    w = await world(max_groups=2)
    for group in ("a", "b"):
        refused = (await w.join(group, protocols=())).result()
        assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    await w.stable("c")
    await w.stable("d")
    assert (await w.join("e")).result().error is ErrorCode.POLICY_VIOLATION
    assert sorted(x.group_id for x in w.coordinator.list()) == ["c", "d"]


# --- join, sync, leave -------------------------------------------------------------------------------------


async def test_member_ids_are_the_clients_name_or_instance_and_a_uuid() -> None:
    w = await world(group_initial_rebalance_delay_ms=0)
    reply = await (await w.join(client_id="cap"))
    assert reply.member_id.startswith("cap-") and len(reply.member_id) == 4 + 36
    reply = await (await w.join("h", group_instance_id="i"))
    assert reply.member_id.startswith("i-")


async def test_a_join_without_a_rebalance_timeout_uses_the_session_timeout() -> None:
    w = await world()
    [leader] = await w.stable()
    await w.join(rebalance_timeout_ms=-1)
    waiting = await w.join(member_id=leader, rebalance_timeout_ms=-1)
    assert waiting.done()
    assert w.store.members["g"][leader].rebalance_timeout_ms == SESSION_MS


async def test_no_answer_leaves_before_the_generation_is_durable() -> None:
    w = await world()
    waiting = await w.join()
    w.store.hold = True
    await w.advance(5)
    assert not waiting.done()
    w.store.release()
    await w.turn()
    assert waiting.result().generation == w.store.groups["g"].generation == 1


async def test_an_answer_waits_for_changes_that_are_still_on_their_way() -> None:
    w = await world()
    ids = await w.stable(members=2)
    joins = [await w.join(member_id=i) for i in ids]
    w.store.hold = True
    leader = await w.sync(ids[0], {ids[1]: b"new"}, generation=joins[0].result().generation)
    follower = await w.sync(ids[1], generation=2)
    assert not leader.done() and not follower.done()
    w.store.release()
    await w.turn()
    assert follower.result().assignment == b"new"


async def test_what_could_not_be_stored_is_not_promised_and_is_stored_later() -> None:
    w = await world()
    waiting = await w.join()
    w.store.broken = True
    await w.advance(5)
    failed = waiting.result()
    assert failed.error is ErrorCode.COORDINATOR_NOT_AVAILABLE and failed.member_id
    w.store.broken = False
    again = (await w.join(member_id=failed.member_id)).result()
    assert (again.error, again.generation) == (ErrorCode.NONE, 1)
    assert list(w.store.members["g"]) == [failed.member_id]


async def test_a_store_that_takes_nothing_more_is_a_failed_write_too() -> None:
    w = await world()
    [leader] = await w.stable()
    w.store.refuse = True
    with pytest.raises(BrokerError) as error:
        await w.coordinator.leave("g", [Leaver(leader)])
    assert error.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_leave_is_durable_when_it_is_answered() -> None:
    w = await world()
    first, second = await w.stable(members=2)
    w.store.hold = True
    leaving = await w.start_task(w.coordinator.leave("g", [Leaver(first)]))
    assert not leaving.done()
    w.store.release()
    await w.turn()
    assert leaving.result()[0].error is ErrorCode.NONE
    assert list(w.store.members["g"]) == [second]


async def test_a_joining_client_that_disconnects_is_removed() -> None:
    w = await world()
    await w.stable(members=2)
    gone = await w.join()
    gone.cancel()
    await w.turn()
    view = w.coordinator.describe("g")
    assert view is not None and len(view.members) == 2


async def test_a_syncing_client_that_disconnects_keeps_its_place() -> None:
    w = await world()
    ids = await w.stable(members=2)
    for member_id in ids:
        await w.join(member_id=member_id)
    gone = await w.sync(ids[1], generation=2)
    gone.cancel()
    await w.turn()
    await w.sync(ids[0], {ids[1]: b"x"}, generation=2)
    assert (await w.sync(ids[1], generation=2)).result().assignment == b"x"


# --- time --------------------------------------------------------------------------------------------------


async def test_heartbeats_move_no_timer_and_a_silent_member_expires() -> None:
    w = await world()
    first, second = await w.stable(members=2)
    armed = len(w.scheduler.calls)
    for _ in range(1000):
        assert w.coordinator.heartbeat("g", first, 1) is ErrorCode.NONE
    assert len(w.scheduler.calls) == armed
    for _ in range(3):
        await w.advance(4)
        w.coordinator.heartbeat("g", first, 1)
    assert w.coordinator.heartbeat("g", second, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert w.coordinator.heartbeat("g", first, 1) is ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_wall_clock_that_jumps_expires_no_member() -> None:
    w = await world()
    [leader] = await w.stable()
    for jump in (86_400, -200_000):
        w.clock.jump_wall(jump)
        await w.advance(5)
        assert w.coordinator.heartbeat("g", leader, 1) is ErrorCode.NONE


@pytest.mark.parametrize("heard_after", [0.0, 1.0, 5.0])
async def test_a_process_that_stood_still_gives_its_members_a_session_again(heard_after: float) -> None:
    w = await world()
    [leader] = await w.stable()
    await w.advance(heard_after)
    w.coordinator.heartbeat("g", leader, 1)
    w.clock.advance(300)  # SIGSTOP: no timer could fire
    await w.advance(SESSION_MS / 1000 - 1)
    assert w.coordinator.heartbeat("g", leader, 1) is ErrorCode.NONE
    await w.advance(SESSION_MS / 1000 + 1)
    assert w.coordinator.heartbeat("g", leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_round_continues_after_a_pause_for_as_long_as_it_had_left() -> None:
    w = await world()
    first, second = await w.stable(members=2)
    waiting = await w.join(member_id=first)
    w.clock.advance(300)
    for _ in range(4):
        await w.advance(8)
        w.coordinator.heartbeat("g", second, 1)
    assert not waiting.done()
    await w.join(member_id=second)
    assert waiting.result().generation == 2


async def test_an_idle_group_keeps_no_timer() -> None:
    w = await world()
    [leader] = await w.stable()
    await w.coordinator.leave("g", [Leaver(leader)])
    await w.advance(100)
    assert not [call for call in w.scheduler.calls if not call[2].cancelled]


# --- restart and stop --------------------------------------------------------------------------------------


async def test_members_continue_after_a_restart() -> None:
    w = await world()
    first, second = await w.stable(members=2)
    w = await w.restart()
    assert w.coordinator.heartbeat("g", first, 1) is ErrorCode.NONE
    assert (await w.sync(second)).result().assignment == second.encode()
    await w.advance(SESSION_MS / 1000 + 2)
    assert w.coordinator.heartbeat("g", first, 1) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_when_the_broker_stops_waiters_are_answered_and_nothing_more_is_served() -> None:
    w = await world()
    await w.stable()
    waiting = await w.join()
    w.registry.drain()
    await w.turn()
    assert waiting.result().error is ErrorCode.NOT_COORDINATOR
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await w.join()).result().error is gone
    assert w.coordinator.heartbeat("g", "a", 1) is gone
    w.registry.drain()
    assert not [call for call in w.scheduler.calls if not call[2].cancelled]


# --- admin -------------------------------------------------------------------------------------------------


async def test_groups_are_listed_by_state_and_type() -> None:
    w = await world()
    [leader] = await w.stable("a")
    await w.stable("b")
    await w.coordinator.leave("a", [Leaver(leader)])
    names = lambda **k: [x.group_id for x in w.coordinator.list(**k)]  # noqa: E731
    assert names() == ["a", "b"]
    assert names(states=["stable"]) == ["b"]
    assert names(states=["Empty", "Dead"]) == ["a"]
    assert names(types=["Classic"]) == ["a", "b"]
    assert names(types=["consumer"]) == []
    assert names(states=["nonsense"]) == []


async def test_a_group_is_described_as_it_is_and_an_unknown_one_is_none() -> None:
    w = await world()
    [leader] = await w.stable()
    view = w.coordinator.describe("g")
    assert view is not None
    assert (view.state, view.members[0].member_id, view.members[0].assignment) == (
        "Stable",
        leader,
        leader.encode(),
    )
    assert w.coordinator.describe("other") is None


async def test_only_an_empty_group_can_be_deleted() -> None:
    w = await world()
    with pytest.raises(BrokerError) as error:
        await w.coordinator.delete("g")
    assert error.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    [leader] = await w.stable()
    with pytest.raises(BrokerError) as error:
        await w.coordinator.delete("g")
    assert error.value.code is ErrorCode.NON_EMPTY_GROUP
    await w.coordinator.leave("g", [Leaver(leader)])
    await w.coordinator.delete("g")
    assert (w.coordinator.describe("g"), w.store.groups) == (None, {})


async def test_a_group_that_is_being_deleted_is_not_available_and_stays_if_that_fails() -> None:
    w = await world()
    [leader] = await w.stable()
    await w.coordinator.leave("g", [Leaver(leader)])
    w.store.hold = True
    deleting = await w.start_task(w.coordinator.delete("g"))
    assert (await w.join()).result().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert w.coordinator.describe("g") is None
    w.store.broken = True
    w.store.release()
    await w.turn()
    assert isinstance(deleting.exception(), BrokerError)
    view = w.coordinator.describe("g")
    assert view is not None and (view.state, view.generation) == ("Empty", 2)


async def test_a_thousand_groups_of_three_rebalance_at_once() -> None:
    w = await world(group_initial_rebalance_delay_ms=0)
    groups = [f"g{n}" for n in range(1000)]
    for group in groups:
        first = (await w.coordinator.join(group, _request())).member_id
        waiting = [
            asyncio.ensure_future(w.coordinator.join(group, _request(member))) for member in ("", "", first)
        ]
        replies = await asyncio.gather(*waiting)
        assert {r.generation for r in replies} == {2}
    assert len(w.registry) == 1000


def _request(member_id: str = "") -> JoinRequest:
    return JoinRequest(member_id, "consumer", (("range", b"\0\0\0\0\0\0\xff\xff\xff\xff"),), 10_000, 10_000)
