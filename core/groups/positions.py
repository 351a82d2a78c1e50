"""The positions of groups, as `broker.groups.positions`: lag, setting, resetting, deleting.

A position is the next offset to read. Without the name of a member, a position can be set only in a group without
members: a member would overwrite it with its next commit, or continue where it was.
"""

from __future__ import annotations

from collections.abc import Iterable

from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.interfaces import Describes, Offsets
from core.groups.refusals import refusal
from core.types import LogOffsets, TopicPartition
from core.vocabulary.groups import (
    NO_MEMBER,
    Commit,
    CommitRequest,
    GroupView,
    PartitionLag,
    Reset,
    State,
    Target,
)
from core.vocabulary.member_metadata import assigned_partitions
from core.vocabulary.partition import EARLIEST, LATEST


class GroupPositions:
    """The positions of all groups."""

    def __init__(self, config: Config, coordinator: Describes, offsets: Offsets, broker: Logs) -> None:
        self._config = config
        self._coordinator = coordinator
        self._offsets = offsets
        self._broker = broker

    def lag(self, group_id: str) -> list[PartitionLag]:
        """Return the lag of each partition that has a committed offset or an owner, by topic and partition.

        Raises GROUP_ID_NOT_FOUND.
        """
        view = self._require(group_id)
        owners = {
            tp: member.member_id for member in view.members for tp in assigned_partitions(member.assignment)
        }
        committed = self._committed(group_id)
        return [
            PartitionLag(*tp, committed.get(tp), self._bounds(tp), owners.get(tp))
            for tp in sorted(committed.keys() | owners.keys())
        ]

    async def set(self, group_id: str, request: CommitRequest) -> None:
        """Commit positions, all or none. A group that does not exist is created, without members.

        Raises UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE, NON_EMPTY_GROUP for a group with members
        when none is named, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS.
        """
        longest = self._config.offset_metadata_max_bytes
        for commit in request.commits:
            self._broker.partitions.info(TopicPartition(commit.topic, commit.partition))
            if len(commit.metadata or "") > longest:
                raise BrokerError(
                    ErrorCode.OFFSET_METADATA_TOO_LARGE,
                    f"The metadata of {commit.topic}-{commit.partition} has {len(commit.metadata or '')} characters; "
                    f"{longest} are allowed.",
                    limit=longest,
                )
        if request.member_id == NO_MEMBER and request.generation < 0 and request.group_instance_id is None:
            self._require_empty(group_id)
            results = await self._offsets.put_by_hand(group_id, request.commits)
        else:
            results = await self._offsets.put(group_id, request)
        refused = next((error for error in results if error), None)
        if refused is not None:
            raise refusal(refused, group_id, request.member_id)

    async def reset(
        self, group_id: str, target: Target, topics: Iterable[str] = (), *, dry_run: bool = False
    ) -> list[Reset]:
        """Move the positions of a group without members; return each before and after. `dry_run` moves nothing.

        This applies to all partitions of `topics`, or to those in which the group has positions. A target beyond the
        log start offset or the high watermark becomes that offset. A shift skips partitions without a position.
        Raises NON_EMPTY_GROUP, UNKNOWN_TOPIC_OR_PARTITION, and GROUP_ID_NOT_FOUND for a group that does not exist if
        no topics are named.
        """
        self._require_empty(group_id)
        committed = self._committed(group_id)
        names = list(dict.fromkeys(topics))
        if names:
            wanted = [
                TopicPartition(t, p) for t in names for p in range(self._broker.topics.get(t).partitions)
            ]
        else:
            self._require(group_id)
            wanted = [tp for tp in sorted(committed) if self._bounds(tp) is not None]
        resets = []
        for tp in wanted:
            before = committed.get(tp)
            if before is not None or target.shift is None:
                resets.append(Reset(*tp, before, self._aim(tp, target, before or 0)))
        if not dry_run and resets:
            commits = [Commit(r.topic, r.partition, r.after) for r in resets]
            await self.set(group_id, CommitRequest(commits))
        return resets

    async def forget(self, group_id: str, topic: str, partition: int | None = None) -> None:
        """Delete the positions of a topic, or of one partition of it.

        Raises GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC while members read the topic.
        """
        self._require(group_id)
        committed = [p for t, p, _ in self._offsets.of_group(group_id) if t == topic]
        wanted = [p for p in committed if partition in (None, p)]
        if not wanted:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Group {group_id!r} has no position in {topic}{'' if partition is None else f'-{partition}'}.",
                topic=topic,
            )
        results = await self._offsets.delete(group_id, [(topic, p) for p in wanted])
        refused = next((error for error in results if error), None)
        if refused is not None:
            raise refusal(refused, group_id)

    def _committed(self, group_id: str) -> dict[TopicPartition, int]:
        return {TopicPartition(t, p): c.offset for t, p, c in self._offsets.of_group(group_id)}

    def _aim(self, tp: TopicPartition, target: Target, before: int) -> int:
        """Return the offset to which a reset moves the position `before`."""
        bounds = self._broker.partitions.info(tp).offsets
        if target.earliest:
            return self._broker.partitions.offset_for_time(tp, EARLIEST).offset
        if target.latest:
            return self._broker.partitions.offset_for_time(tp, LATEST, committed=True).offset
        if target.time is not None:
            found = self._broker.partitions.offset_for_time(tp, target.time, committed=True).offset
            # If the time is after all records, the group reads the records that are appended from now on.
            return found if found >= 0 else bounds.last_stable_offset
        wanted = target.offset if target.offset is not None else before + (target.shift or 0)
        return min(max(wanted, bounds.log_start_offset), bounds.high_watermark)

    def _bounds(self, tp: TopicPartition) -> LogOffsets | None:
        try:
            return self._broker.partitions.info(tp).offsets
        except BrokerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return None

    def _require(self, group_id: str) -> GroupView:
        view = self._coordinator.describe(group_id)
        if view is None:
            raise refusal(ErrorCode.GROUP_ID_NOT_FOUND, group_id)
        return view

    def _require_empty(self, group_id: str) -> None:
        view = self._coordinator.describe(group_id)
        if view is not None and view.state != State.EMPTY:
            raise refusal(ErrorCode.NON_EMPTY_GROUP, group_id)
