"""Committed offsets through the coordinator: which clients may commit, what is kept, what is seen when."""

from __future__ import annotations

import pytest

from core.errors import BrokerError, ErrorCode
from core.vocabulary.groups import Commit, CommitRequest, CommittedOffset, Leaver
from tests.core.groups.world import World, world

OK = ErrorCode.NONE


def offset(w: World, group: str = "g", topic: str = "t", partition: int = 0) -> int | None:
    found = w.offsets.get(group, topic, partition)
    return None if found is None else found.offset


async def test_the_empty_group_id_serves_old_simple_consumers() -> None:
    w = await world()
    assert await w.offsets.put("", CommitRequest([Commit("t", 0, 5)])) == [OK]
    assert offset(w, "") == 5
    assert w.coordinator.describe("") is not None
    await w.coordinator.delete("")
    assert offset(w, "") is None


async def test_a_simple_consumer_commits_to_a_group_that_does_not_exist() -> None:
    w = await world()
    assert await w.offsets.put("g", CommitRequest([Commit("t", 0, 5, 3, "note"), Commit("t", 1, 6)])) == [
        OK,
        OK,
    ]
    now = w.clock.wall_ms()
    assert w.offsets.get("g", "t", 0) == CommittedOffset(5, 3, "note", now, -1)
    assert [tuple(x) for x in w.coordinator.list()] == [("g", "", "Empty", "classic")]
    w = await w.restart()
    assert (offset(w), offset(w, partition=1)) == (5, 6)
    assert [tuple(x) for x in w.coordinator.list()] == [("g", "", "Empty", "classic")]


async def test_nothing_committed_is_none_and_no_error() -> None:
    w = await world()
    assert offset(w, "never") is None
    assert list(w.offsets.of_group("never")) == []
    await w.offsets.put("g", CommitRequest([Commit("t", 0, 5)]))
    assert offset(w, partition=1) is None
    assert [(t, p, c.offset) for t, p, c in w.offsets.of_group("g")] == [("t", 0, 5)]


