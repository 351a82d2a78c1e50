"""The committed offsets of all groups: commit, fetch, delete, cut back, expire.

A commit is checked against its group, stored, and only then visible and answered. So an offset that was ever returned
survives a crash. Commits of one partition become visible in the order in which they were checked.

In version 0, OffsetCommit and OffsetFetch keep offsets in ZooKeeper, separate from the group's. Here they are kept
beside the group's offsets, under topic names with a prefix that no topic can have (the *register*). So they expire
and are deleted with their group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.effects import GroupDeleted, OffsetsChange
from core.groups.interfaces import partition_count
from core.groups.offsets import expired
from core.groups.pending_offsets import PendingChange, Place, StagedOffset
from core.groups.registry import Entry, GroupRegistry
from core.types import TopicPartition
from core.vocabulary.groups import Commit, CommitRequest, CommittedOffset, Cut
from core.vocabulary.member_metadata import CONSUMER_PROTOCOL_TYPE

# Groups per turn of the event loop in `expire`: a few milliseconds when all have a hundred offsets.
EXPIRY_SLICE = 50
# Bytes of a stored offset in addition to its strings, for the limit on one commit.
_ROW_BYTES = 40
# The prefix of the register's topic names.
_REGISTER = "\0"


class OffsetStore:
    """Committed offsets of the groups of a registry. Used on the event loop only."""

    def __init__(self, registry: GroupRegistry, broker: Logs) -> None:
        self._registry = registry
        self._broker = broker
        self._monotonic = registry.clock.monotonic

    async def commit(self, group_id: str, request: CommitRequest) -> list[ErrorCode]:
        """Handle OffsetCommit: return an error for each commit, in their order, once the others are durable.

        A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION.
        """
        commits = request.commits
        unknown = self._unknown(commits, request.any_partition)
        known = [c for i, c in enumerate(commits) if i not in unknown] if unknown else commits
        if request.register:
            known = [*known, *_of_register(known)]
        results = await self.put(group_id, replace(request, commits=known))
        if not unknown:
            return results[: len(commits)]
        answers = iter(results)
        return [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if i in unknown else next(answers)
            for i in range(len(commits))
        ]

    async def put(self, group_id: str, request: CommitRequest) -> list[ErrorCode]:
        """Commit offsets without a check that the partitions exist; return as `commit`.

        A commit without a generation is that of a simple consumer or an admin tool. It makes the group if there is
        none, and is refused while the group has members. A commit with a generation to a group that does not exist is
        GROUP_ID_NOT_FOUND.
        """
        error = self._registry.closed
        entry = self._registry.get(group_id)
        if not error and entry is None:
            if request.generation >= 0:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            else:
                entry, error = self._registry.create(group_id)
        if not error and entry is not None:
            checked = entry.group.check_commit(request, self._monotonic())
            if isinstance(checked, list):
                taken = [c for c, refused in zip(request.commits, checked, strict=True) if not refused]
                answers = iter(await self._put(group_id, entry, taken, request.retention_ms))
                return [refused or next(answers) for refused in checked]
            error = checked
        if error or entry is None:
            return [error] * len(request.commits)
        return await self._put(group_id, entry, request.commits, request.retention_ms)

    async def _put(
        self, group_id: str, entry: Entry, commits: Sequence[Commit], retention_ms: int
    ) -> list[ErrorCode]:
        results, change = self._check(group_id, commits, retention_ms)
        if change.saved:
            self.supersede(change)
            error = await self._write(entry, change)
            if error:
                return [error if result is ErrorCode.NONE else result for result in results]
        return results

    async def put_by_hand(self, group_id: str, commits: Sequence[Commit]) -> list[ErrorCode]:
        """Commit offsets that an operator sets, also to the register where it has an offset; return as `put`.

        So clients of version 0 continue at the position that the operator has set.
        """
        also = [c for c in _of_register(commits) if self._find(group_id, c.topic, c.partition)]
        return (await self.put(group_id, CommitRequest([*commits, *also])))[: len(commits)]

    def get(
        self, group_id: str, topic: str, partition: int, *, register: bool = False
    ) -> CommittedOffset | None:
        """Return the committed offset of a partition, or None.

        With `register` (OffsetFetch v0) an offset of the register wins over the group's; a partition that does not
        exist then raises UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._registry.require_open()
        if register:
            if not 0 <= partition < partition_count(self._broker, topic):
                raise BrokerError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{partition}."
                )
            found = self._find(group_id, _REGISTER + topic, partition)
            if found is not None:
                return found
        return self._find(group_id, topic, partition)

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Iterate over (topic, partition, committed offset) of a group; none for a group that does not exist."""
        self._registry.require_open()
        entry = self._registry.get(group_id)
        offsets = iter(()) if entry is None else iter(entry.offsets)
        return (found for found in offsets if not found[0].startswith(_REGISTER))

    async def delete(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """Handle OffsetDelete (KIP-496): return an error for each of `partitions`, in their order.

        A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION, one that members read GROUP_SUBSCRIBED_TO_TOPIC.
        Raises GROUP_ID_NOT_FOUND, and NON_EMPTY_GROUP for a group with members that are not consumers.
        """
        known = [p for p in partitions if partition_count(self._broker, p[0])]
        results = await self._delete(group_id, known)
        register = [
            (_REGISTER + topic, partition)
            for (topic, partition), error in zip(known, results, strict=True)
            if not error and self._find(group_id, _REGISTER + topic, partition)
        ]
        if register:
            await self._delete(group_id, register)
        answers = iter(results)
        return [
            next(answers) if partition_count(self._broker, topic) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for topic, _ in partitions
        ]

    async def _delete(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        self._registry.require_name(group_id)
        entry = self._registry.get(group_id)
        if entry is None or entry.group.is_dead:
            raise BrokerError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {group_id!r}.", group=group_id
            )
        group = entry.group
        if not group.is_empty and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise BrokerError(
                ErrorCode.NON_EMPTY_GROUP,
                f"Group {group_id!r} has members of type {group.protocol_type!r}; stop them first.",
                group=group_id,
            )
        results = [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed(topic) else ErrorCode.NONE
            for topic, _ in partitions
        ]
        removed = [tp for tp, error in zip(partitions, results, strict=True) if error is ErrorCode.NONE]
        if removed:
            change = OffsetsChange(group_id, removed=removed)
            places = self._places(group_id, removed)
            if places:
                change.pending = PendingChange(self._registry.next_commit_seq(), dropped=places)
            error = await self._write(entry, change)
            if error:
                return [error if result is ErrorCode.NONE else result for result in results]
        return results

    async def forget_missing_topics(self) -> None:
        """Delete the offsets of all topics that do not exist, such as one deleted just before a crash."""
        topics = {topic for _, entry in self._registry for topic in entry.offsets.topics()}
        for topic in topics:
            if not partition_count(self._broker, topic.removeprefix(_REGISTER)):
                await self._forget(topic)
        await self._forget_pending()

    async def forget_topic(self, topic: str) -> None:
        """Delete the offsets of a deleted topic from all groups, so that a new topic of that name has none."""
        for name in (topic, _REGISTER + topic):
            await self._forget(name)
        await self._forget_pending()

    async def _forget(self, topic: str) -> None:
        for group_id, entry in self._registry:
            partitions = [(topic, partition) for partition in entry.offsets.topic(topic)]
            if partitions:
                await self._write(entry, OffsetsChange(group_id, removed=partitions))

    async def cut_back(self, ends: Mapping[TopicPartition, int]) -> list[Cut]:
        """Move committed offsets beyond these log end offsets back to them, durably, also register and staged ones.

        Return what was moved. Offsets of other partitions and the other fields of a commit do not change.
        Raises KAFKA_STORAGE_ERROR; the call may be repeated.
        """
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, partition), end in ends.items():
            by_topic.setdefault(topic, {})[partition] = end
        by_topic |= {_REGISTER + topic: known for topic, known in by_topic.items()}
        cuts: list[Cut] = []
        writes = []
        for group_id, entry in self._registry:
            saved = []
            for topic in entry.offsets.topics() & by_topic.keys():
                known = by_topic[topic]
                for partition, committed in entry.offsets.topic(topic).items():
                    end = known.get(partition, committed.offset)
                    if committed.offset > end:
                        saved.append((topic, partition, committed._replace(offset=end)))
                        name = topic.removeprefix(_REGISTER)
                        cuts.append(Cut(group_id, name, partition, committed.offset, end))
            staged = self._cut_pending(entry, by_topic)
            if saved or staged:
                # Numbers of their own: they are as old as before.
                pending = PendingChange(0, staged=staged) if staged else None
                writes.append(self._write(entry, OffsetsChange(group_id, saved, pending=pending)))
        if any(await asyncio.gather(*writes)):
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                "Committed offsets beyond the end of a log could not be moved back to it.",
            )
        return cuts

    async def expire(self) -> int:
        """Delete expired offsets and groups without members and offsets; return the number of offsets deleted.

        Run in slices, so that other tasks get their turn. A wall clock that jumps ahead expires nothing, because the
        time since the start is taken from the monotonic clock.
        """
        count = 0
        now_ms = min(self._registry.clock.wall_ms(), self._registry.started.wall_ms + self._running_ms())
        for index, (group_id, entry) in enumerate(self._registry):
            if index % EXPIRY_SLICE == EXPIRY_SLICE - 1:
                await asyncio.sleep(0)
            if self._registry.closed is not ErrorCode.NONE:
                break
            if entry.writing or self._registry.get(group_id) is not entry:
                continue
            removed = expired(entry.offsets, entry.group, now_ms, self._registry.config.offsets_retention_ms)
            if entry.pending:
                removed = [(t, p) for t, p in removed if not self._is_pending(entry, t, p)]
            if removed:
                if await self._write(entry, OffsetsChange(group_id, removed=removed)):
                    continue
                count += len(removed)
            if self._registry.get(group_id) is entry and self._registry.is_unused(entry):
                if entry.stored:
                    # The deletion is stored first; a join that arrives meanwhile is stored after it.
                    self._registry.persist([GroupDeleted(group_id)]).add_done_callback(_ignore)
                self._registry.forget(group_id)
        return count

    def _running_ms(self) -> int:
        return int((self._monotonic() - self._registry.started.monotonic) * 1000)

    def _find(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        entry = self._registry.get(group_id)
        return None if entry is None else entry.offsets.get(topic, partition)

    def _unknown(self, commits: Sequence[Commit], any_partition: bool) -> set[int]:
        """Return the indexes of the commits to partitions that do not exist. Looks a topic up once for neighbors."""
        unknown: set[int] = set()
        last, count = None, 0
        for index, commit in enumerate(commits):
            if commit.topic != last:
                last = commit.topic
                count = partition_count(self._broker, last)
            if not (count > 0 if any_partition else 0 <= commit.partition < count):
                unknown.add(index)
        return unknown

    def _check(
        self, group_id: str, commits: Sequence[Commit], retention_ms: int
    ) -> tuple[list[ErrorCode], OffsetsChange]:
        """Return the errors of the commits, and the change that stores the others."""
        now_ms = self._registry.clock.wall_ms()
        expire_ms = now_ms + retention_ms if retention_ms >= 0 else -1
        longest = self._registry.config.offset_metadata_max_bytes
        # A million of these a second: the tuple's constructor takes half the time of the class's.
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
        if size + (len(group_id) + _ROW_BYTES) * len(saved) > self._registry.config.offset_commit_max_bytes:
            return [r or ErrorCode.INVALID_COMMIT_OFFSET_SIZE for r in results], OffsetsChange(group_id)
        return results, OffsetsChange(group_id, saved)

    async def _write(self, entry: Entry, change: OffsetsChange) -> ErrorCode:
        return await self._registry.write(entry, change)

    # --- offsets that transactions have staged -----------------------------------------------------------------

    def check(self, group_id: str, commits: Sequence[Commit]) -> tuple[list[ErrorCode], OffsetsChange]:
        """Return the errors of the commits of a transaction, and the others as they would be stored."""
        unknown = self._unknown(commits, False)
        known = [c for i, c in enumerate(commits) if i not in unknown]
        results, change = self._check(group_id, known, -1)
        answers = iter(results)
        return [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if i in unknown else next(answers)
            for i in range(len(commits))
        ], change

    def supersede(self, change: OffsetsChange) -> None:
        """Have a commit win over what transactions have staged for its partitions. Store it in the same turn."""
        places = self._places(change.group_id, ((topic, partition) for topic, partition, _ in change.saved))
        if places:
            change.pending = PendingChange(self._registry.next_commit_seq(), superseded=places)

    def check_register(
        self, group_id: str, commits: Sequence[Commit]
    ) -> list[tuple[str, int, CommittedOffset]]:
        """Return what `put_by_hand` stores in the register with these commits."""
        also = [c for c in _of_register(commits) if self._find(group_id, c.topic, c.partition)]
        return self._check(group_id, also, -1)[1].saved if also else []

    def is_staged(self, entry: Entry, topic: str, partition: int) -> bool:
        """Return whether a transaction has staged an offset of the partition, or is about to."""
        return bool(entry.staging) or (bool(entry.pending) and self._is_pending(entry, topic, partition))

    def _places(self, group_id: str, partitions: Iterable[tuple[str, int]]) -> list[Place]:
        """Return those of the partitions that transactions may have staged offsets of."""
        entry = self._registry.get(group_id)
        if entry is None or not (entry.pending or entry.staging):
            return []
        return [
            Place(self._broker.topics.get(topic).topic_id, partition)
            for topic, partition in partitions
            if partition_count(self._broker, topic)
        ]

    async def _forget_pending(self) -> None:
        """Drop what was staged for topics that do not exist any more."""
        for group_id, entry in self._registry:
            deleted = [place for place in entry.pending.places() if self._is_deleted(place)]
            if deleted:
                change = PendingChange(self._registry.next_commit_seq(), dropped=deleted)
                await self._write(entry, OffsetsChange(group_id, pending=change))

    def _is_pending(self, entry: Entry, topic: str, partition: int) -> bool:
        return any(
            place in entry.pending for place in self._places(entry.group.group_id, [(topic, partition)])
        )

    def _cut_pending(self, entry: Entry, ends: Mapping[str, Mapping[int, int]]) -> list[StagedOffset]:
        """Return the staged offsets that are beyond the end of their log, moved back to it."""
        cut = []
        for staged in entry.pending:
            if not self._is_deleted(staged.place):
                known = ends.get(self._broker.topics.name_of(staged.place.topic_id), {})
                end = known.get(staged.place.partition, staged.pending.offset)
                if staged.pending.offset > end:
                    cut.append(staged._replace(pending=staged.pending._replace(offset=end)))
        return cut

    def _is_deleted(self, place: Place) -> bool:
        try:
            self._broker.topics.name_of(place.topic_id)
        except BrokerError:
            return True
        return False


def _of_register(commits: Iterable[Commit]) -> list[Commit]:
    return [one._replace(topic=_REGISTER + one.topic, metadata="") for one in commits]


def _ignore(saving: asyncio.Future[None]) -> None:
    """Ignore a failure: a group that was not deleted exists after a restart and is deleted by the next `expire`."""
    saving.exception()
