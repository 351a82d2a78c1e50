"""Where groups have got to, for people: committed offsets, lag, setting and resetting of positions.

A position is the next offset to read. Setting one without naming a member is for groups that nobody reads with:
else a running member would commit over it, or go on where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.types import LogOffsets, TopicPartition
from core.vocabulary.groups import NO_GENERATION, NO_MEMBER, Commit, PartitionLag, Reset, State, Target
from core.vocabulary.partition import EARLIEST, LATEST

if TYPE_CHECKING:
    from core.groups.groups import Groups


class GroupPositions:
    """The positions of all groups, as `broker.groups.positions`."""

    def __init__(self, broker: Logs, groups: Groups) -> None:
        self._broker = broker
        self._groups = groups

    def lag(self, group_id: str) -> list[PartitionLag]:
        """The lag of each partition that has a committed offset or an owner, by topic and partition.

        Raises GROUP_ID_NOT_FOUND.
        """
        self._require(group_id)
        owners = self._groups.owners(group_id)
        committed = {TopicPartition(t, p): c.offset for t, p, c in self._groups.all_committed(group_id)}
        return [
            PartitionLag(*address, committed.get(address), self._bounds(address), owners.get(address))
            for address in sorted(committed.keys() | owners.keys())
        ]

    async def set(
        self,
        group_id: str,
        commits: Sequence[Commit],
        *,
        member_id: str = NO_MEMBER,
        generation: int = NO_GENERATION,
        group_instance_id: str | None = None,
    ) -> None:
        """Commit positions, all or none. A group that is not there comes to be, without members.

        Raises UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE, NON_EMPTY_GROUP for a group with members
        when none is named, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS.
        """
        longest = self._broker.config.offset_metadata_max_bytes
        for commit in commits:
            self._broker.partitions.info(TopicPartition(commit.topic, commit.partition))
            if len(commit.metadata or "") > longest:
                raise BrokerError(
                    ErrorCode.OFFSET_METADATA_TOO_LARGE,
                    f"The metadata of {commit.topic}-{commit.partition} has {len(commit.metadata or '')} characters; "
                    f"{longest} are allowed.",
                    limit=longest,
                )
        if member_id == NO_MEMBER and generation < 0 and group_instance_id is None:
            self._require_empty(group_id)
            commits = [*commits, *self._groups.register_follows(group_id, commits)]
        results = await self._groups.coordinator.commit(
            group_id,
            commits,
            member_id=member_id,
            generation=generation,
            group_instance_id=group_instance_id,
        )
        refused = next((error for error in results if error), None)
        if refused is not None:
            raise self._groups.refusal(refused, group_id, member_id)

    async def reset(
        self, group_id: str, target: Target, topics: Iterable[str] = (), *, dry_run: bool = False
    ) -> list[Reset]:
        """Move the positions of a group that nobody reads with; what was and what is, or would be.

        Of all partitions of `topics`, or of the partitions that the group has positions in. A target outside of a
        partition's bounds becomes the nearest bound. A shift leaves partitions out that have no position.
        Raises GROUP_ID_NOT_FOUND where there is nothing to go by, NON_EMPTY_GROUP, UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._require_empty(group_id)
        committed = {TopicPartition(t, p): c.offset for t, p, c in self._groups.all_committed(group_id)}
        names = list(dict.fromkeys(topics))
        if names:
            wanted = [
                TopicPartition(t, p) for t in names for p in range(self._broker.topics.get(t).partitions)
            ]
        else:
            self._require(group_id)
            wanted = [address for address in sorted(committed) if self._bounds(address) is not None]
        resets = []
        for address in wanted:
            before = committed.get(address)
            if before is not None or target.shift is None:
                after = self._aim(address, target, before or 0)
                resets.append(Reset(*address, before, after))
        if not dry_run and resets:
            await self.set(group_id, [Commit(r.topic, r.partition, r.after) for r in resets])
        return resets

    async def forget(self, group_id: str, topic: str, partition: int | None = None) -> None:
        """Delete the positions of a topic, or of one partition of it.

        Raises GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC while members read the topic.
        """
        self._require(group_id)
        committed = [p for t, p, _ in self._groups.all_committed(group_id) if t == topic]
        wanted = [p for p in committed if partition in (None, p)]
        if not wanted:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Group {group_id!r} has no position in {topic}{'' if partition is None else f'-{partition}'}.",
                topic=topic,
            )
        results = await self._groups.delete_offsets(group_id, [(topic, p) for p in wanted])
        refused = next((error for error in results if error), None)
        if refused is not None:
            raise self._groups.refusal(refused, group_id)

    def _aim(self, address: TopicPartition, target: Target, before: int) -> int:
        bounds = self._broker.partitions.info(address).offsets
        if target.earliest:
            return self._broker.partitions.offset_for_time(address, EARLIEST).offset
        if target.latest:
            return self._broker.partitions.offset_for_time(address, LATEST).offset
        if target.time is not None:
            found = self._broker.partitions.offset_for_time(address, target.time).offset
            # Later than all records: what comes from now on.
            return found if found >= 0 else bounds.high_watermark
        wanted = target.offset if target.offset is not None else before + (target.shift or 0)
        return min(max(wanted, bounds.log_start_offset), bounds.high_watermark)

    def _bounds(self, address: TopicPartition) -> LogOffsets | None:
        try:
            return self._broker.partitions.info(address).offsets
        except BrokerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return None

    def _require(self, group_id: str) -> None:
        if self._groups.describe(group_id) is None:
            raise self._groups.refusal(ErrorCode.GROUP_ID_NOT_FOUND, group_id)

    def _require_empty(self, group_id: str) -> None:
        view = self._groups.describe(group_id)
        if view is not None and view.state != State.EMPTY:
            raise self._groups.refusal(ErrorCode.NON_EMPTY_GROUP, group_id)
