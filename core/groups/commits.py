"""Committed offsets of all groups: commit, fetch, delete, expire.

A commit is judged against the group as it is, stored, and only then seen and answered: an offset that anybody
has been shown survives a crash. Commits of one partition are seen in the order in which they were judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from core.errors import BrokerError, ErrorCode
from core.groups.interfaces import GroupDeleted
from core.groups.offsets import OffsetsChange, expired
from core.groups.registry import Entry, GroupRegistry
from core.groups.subscription import CONSUMER_PROTOCOL_TYPE
from core.vocabulary.groups import NO_GENERATION, NO_MEMBER, Commit, CommittedOffset, Cut, State

# Groups looked at in one turn of the loop by the expiry: a few milliseconds when all have a hundred offsets.
EXPIRY_SLICE = 50
# What a stored offset takes beside its texts, for the limit on one commit.
_ROW_BYTES = 40


class OffsetVerbs(GroupRegistry):
    """What can be done with committed offsets."""

    async def commit(
        self,
        group_id: str,
        commits: Sequence[Commit],
        *,
        member_id: str = NO_MEMBER,
        generation: int = NO_GENERATION,
        group_instance_id: str | None = None,
        retention_ms: int = -1,
    ) -> list[ErrorCode]:
        """OffsetCommit: an error for each of `commits`, in their order, once the good ones are durable.

        Without a generation it is the commit of a simple consumer or an admin tool: it makes the group if need
        be, and is refused while the group has members. A group that is not there and a generation do not go
        together: GROUP_ID_NOT_FOUND. `retention_ms` (v2–v4) is −1 for the broker's own.
        """
        error = self._closed
        entry = self._entries.get(group_id)
        if not error and entry is None:
            if generation >= 0:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            else:
                entry, error = self._create(group_id)
        if not error and entry is not None:
            error = entry.group.check_commit(member_id, generation, self._monotonic(), group_instance_id)
        if error or entry is None:
            return [error] * len(commits)
        results, change = self._judge(group_id, commits, retention_ms)
        if change.saved:
            error = await self._write(entry, change)
            if error:
                return [error if result is ErrorCode.NONE else result for result in results]
        return results

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The committed offset of a partition; None where there is none, also for a group that is not there."""
        entry = self._entries.get(group_id)
        return None if entry is None else entry.offsets.get(topic, partition)

    def all_committed(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """All committed offsets of a group; none for a group that is not there."""
        entry = self._entries.get(group_id)
        return iter(()) if entry is None else iter(entry.offsets)

    async def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """OffsetDelete (KIP-496): an error for each of `partitions`, in their order.

        Raises GROUP_ID_NOT_FOUND, and NON_EMPTY_GROUP for a group with members that are no consumers. A topic
        that members read is GROUP_SUBSCRIBED_TO_TOPIC.
        """
        self.require_name(group_id)
        entry = self._entries.get(group_id)
        if entry is None or entry.group.state is State.DEAD:
            raise BrokerError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {group_id!r}.", group=group_id
            )
        group = entry.group
        if group.state is not State.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise BrokerError(
                ErrorCode.NON_EMPTY_GROUP,
                f"Group {group_id!r} has members of type {group.protocol_type!r}; stop them first.",
                group=group_id,
            )
        results = [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed(topic) else ErrorCode.NONE
            for topic, _ in partitions
        ]
        removed = [
            address for address, error in zip(partitions, results, strict=True) if error is ErrorCode.NONE
        ]
        if removed:
            error = await self._write(entry, OffsetsChange(group_id, removed=removed))
            if error:
                return [error if result is ErrorCode.NONE else result for result in results]
        return results

    def committed_topics(self) -> set[str]:
        """All topics for which any group has committed offsets."""
        return {topic for entry in self._entries.values() for topic in entry.offsets.topics()}

    async def forget_topic(self, topic: str) -> None:
        """A topic has been deleted: its offsets go from all groups, lest a new topic of that name inherit them."""
        for group_id, entry in list(self._entries.items()):
            partitions = [(topic, partition) for partition in entry.offsets.topic(topic)]
            if partitions:
                await self._write(entry, OffsetsChange(group_id, removed=partitions))

    async def cut_back(self, ends: Mapping[str, Mapping[int, int]]) -> list[Cut]:
        """Move committed offsets that lie beyond the end of their log back to the end, durably; what was moved.

        `ends` are the ends of logs by topic and partition; others stay. The rest of a commit stays as it is.
        Raises KAFKA_STORAGE_ERROR; it may be tried again.
        """
        cuts: list[Cut] = []
        writes = []
        for group_id, entry in self._entries.items():
            saved = []
            for topic in entry.offsets.topics() & ends.keys():
                known = ends[topic]
                for partition, committed in entry.offsets.topic(topic).items():
                    end = known.get(partition, committed.offset)
                    if committed.offset > end:
                        saved.append((topic, partition, committed._replace(offset=end)))
                        cuts.append(Cut(group_id, topic, partition, committed.offset, end))
            if saved:
                writes.append(self._write(entry, OffsetsChange(group_id, saved)))
        if any(await asyncio.gather(*writes)):
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                "Committed offsets beyond the end of a log could not be moved back to it.",
            )
        return cuts

    async def expire(self) -> int:
        """Let offsets expire whose time is over, and groups that hold nothing any more; how many offsets went.

        Runs in slices, so that others get their turn. A wall clock that jumps ahead expires nothing: since the
        start no more time can have passed than the monotonic clock says.
        """
        count = 0
        now_ms = min(self._clock.wall_ms(), self._started.wall_ms + self._running_ms())
        for index, (group_id, entry) in enumerate(list(self._entries.items())):
            if index % EXPIRY_SLICE == EXPIRY_SLICE - 1:
                await asyncio.sleep(0)
            if self._closed is not ErrorCode.NONE:
                break
            if entry.writing or self._entries.get(group_id) is not entry:
                continue
            gone = expired(entry.offsets, entry.group, now_ms, self._config.offsets_retention_ms)
            if gone:
                if await self._write(entry, OffsetsChange(group_id, removed=gone)):
                    continue
                count += len(gone)
            if self._entries.get(group_id) is entry and self._is_unused(entry):
                if entry.stored:
                    # The row goes first; a join that comes meanwhile is stored after it.
                    self._persist([GroupDeleted(group_id)]).add_done_callback(_ignore)
                self._forget(group_id)
        return count

    def _running_ms(self) -> int:
        return int((self._monotonic() - self._started.monotonic) * 1000)

    def _judge(
        self, group_id: str, commits: Sequence[Commit], retention_ms: int
    ) -> tuple[list[ErrorCode], OffsetsChange]:
        """Which of the offsets may be kept, and as what."""
        now_ms = self._clock.wall_ms()
        expire_ms = now_ms + retention_ms if retention_ms >= 0 else -1
        longest = self._config.offset_metadata_max_bytes
        # A million of these a second: the tuple's own constructor is half the cost of the class's.
        new, kind = tuple.__new__, CommittedOffset
        results = [ErrorCode.NONE] * len(commits)
        saved: list[tuple[str, int, CommittedOffset]] = []
        size = 0
        for index, (topic, partition, offset, leader_epoch, metadata, commit_ms) in enumerate(commits):
            if metadata:
                if len(metadata) > longest:
                    results[index] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                    continue
                size += len(metadata)
            size += len(topic)
            when = now_ms if commit_ms < 0 else commit_ms
            saved.append(
                (topic, partition, new(kind, (offset, leader_epoch, metadata or "", when, expire_ms)))
            )
        if size + (len(group_id) + _ROW_BYTES) * len(saved) > self._config.offset_commit_max_bytes:
            return [r or ErrorCode.INVALID_COMMIT_OFFSET_SIZE for r in results], OffsetsChange(group_id)
        return results, OffsetsChange(group_id, saved)

    async def _write(self, entry: Entry, change: OffsetsChange) -> ErrorCode:
        """Store a change of offsets; it is seen once it is durable, whether the caller still waits or not."""
        waiter: asyncio.Future[ErrorCode] = self._loop.create_future()
        entry.writing += 1
        entry.stored = True
        self._persist([change]).add_done_callback(partial(_written, entry, change, waiter))
        return await waiter


def _written(
    entry: Entry, change: OffsetsChange, waiter: asyncio.Future[ErrorCode], saving: asyncio.Future[None]
) -> None:
    entry.writing -= 1
    error = ErrorCode.NONE
    if saving.exception() is not None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    else:
        entry.offsets.apply(change)
    if not waiter.done():
        waiter.set_result(error)


def _ignore(saving: asyncio.Future[None]) -> None:
    """A group that could not be deleted is there again after a restart, and goes at the next expiry."""
    saving.exception()
