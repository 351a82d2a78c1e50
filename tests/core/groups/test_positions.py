"""Positions of groups: lag, setting, resetting, forgetting."""

from __future__ import annotations

import pytest

from core.broker.broker import Broker
from core.errors import BrokerError, ErrorCode
from core.groups.effects import OffsetsChange
from core.groups.store import MetadataGroupStore
from core.protocol.consumer_protocol import Subscription, encode_subscription
from core.records.record import NewRecord
from core.types import LogOffsets, TopicPartition
from core.vocabulary.groups import (
    Commit,
    CommitRequest,
    CommittedOffset,
    JoinRequest,
    Leaver,
    PartitionLag,
    SyncRequest,
    Target,
)
from core.vocabulary.member_metadata import assignment_of

SETTINGS = {"group_initial_rebalance_delay_ms": 0}


@pytest.fixture
async def broker(broker: Broker) -> Broker:
    await broker.topics.create("t", partitions=2)
    for timestamp in (100, 200, 300, 400):
        await broker.records.produce("t", [NewRecord(value=b"x", timestamp=timestamp)], partition=0)
    return broker


async def member(broker: Broker, *owns: int) -> str:
    """A stable group of one member; its id."""
    metadata = encode_subscription(Subscription(["t"]), 0)
    joined = await broker.groups.join(
        "g", JoinRequest("", "consumer", (("range", metadata),), 10_000, 10_000, "c", "/h")
    )
    assignment = assignment_of(TopicPartition("t", p) for p in owns)
    await broker.groups.sync("g", SyncRequest(joined.member_id, 1, [(joined.member_id, assignment)]))
    return joined.member_id


def position(broker: Broker, partition: int = 0) -> int | None:
    found = broker.groups.committed("g", "t", partition)
    return None if found is None else found.offset


async def refused(work: object, code: ErrorCode) -> BrokerError:
    with pytest.raises(BrokerError) as error:
        await work  # type: ignore[misc]
    assert error.value.code is code
    return error.value


async def test_lag_is_told_for_what_was_committed_and_for_what_is_owned(broker: Broker) -> None:
    await broker.groups.positions.set("g", CommitRequest([Commit("t", 0, 1)]))
    owner = await member(broker, 0, 1)
    first, second = broker.groups.positions.lag("g")
    assert first == PartitionLag("t", 0, 1, LogOffsets(0, 4, 4, 4), owner)
    assert (first.lag, second.lag, second.next_offset, second.member_id) == (3, None, None, owner)


async def test_an_offset_beyond_the_end_and_a_deleted_partition_are_no_lag(broker: Broker) -> None:
    await broker.groups.positions.set("g", CommitRequest([Commit("t", 0, 99)]))
    assert await broker.groups.commit("g", CommitRequest([Commit("t", 77, 5)], any_partition=True)) == [
        ErrorCode.NONE
    ]
    there, gone = broker.groups.positions.lag("g")
    assert (gone.partition, gone.offsets, gone.lag) == (77, None, None)
    assert there.lag == 0


