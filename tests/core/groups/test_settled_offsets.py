"""Offsets that a decision commits: compare-and-set against all that is under way, members, kill -9."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from core.errors import BrokerError, ErrorCode
from core.vocabulary.groups import Commit, CommitRequest
from core.vocabulary.settlements import NO_OFFSET, OffsetToSettle, RefusedError
from tests.core.consumers.consumer_world import G, World
from tests.core.groups.test_transactional_offsets import ONE, end, stage

SETTINGS = {"group_initial_rebalance_delay_ms": 0}


@pytest.fixture
async def w(w: World) -> World:
    await w.topic("t", 2, records=60)
    await w.broker.transactions.init(f"id-{ONE}", 60_000)
    return w


def wanted(offset: int, expected: int = -2, partition: int = 0, **more: Any) -> OffsetToSettle:
    return OffsetToSettle(more.pop("group", G), "t", partition, offset, expected, **more)


async def settle(w: World, *offsets: OffsetToSettle) -> None:
    await w.broker.transactions.commit_together([], lambda: [w.broker.groups.settle_offsets(offsets)])


async def refused(w: World, *offsets: OffsetToSettle) -> list[tuple[int, ErrorCode]]:
    with pytest.raises(RefusedError) as refusal:
        await settle(w, *offsets)
    return [(int(one.path[0]), one.error.code) for one in refusal.value.faults]


DIFFERS, BUSY = ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.CONCURRENT_TRANSACTIONS


async def test_offsets_of_several_groups_move_together_and_survive(w: World) -> None:
    await settle(w, wanted(5, NO_OFFSET), wanted(6, partition=1), wanted(7, group="other", metadata="note"))
    await w.kill()
    assert w.committed() == {0: 5, 1: 6}
    found = w.broker.groups.committed("other", "t", 0)
    assert found is not None and (found.offset, found.metadata) == (7, "note")


async def test_one_fault_leaves_all_as_they_are_and_each_is_named(w: World) -> None:
    await w.commit(3)
    faults = await refused(
        w,
        wanted(4, 3),
        wanted(4, 2, group="other"),
        wanted(1, partition=7),
        wanted(1, partition=1, metadata="x" * 5000),
    )
    assert faults == [
        (1, DIFFERS),
        (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (3, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ]
    assert w.committed() == {0: 3} and w.broker.groups.describe("other") is None


async def test_the_refusal_names_the_offset_that_is_committed(w: World) -> None:
    await w.commit(3)
    for one, actual in ((wanted(4, NO_OFFSET), 3), (wanted(4, 2), 3), (wanted(4, 0, partition=1), None)):
        with pytest.raises(BrokerError) as error:
            await settle(w, one)
        assert error.value.details["actual"] == actual


async def test_of_two_that_race_with_the_same_expectation_one_wins(w: World) -> None:
    await w.commit(3)
    racing = [settle(w, wanted(offset, 3)) for offset in (10, 20, 30)]
    results = await asyncio.gather(*racing, return_exceptions=True)
    assert results[0] is None and w.committed() == {0: 10}
    for result in results[1:]:
        # Until it is on the disk the first one is no fact to be told.
        assert isinstance(result, BrokerError) and result.code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert await refused(w, wanted(20, 3)) == [(0, DIFFERS)]


async def test_an_ordinary_commit_that_is_on_its_way_to_the_disk_counts(w: World) -> None:
    await w.commit(3)
    ordinary = asyncio.ensure_future(w.broker.groups.commit(G, CommitRequest([Commit("t", 0, 4)])))
    await asyncio.sleep(0)
    assert w.committed() == {0: 3}, "it is under way"
    assert await refused(w, wanted(9, 3)) == [(0, BUSY)], "the disk may refuse it"
    assert await ordinary == [ErrorCode.NONE]
    assert await refused(w, wanted(9, 3)) == [(0, DIFFERS)]
    ordinary = asyncio.ensure_future(w.broker.groups.commit(G, CommitRequest([Commit("t", 0, 5)])))
    await asyncio.sleep(0)
    # The disk may refuse it: then 4 is committed.
    assert await refused(w, wanted(9, 5)) == [(0, BUSY)]
    await ordinary
    await settle(w, wanted(9, 5))
    assert w.committed() == {0: 9}


async def test_a_deletion_that_is_under_way_counts(w: World) -> None:
    await w.commit(3)
    deleting = asyncio.ensure_future(w.broker.groups.delete_offsets(G, [("t", 0)]))
    await asyncio.sleep(0)
    assert await refused(w, wanted(9, 3)) == [(0, BUSY)]
    await deleting
    assert await refused(w, wanted(9, 3)) == [(0, DIFFERS)]
    await settle(w, wanted(9, NO_OFFSET))
    assert w.committed() == {0: 9}


async def test_an_offset_that_a_transaction_has_staged_makes_an_expectation_wait_and_loses(w: World) -> None:
    await w.commit(3)
    assert await stage(w, 20) is ErrorCode.NONE
    assert await refused(w, wanted(9, 3)) == [(0, BUSY)]
    await settle(w, wanted(9))
    await end(w)
    assert w.committed() == {0: 9}, "the newer commit wins"
    await w.kill()
    assert w.committed() == {0: 9}


async def test_what_a_decision_commits_is_unstable_until_it_is_on_the_disk(w: World) -> None:
    settling = asyncio.ensure_future(settle(w, wanted(9)))
    seen = set()
    while not settling.done():
        seen.add((w.broker.groups.is_unstable(G, "t", 0), w.committed().get(0)))
        assert not w.broker.groups.is_unstable(G, "t", 1)
        await asyncio.sleep(0)
    assert (True, None) in seen
    assert not w.broker.groups.is_unstable(G, "t", 0) and w.committed() == {0: 9}


async def test_the_member_and_its_generation_are_checked_in_the_decision(w: World) -> None:
    member = await w.other_member()
    await member.join()
    named = {"member_id": member.member_id, "generation": member.generation}
    assert await refused(w, wanted(4)) == [(0, ErrorCode.NON_EMPTY_GROUP)]
    assert await refused(w, wanted(4, member_id="x", generation=1)) == [(0, ErrorCode.UNKNOWN_MEMBER_ID)]
    assert await refused(w, wanted(4, **(named | {"generation": 99}))) == [(0, ErrorCode.ILLEGAL_GENERATION)]
    assert await refused(w, wanted(4, group="none", **named)) == [(0, ErrorCode.GROUP_ID_NOT_FOUND)]
    await settle(w, wanted(4, **named))
    assert w.committed() == {0: 4}
    # A member that joins between the request and its decision ends the generation.
    second = await w.other_member()
    joining = asyncio.ensure_future(second.join())
    await asyncio.sleep(0.1)
    rejoining = asyncio.ensure_future(member.join())
    await asyncio.gather(joining, rejoining)
    assert await refused(w, wanted(5, **named)) == [(0, ErrorCode.ILLEGAL_GENERATION)]
    assert w.committed() == {0: 4}


async def test_a_group_that_is_deleted_is_not_brought_back_by_a_decision_before_it(w: World) -> None:
    await w.commit(3)
    settling = asyncio.ensure_future(settle(w, wanted(9)))
    while not w.broker.groups.is_unstable(G, "t", 0):
        await asyncio.sleep(0)
    await w.broker.groups.delete(G)
    await settling
    assert w.broker.groups.describe(G) is None
    await w.kill()
    assert w.broker.groups.describe(G) is None
