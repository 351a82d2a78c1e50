"""Committed offsets of groups: read of the source, translated through the journal, committed on the target.

A translated offset is exact: it names the same record, or the end. A group that has members on the target is refused,
because they would go on where they are, and commit that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from core.client.failures import refused
from core.errors import ErrorCode
from core.move.cluster import MoveCluster
from core.move.journal import Journal, JournalError
from core.protocol.messages.describe_groups import DescribeGroupsRequest
from core.protocol.messages.list_groups import ListGroupsRequest
from core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from core.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from core.types import TopicPartition

# States of a group without members (KIP-518), and of one that does not exist.
_WITHOUT_MEMBERS = frozenset({"Empty", "Dead", ""})
# Later versions of OffsetFetch and OffsetCommit name topics by their ids: one may have been created again.
_NEWEST = 9
# Partitions in one OffsetCommit.
_AT_ONCE = 1_000


class GroupOffset(NamedTuple):
    """A committed offset, and the text that its client stored with it."""

    offset: int
    metadata: str


Offsets = dict[TopicPartition, GroupOffset]


class MovedOffset(NamedTuple):
    """A committed offset of the source, what it is in the target, and what the target has now (None: nothing)."""

    group: str
    tp: TopicPartition
    source: int
    target: int
    before: int | None
    metadata: str


class GroupDifference(NamedTuple):
    """A committed offset that is not the translated one. `found` is what the target has, None for nothing."""

    group: str
    tp: TopicPartition
    wanted: int | str
    found: int | None


class GroupPlan(NamedTuple):
    """What is to be committed for one group. `refusal` says why nothing is; `left_out` are of topics not moved."""

    group: str
    offsets: list[MovedOffset]
    left_out: list[TopicPartition]
    refusal: str


async def group_ids(cluster: MoveCluster) -> list[str]:
    """Return the ids of all groups of a cluster, sorted."""
    found: set[str] = set()
    for broker_id in list(cluster.client.brokers):
        answer = await cluster.patient(lambda one=broker_id: cluster.client.ask(one, ListGroupsRequest()))  # type: ignore[misc]
        if answer.error_code:
            raise refused(answer.error_code, "The groups cannot be listed")
        found |= {one.group_id for one in answer.groups}
    return sorted(found)


async def committed(cluster: MoveCluster, group: str) -> Offsets:
    """Return all committed offsets of a group. Raises UNSTABLE_OFFSET_COMMIT while a transaction has staged some."""
    request = OffsetFetchRequest(
        group_id=group,
        topics=None,
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None)],
        require_stable=True,
    )

    async def ask() -> Any:
        answer = await cluster.client.ask_coordinator(group, request, newest=_NEWEST)
        code = answer.error_code or next((one.error_code for one in answer.groups), 0)
        if code:
            raise refused(code, f"The offsets of group {group!r}")
        return answer

    answer = await cluster.patient(ask)
    topics = answer.groups[0].topics if answer.groups else answer.topics
    found: Offsets = {}
    for topic in topics:
        for one in topic.partitions:
            if one.error_code:
                raise refused(
                    one.error_code, f"The offset of group {group!r} in {topic.name}-{one.partition_index}"
                )
            if one.committed_offset >= 0:
                tp = TopicPartition(topic.name, one.partition_index)
                found[tp] = GroupOffset(one.committed_offset, one.metadata or "")
    return found


async def has_members(cluster: MoveCluster, group: str) -> str:
    """Return the state of a group if it has members, else an empty text."""

    async def ask() -> Any:
        answer = await cluster.client.ask_coordinator(group, DescribeGroupsRequest(groups=[group]))
        code = answer.groups[0].error_code
        if code and code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise refused(code, f"Group {group!r}")
        return answer

    answer = await cluster.patient(ask)
    found = answer.groups[0]
    if found.error_code or found.group_state in _WITHOUT_MEMBERS:
        return ""
    return str(found.group_state)


async def plan_groups(
    target: MoveCluster, journal: Journal, source: Mapping[str, Offsets], wanted: Callable[[str], bool]
) -> list[GroupPlan]:
    """Translate the offsets of groups of the source. Nothing is committed. Raises JournalError, BrokerError."""
    moved = journal.topics()
    plans = []
    for group, offsets in sorted(source.items()):
        mine = {tp: one for tp, one in offsets.items() if tp.topic in moved and wanted(tp.topic)}
        left_out = sorted(tp for tp in offsets if tp not in mine)
        if not mine:
            continue
        state = await has_members(target, group)
        before = await committed(target, group)
        translated = [
            MovedOffset(
                group,
                tp,
                one.offset,
                journal.translate(tp, one.offset),
                _offset(before.get(tp)),
                one.metadata,
            )
            for tp, one in sorted(mine.items())
        ]
        refusal = f"it has members on the target ({state}); stop them first" if state else ""
        plans.append(GroupPlan(group, translated, left_out, refusal))
    return plans


async def commit_groups(target: MoveCluster, plans: Iterable[GroupPlan]) -> int:
    """Commit what is planned and not refused; return the number of offsets. It may be repeated."""
    count = 0
    for plan in plans:
        offsets = [] if plan.refusal else [one for one in plan.offsets if one.target != one.before]
        for start in range(0, len(offsets), _AT_ONCE):
            await _commit(target, plan.group, offsets[start : start + _AT_ONCE])
        count += len(offsets)
    return count


async def _commit(target: MoveCluster, group: str, offsets: Collection[MovedOffset]) -> None:
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for one in offsets:
        partition = OffsetCommitRequestPartition(
            partition_index=one.tp.partition, committed_offset=one.target, committed_metadata=one.metadata
        )
        by_topic.setdefault(one.tp.topic, []).append(partition)
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=some) for name, some in by_topic.items()],
    )

    async def ask() -> None:
        answer = await target.client.ask_coordinator(group, request, newest=_NEWEST)
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code:
                    raise refused(one.error_code, f"The target refuses offsets of group {group!r}")

    await target.patient(ask)


async def source_groups(source: MoveCluster, chosen: Collection[str] = ()) -> dict[str, Offsets]:
    """Return the committed offsets of groups of the source: of all, or of those chosen."""
    await source.topics()
    return {group: await committed(source, group) for group in (sorted(chosen) or await group_ids(source))}


async def compare_groups(
    source: MoveCluster, target: MoveCluster, journal: Journal, wanted: Callable[[str], bool]
) -> list[GroupDifference]:
    """Return the committed offsets of the target that are not those of the source, translated."""
    moved, differences = journal.topics(), []
    for group, offsets in (await source_groups(source)).items():
        mine = {tp: one for tp, one in offsets.items() if tp.topic in moved and wanted(tp.topic)}
        there = await committed(target, group) if mine else {}
        for tp, one in sorted(mine.items()):
            found = _offset(there.get(tp))
            try:
                translated: int | str = journal.translate(tp, one.offset)
            except JournalError:
                translated = f"{one.offset} of the source, which is not copied yet"
            if translated != found:
                differences.append(GroupDifference(group, tp, translated, found))
    return differences


def _offset(one: GroupOffset | None) -> int | None:
    return None if one is None else one.offset
