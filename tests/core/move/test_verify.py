"""core.move.verify: what is not equal is found and named; and the offsets of groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.errors import ErrorCode
from core.move.groups import GroupPlan, commit_groups, plan_groups, source_groups
from core.move.journal import JournalError
from core.records.record import NewRecord
from core.server import Server
from core.types import TopicPartition
from core.vocabulary.groups import Commit, CommitRequest, JoinRequest
from tests.core.move.world import Pair

TP = TopicPartition("t", 0)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """A source of 20 records without its first 5, which is copied."""
    async with Pair(tmp_path, group_initial_rebalance_delay_ms=0) as opened:
        await opened.source.broker.topics.create("t")
        for n in range(20):
            await opened.write("t", [NewRecord(b"k", b"v%d" % n, (), 1_000 + n)])
        await opened.source.broker.partitions.delete_records([(TP, 5)])
        await opened.copy()
        yield opened


async def commit(server: Server, group: str, offset: int, topic: str = "t") -> None:
    errors = await server.broker.groups.commit(
        group, CommitRequest([Commit(topic, 0, offset, metadata="note")])
    )
    assert errors == [ErrorCode.NONE]


def committed(server: Server, group: str) -> dict[int, tuple[int, str]]:
    return {p: (c.offset, c.metadata) for _, p, c in server.broker.groups.all_committed(group)}


async def plan(pair: Pair, *groups: str) -> list[GroupPlan]:
    source, target = pair.clusters()
    with pair.journal() as journal:
        return await plan_groups(target, journal, await source_groups(source, groups), lambda name: True)


async def test_equal_logs_have_equal_counts_and_crcs(pair: Pair) -> None:
    report = await pair.verify()
    (one,) = report.partitions
    assert report.equal and one.source == one.target and one.source.records == 15 and one.source.crc
    assert not one.same_offsets


@pytest.mark.parametrize("change", ["value", "key", "time", "headers", "missing", "order"])
async def test_a_record_that_differs_is_named(pair: Pair, change: str) -> None:
    """The target is written again with one difference, by another client."""
    records = [NewRecord(b"k", b"v%d" % n, (), 1_000 + n) for n in range(5, 20)]
    other = {
        "value": NewRecord(b"k", b"other", (), 1_012),
        "key": NewRecord(b"other", b"v12", (), 1_012),
        "time": NewRecord(b"k", b"v12", (), 9),
        "headers": NewRecord(b"k", b"v12", (("h", b""),), 1_012),
    }
    if change in other:
        records[7] = other[change]
    elif change == "order":
        records[7], records[8] = records[8], records[7]
    else:
        del records[-1]
    log = pair.target.broker.partitions.log(TP)
    log.truncate_to(0)
    await pair.target.broker.records.produce("t", records, partition=0)
    (one,) = (await pair.verify()).partitions
    wanted = {
        "missing": "offset 19 of the source is missing on the other side",
        "order": "the record at offset 12 of the source differs from that at 7 of the target: value",
    }
    assert (
        wanted.get(change, f"offset 12 of the source differs from that at 7 of the target: {change}")
        in one.difference
    )
    assert one.source != one.target


async def test_what_is_not_copied_is_a_difference(pair: Pair) -> None:
    await pair.write("t", [NewRecord(b"k", b"new")])
    await pair.source.broker.topics.create("late")
    report = await pair.verify()
    assert "offsets 20 to 20 of the source are not copied yet" in report.partitions[0].difference
    assert report.topics == ["Topic 'late' is not copied."]


async def test_offsets_of_groups_are_translated_and_committed(pair: Pair) -> None:
    await commit(pair.source, "early", 2)
    await commit(pair.source, "middle", 12)
    await commit(pair.source, "end", 20)
    assert [(one.group, one.wanted, one.found) for one in (await pair.verify()).groups] == [
        ("early", 0, None), ("end", 15, None), ("middle", 7, None),
    ]  # fmt: skip
    assert await commit_groups(pair.clusters()[1], await plan(pair)) == 3
    assert committed(pair.target, "middle") == {0: (7, "note")}
    assert (await pair.verify()).equal
    # Again there is nothing to do.
    assert await commit_groups(pair.clusters()[1], await plan(pair)) == 0


async def test_a_group_with_members_on_the_target_is_refused(pair: Pair) -> None:
    await commit(pair.source, "g", 12)
    await pair.target.broker.groups.join("g", JoinRequest("", "consumer", (("range", b""),), 30_000, 30_000))
    (planned,) = await plan(pair, "g")
    assert "has members on the target" in planned.refusal
    assert await commit_groups(pair.clusters()[1], [planned]) == 0 and committed(pair.target, "g") == {}


async def test_an_offset_that_is_not_copied_is_refused(pair: Pair) -> None:
    await pair.write("t", [NewRecord(b"k", b"new")])
    await commit(pair.source, "g", 21)
    with pytest.raises(JournalError, match="Offset 21 of t-0 is not copied yet"):
        await plan(pair)


async def test_offsets_of_other_topics_are_left_out_and_named(pair: Pair) -> None:
    await pair.source.broker.topics.create("late")
    await commit(pair.source, "g", 12)
    await commit(pair.source, "g", 0, "late")
    (planned,) = await plan(pair)
    assert planned.left_out == [TopicPartition("late", 0)] and [one.target for one in planned.offsets] == [7]
