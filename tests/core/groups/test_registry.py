"""Where the groups are: loaded, woken, settled."""

from __future__ import annotations

import pytest

from core.errors import BrokerError, ErrorCode
from core.vocabulary.groups import Commit, CommitRequest, Leaver
from tests.core.groups.world import MemoryStore, World, world


async def test_a_loaded_registry_holds_every_group_of_the_store_also_those_with_offsets_alone() -> None:
    w = await world()
    await w.stable("members", members=2)
    await w.offsets.put("offsets", CommitRequest([Commit("t", 0, 1)]))
    w = await w.restart()
    assert len(w.registry) == 2
    assert sorted(x.group_id for x in w.coordinator.list()) == ["members", "offsets"]
    assert [x.state for x in w.coordinator.list(["stable"])] == ["Stable"]


async def test_a_group_has_one_timer_at_most() -> None:
    w = await world()
    ids = await w.stable(members=3)
    for member_id in ids * 3:
        await w.join(member_id=member_id)
        await w.sync(member_id, {}, generation=2)
    alive = [call for call in w.scheduler.calls if not call[2].cancelled]
    assert len(alive) == 1


async def test_refusals_name_what_is_wrong() -> None:
    w = World()
    assert w.registry.refusal("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await w.start()
    assert w.registry.refusal("g") is ErrorCode.NONE
    assert w.registry.refusal("") is ErrorCode.INVALID_GROUP_ID
    with pytest.raises(BrokerError) as error:
        w.registry.require_name("")
    assert error.value.code is ErrorCode.INVALID_GROUP_ID
    w.registry.require_open()
    w.registry.drain()
    assert w.registry.refusal("g") is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_store_that_recovers_gets_the_group_as_a_whole() -> None:
    w = await world()
    first, second = await w.stable(members=2)
    w.store.broken = True
    with pytest.raises(BrokerError):
        await w.coordinator.leave("g", [Leaver(first)])
    w.store.broken = False
    await w.join(member_id=second)
    assert list(w.store.members["g"]) == [second]
    restarted = await w.restart()
    assert restarted.coordinator.heartbeat("g", first, 2) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_answers_of_a_change_that_is_on_its_way_fail_with_it() -> None:
    w = await world()
    ids = await w.stable(members=2)
    for member_id in ids:
        await w.join(member_id=member_id)
    w.store.hold = True
    leader = await w.sync(ids[0], {ids[1]: b"x"}, generation=2)
    follower = await w.sync(ids[1], generation=2)
    w.store.broken = True
    w.store.release()
    await w.turn()
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (leader.result().error, follower.result().error) == (gone, gone)


async def test_an_answer_waits_for_the_newest_change_and_not_for_an_earlier_one() -> None:
    w = await world()
    ids = await w.stable(members=3)
    w.store.hold = True
    left = await w.start_task(w.coordinator.leave("g", [Leaver(ids[2])]))
    for member_id in ids[:2]:
        await w.join(member_id=member_id)
    await w.sync(ids[0], {ids[1]: b"x"}, generation=2)
    w.store.release(1)
    await w.turn()
    assert left.done()
    follower = await w.sync(ids[1], generation=2)
    assert not follower.done()
    w.store.release()
    await w.turn()
    assert follower.result().assignment == b"x"


async def test_a_drained_registry_wakes_no_wait() -> None:
    w = await world()
    await w.stable()
    w.registry.drain()
    before = w.store.writes
    await w.advance(1_000)
    assert w.store.writes == before


async def test_an_empty_store_is_an_empty_registry() -> None:
    assert len(World(MemoryStore()).registry) == 0