async def test_commits_are_refused_as_kafka_refuses_them() -> None:
    w = World()
    one = [Commit("t", 0, 5)]
    assert await w.offsets.put("g", CommitRequest(one)) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    await w.start()
    unknown = await w.offsets.put("g", CommitRequest(one, member_id="a", generation=3))
    assert unknown == [ErrorCode.GROUP_ID_NOT_FOUND]
    [leader] = await w.stable()
    assert await w.offsets.put("g", CommitRequest(one)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    as_member = {"member_id": leader, "generation": 1}
    assert await w.offsets.put("g", CommitRequest(one, **as_member)) == [OK]
    assert await w.offsets.put("g", CommitRequest(one, member_id=leader, generation=2)) == [
        ErrorCode.ILLEGAL_GENERATION
    ]
    fenced = await w.offsets.put("g", CommitRequest(one, **as_member, group_instance_id="i"))
    assert fenced == [ErrorCode.UNKNOWN_MEMBER_ID]
    await w.join(member_id=leader)
    await w.turn()
    rebalancing = await w.offsets.put("g", CommitRequest(one, member_id=leader, generation=2))
    assert rebalancing == [ErrorCode.REBALANCE_IN_PROGRESS]
    w.registry.drain()
    assert await w.offsets.put("g", CommitRequest(one, **as_member)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


async def test_a_fenced_static_member_never_commits() -> None:
    w = await world(group_initial_rebalance_delay_ms=0)
    old = (await w.join(group_instance_id="i")).result().member_id
    await w.sync(old)
    new = (await w.join(group_instance_id="i")).result().member_id
    assert new != old
    results = await w.offsets.put(
        "g", CommitRequest([Commit("t", 0, 5)], member_id=old, generation=1, group_instance_id="i")
    )
    assert results == [ErrorCode.FENCED_INSTANCE_ID]
    assert offset(w) is None


async def test_metadata_above_the_limit_is_refused_partition_by_partition() -> None:
    w = await world(offset_metadata_max_bytes=4)
    results = await w.offsets.put(
        "g", CommitRequest([Commit("t", 0, 1, -1, "12345"), Commit("t", 1, 2, -1, "1234")])
    )
    assert results == [ErrorCode.OFFSET_METADATA_TOO_LARGE, OK]
    assert (offset(w), offset(w, partition=1)) == (None, 2)


async def test_null_metadata_is_kept_as_empty() -> None:
    w = await world()
    await w.offsets.put("g", CommitRequest([Commit("t", 0, 1, -1, None)]))
    found = w.offsets.get("g", "t", 0)
    assert found is not None and found.metadata == ""


async def test_a_commit_that_is_too_large_as_a_whole_is_refused_whole() -> None:
    w = await world(offset_commit_max_bytes=1000, offset_metadata_max_bytes=10)
    many = [Commit("t", p, 1) for p in range(100)]
    results = await w.offsets.put("g", CommitRequest([*many, Commit("t", 100, 1, -1, "x" * 11)]))
    assert results == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * 100 + [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert w.store.offsets == {}
    assert await w.offsets.put("g", CommitRequest(many[:20])) == [OK] * 20


async def test_an_offset_is_seen_when_it_is_durable_and_not_before() -> None:
    w = await world()
    w.store.hold = True
    first = await w.start_task(w.offsets.put("g", CommitRequest([Commit("t", 0, 1)])))
    second = await w.start_task(w.offsets.put("g", CommitRequest([Commit("t", 0, 2)])))
    assert not first.done() and offset(w) is None
    w.store.release()
    await w.turn()
    assert (first.result(), second.result(), offset(w)) == ([OK], [OK], 2)


async def test_a_commit_whose_client_has_disconnected_still_lands() -> None:
    w = await world()
    w.store.hold = True
    gone = await w.start_task(w.offsets.put("g", CommitRequest([Commit("t", 0, 1)])))
    gone.cancel()
    await w.turn()
    w.store.release()
    await w.turn()
    assert offset(w) == 1


async def test_a_commit_that_could_not_be_stored_is_not_seen() -> None:
    w = await world()
    await w.offsets.put("g", CommitRequest([Commit("t", 0, 1)]))
    w.store.broken = True
    assert await w.offsets.put("g", CommitRequest([Commit("t", 0, 2)])) == [
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    ]
    assert offset(w) == 1


async def test_too_many_groups_refuse_a_commit_too() -> None:
    w = await world(max_groups=1)
    await w.offsets.put("a", CommitRequest([Commit("t", 0, 1)]))
    assert await w.offsets.put("b", CommitRequest([Commit("t", 0, 1)])) == [ErrorCode.POLICY_VIOLATION]


# --- delete ------------------------------------------------------------------------------------------------


async def test_offsets_of_topics_that_members_read_are_not_deleted() -> None:
    w = await world()
    await w.offsets.put("g", CommitRequest([Commit("t", 0, 1), Commit("u", 0, 2), Commit("u", 1, 3)]))
    [leader] = await w.stable()
    results = await w.offsets.delete("g", [("t", 0), ("u", 0), ("u", 7)])
    assert results == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, OK, OK]
    assert (offset(w), offset(w, topic="u"), offset(w, topic="u", partition=1)) == (1, None, 3)
    await w.coordinator.leave("g", [Leaver(leader)])
    assert await w.offsets.delete("g", [("t", 0)]) == [OK]
    assert sorted(w.store.offsets) == [("g", "u", 1)]


async def test_offsets_of_a_group_that_is_not_there_cannot_be_deleted() -> None:
    w = await world()
    for group, code in (("g", ErrorCode.GROUP_ID_NOT_FOUND), ("", ErrorCode.INVALID_GROUP_ID)):
        with pytest.raises(BrokerError) as error:
            await w.offsets.delete(group, [("t", 0)])
        assert error.value.code is code


async def test_offsets_under_members_of_another_kind_are_not_deleted() -> None:
    w = await world(group_initial_rebalance_delay_ms=0)
    await w.join(protocol_type="connect")
    with pytest.raises(BrokerError) as error:
        await w.offsets.delete("g", [("t", 0)])
    assert error.value.code is ErrorCode.NON_EMPTY_GROUP


async def test_offsets_that_could_not_be_deleted_stay() -> None:
    w = await world()
    await w.offsets.put("g", CommitRequest([Commit("t", 0, 1)]))
    w.store.broken = True
    assert await w.offsets.delete("g", [("t", 0)]) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert offset(w) == 1


async def test_a_deleted_group_takes_its_offsets_along() -> None:
    w = await world()
    await w.offsets.put("g", CommitRequest([Commit("t", 0, 1)]))
    await w.coordinator.delete("g")
    assert (offset(w), w.store.offsets) == (None, {})


async def test_a_deleted_topic_takes_its_offsets_along_in_every_group() -> None:
    w = await world()
    for group in "ab":
        await w.offsets.put(group, CommitRequest([Commit("t", 0, 1), Commit("u", 0, 2)]))
    await w.offsets.forget_topic("t")
    assert sorted(w.store.offsets) == [("a", "u", 0), ("b", "u", 0)]
    assert (offset(w, "a"), offset(w, "a", "u")) == (None, 2)


# --- expiry ------------------------------------------------------------------------------------------------

DAY = 86_400


async def test_offsets_of_a_simple_consumer_expire_a_retention_after_their_commit() -> None:
    w = await world()
    await w.offsets.put("g", CommitRequest([Commit("t", 0, 1)]))
    w.clock.advance(6 * DAY)
    await w.offsets.put("g", CommitRequest([Commit("t", 1, 1)]))
    assert await w.offsets.expire() == 0
    w.clock.advance(1.1 * DAY)
    assert await w.offsets.expire() == 1
    assert sorted(w.store.offsets) == [("g", "t", 1)]
    w.clock.advance(7 * DAY)
    assert await w.offsets.expire() == 1
    assert (w.coordinator.list(), w.store.offsets) == ([], {})


async def test_offsets_of_an_empty_group_expire_a_retention_after_the_last_member_left() -> None:
    w = await world()
    [leader] = await w.stable()
    await w.offsets.put("g", CommitRequest([Commit("t", 0, 1)], member_id=leader, generation=1))
    for _ in range(12):
        w.clock.advance(DAY)
        w.registry.group("g").resume(w.clock.monotonic(), DAY)  # type: ignore[union-attr]
        assert await w.offsets.expire() == 0
    await w.coordinator.leave("g", [Leaver(leader)])
    w.clock.advance(6.9 * DAY)
    assert await w.offsets.expire() == 0
    w = await w.restart()
    w.clock.advance(0.2 * DAY)
    assert await w.offsets.expire() == 1
    assert w.store.groups == {}


async def test_stable_consumers_keep_what_they_subscribe_to_and_lose_what_is_old_besides() -> None:
    w = await world()
    await w.offsets.put("g", CommitRequest([Commit("t", 0, 1), Commit("u", 0, 1)]))
    [leader] = await w.stable()
    w.clock.advance(8 * DAY)
    w.registry.group("g").resume(w.clock.monotonic(), 8 * DAY)  # type: ignore[union-attr]
    assert await w.offsets.expire() == 1
    assert sorted(w.store.offsets) == [("g", "t", 0)]
    assert w.coordinator.heartbeat("g", leader, 1) is OK


async def test_nothing_expires_in_mid_rebalance_and_under_members_of_another_kind() -> None:
    w = await world(group_initial_rebalance_delay_ms=0)
    await w.offsets.put("g", CommitRequest([Commit("t", 0, 1)]))
    await w.offsets.put("h", CommitRequest([Commit("t", 0, 1)]))
    await w.join("g")
    other = (await w.join("h", protocol_type="connect")).result()
    await w.sync(other.member_id, group="h")
    w.clock.advance(30 * DAY)
    assert await w.offsets.expire() == 0


async def test_a_retention_of_its_own_outweighs_the_brokers() -> None:
    w = await world()
    await w.offsets.put("g", CommitRequest([Commit("t", 0, 1)], retention_ms=DAY * 1000))
    await w.offsets.put("g", CommitRequest([Commit("t", 1, 1)], retention_ms=30 * DAY * 1000))
    w.clock.advance(2 * DAY)
    assert await w.offsets.expire() == 1
    w.clock.advance(20 * DAY)
    assert await w.offsets.expire() == 0
    assert sorted(w.store.offsets) == [("g", "t", 1)]


async def test_a_commit_time_set_by_the_client_counts() -> None:
    w = await world()
    later = w.clock.wall_ms() + 30 * DAY * 1000
    await w.offsets.put("g", CommitRequest([Commit("t", 0, 1, commit_ms=later)]))
    w.clock.advance(31 * DAY)
    assert await w.offsets.expire() == 0
    w.clock.advance(7 * DAY)
    assert await w.offsets.expire() == 1


async def test_a_wall_clock_that_jumps_ahead_expires_nothing() -> None:
    w = await world()
    await w.offsets.put("g", CommitRequest([Commit("t", 0, 1)]))
    w.clock.jump_wall(100 * DAY)
    assert await w.offsets.expire() == 0


async def test_an_expiry_never_takes_a_commit_that_is_on_its_way() -> None:
    w = await world()
    await w.offsets.put("g", CommitRequest([Commit("t", 0, 1)]))
    w.clock.advance(8 * DAY)
    w.store.hold = True
    commit = await w.start_task(w.offsets.put("g", CommitRequest([Commit("t", 0, 2)])))
    assert await w.offsets.expire() == 0
    w.store.release()
    await w.turn()
    assert commit.result() == [OK] and offset(w) == 2


async def test_groups_that_hold_nothing_are_forgotten() -> None:
    w = await world()
    [leader] = await w.stable()
    await w.coordinator.leave("g", [Leaver(leader)])
    await w.join("h", protocols=())
    assert len(w.registry) == 2
    await w.offsets.expire()
    assert (len(w.registry), w.store.groups) == (0, {})