async def test_a_group_that_is_not_there_has_no_lag(broker: Broker) -> None:
    with pytest.raises(BrokerError) as error:
        broker.groups.positions.lag("g")
    assert error.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_positions_are_set_all_or_none(broker: Broker) -> None:
    positions = broker.groups.positions
    await refused(
        positions.set("g", CommitRequest([Commit("t", 0, 1), Commit("t", 7, 1)])),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    large = Commit("t", 1, 1, -1, "x" * 4097)
    await refused(
        positions.set("g", CommitRequest([Commit("t", 0, 1), large])), ErrorCode.OFFSET_METADATA_TOO_LARGE
    )
    assert broker.groups.describe("g") is None
    await positions.set("g", CommitRequest([Commit("t", 0, 1, -1, "by hand"), Commit("t", 1, 0)]))
    assert (position(broker), position(broker, 1)) == (1, 0)


async def test_a_running_group_is_set_only_by_its_members(broker: Broker) -> None:
    one = await member(broker, 0)
    positions, commits = broker.groups.positions, [Commit("t", 0, 2)]
    await refused(positions.set("g", CommitRequest(commits)), ErrorCode.NON_EMPTY_GROUP)
    await refused(
        positions.set("g", CommitRequest(commits, member_id="ghost", generation=1)),
        ErrorCode.UNKNOWN_MEMBER_ID,
    )
    await refused(
        positions.set("g", CommitRequest(commits, member_id=one, generation=9)), ErrorCode.ILLEGAL_GENERATION
    )
    await positions.set("g", CommitRequest(commits, member_id=one, generation=1))
    assert position(broker) == 2


async def test_a_position_set_by_hand_is_what_clients_of_the_first_version_see(broker: Broker) -> None:
    await broker.groups.commit("g", CommitRequest([Commit("t", 0, 1)], register=True))
    await broker.groups.positions.set("g", CommitRequest([Commit("t", 0, 3)]))
    seen = broker.groups.committed("g", "t", 0, register=True)
    assert seen is not None and seen.offset == 3


@pytest.mark.parametrize(
    ("target", "after"),
    [
        (Target(earliest=True), 0),
        (Target(latest=True), 4),
        (Target(time=150), 1),
        (Target(time=9_999), 4),
        (Target(offset=3), 3),
        (Target(offset=99), 4),
        (Target(shift=-1), 1),
        (Target(shift=-9), 0),
        (Target(shift=0), 2),
        (Target(shift=1), 3),
    ],
    ids=str,
)
async def test_a_reset_shows_and_does_what_is_asked(broker: Broker, target: Target, after: int) -> None:
    positions = broker.groups.positions
    await positions.set("g", CommitRequest([Commit("t", 0, 2)]))
    planned = await positions.reset("g", target, dry_run=True)
    assert [tuple(r) for r in planned] == [("t", 0, 2, after)]
    assert position(broker) == 2
    assert await positions.reset("g", target) == planned
    assert position(broker) == after


async def test_a_reset_of_topics_takes_all_their_partitions_and_makes_the_group(broker: Broker) -> None:
    resets = await broker.groups.positions.reset("new", Target(latest=True), ["t"])
    assert [tuple(r) for r in resets] == [("t", 0, None, 4), ("t", 1, None, 0)]
    assert broker.groups.committed("new", "t", 0) is not None
    assert await broker.groups.positions.reset("other", Target(shift=1), ["t"]) == []


async def test_a_reset_is_refused_where_it_would_do_harm_or_has_nothing_to_go_by(broker: Broker) -> None:
    positions, target = broker.groups.positions, Target(earliest=True)
    await refused(positions.reset("g", target), ErrorCode.GROUP_ID_NOT_FOUND)
    await refused(positions.reset("g", target, ["nope"]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    await member(broker, 0)
    await refused(positions.reset("g", target), ErrorCode.NON_EMPTY_GROUP)


async def test_positions_are_forgotten_by_topic_or_partition_without_readers(broker: Broker) -> None:
    positions = broker.groups.positions
    await refused(positions.forget("g", "t"), ErrorCode.GROUP_ID_NOT_FOUND)
    await positions.set("g", CommitRequest([Commit("t", 0, 1), Commit("t", 1, 0)]))
    await refused(positions.forget("g", "u"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    one = await member(broker, 0)
    await refused(positions.forget("g", "t"), ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    await broker.groups.leave("g", [Leaver(one)])
    await positions.forget("g", "t", 1)
    assert (position(broker), position(broker, 1)) == (1, None)
    await positions.forget("g", "t")
    assert position(broker) is None


async def test_a_deleted_topic_takes_its_positions_along_also_after_a_crash(broker: Broker) -> None:
    await broker.groups.positions.set("g", CommitRequest([Commit("t", 0, 1)]))
    gone = CommittedOffset(5, -1, "", 0, -1)
    await MetadataGroupStore(broker.store).persist([OffsetsChange("g", [("gone", 0, gone)])])
    await broker.topics.delete("t")
    assert position(broker) is None
    await broker.groups.open()
    assert broker.groups.committed("g", "gone", 0) is None


async def test_a_group_is_before_its_sync_from_the_join_until_the_leader_assigns(broker: Broker) -> None:
    assert broker.groups.before_sync("g") is ErrorCode.NONE
    await member(broker, 0)
    assert broker.groups.before_sync("g") is ErrorCode.NONE
    protocols = (("range", encode_subscription(Subscription(["t"]), 0)),)
    await broker.groups.join("new", JoinRequest("", "consumer", protocols, 10_000, 10_000, "c", "/h"))
    assert broker.groups.before_sync("new") is ErrorCode.REBALANCE_IN_PROGRESS
