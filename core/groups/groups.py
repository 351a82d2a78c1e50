"""The verbs on groups that every door calls, as `broker.groups`.

The coordinator decides; here is what it cannot know: which topics exist, and the store. A TCP door hands in
what a member said and gets what the member hears; errors of members come back in the replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.assignor import decode, encode
from core.groups.coordinator import GroupCoordinator
from core.groups.http_members import GroupMembers
from core.groups.line_members import LineMembers
from core.groups.positions import GroupPositions
from core.groups.store import MetadataGroupStore
from core.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from core.metadata.store import Store
from core.types import TopicPartition
from core.vocabulary.groups import (
    NO_GENERATION,
    NO_MEMBER,
    NO_OFFSET,
    Commit,
    CommittedOffset,
    Cut,
    GroupListing,
    GroupView,
    JoinedMember,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveReply,
    MemberView,
    State,
    SyncReply,
    SyncRequest,
)

__all__ = [
    "NO_GENERATION",
    "NO_MEMBER",
    "NO_OFFSET",
    "Commit",
    "CommittedOffset",
    "GroupListing",
    "GroupView",
    "Groups",
    "JoinReply",
    "JoinRequest",
    "JoinedMember",
    "LeaveReply",
    "Leaver",
    "MemberView",
    "SyncReply",
    "SyncRequest",
    "assignment_of",
    "owned_partitions",
    "wanted_topics",
]


def wanted_topics(metadata: bytes) -> list[str] | None:
    """The topics in a consumer's metadata, for people; None if it is no consumer's."""
    found = subscribed_topics(CONSUMER_PROTOCOL_TYPE, (metadata,))
    return None if found is None else sorted(found)


def owned_partitions(assignment: bytes) -> list[TopicPartition]:
    """The partitions in a consumer's assignment, for people; none if it is no consumer's."""
    return sorted(decode(assignment))


def assignment_of(partitions: Iterable[TopicPartition]) -> bytes:
    """The assignment that says these partitions, as any consumer reads it."""
    return encode(partitions)


_SENTENCES = {
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no group {group!r}.",
    ErrorCode.NON_EMPTY_GROUP: "Group {group!r} has members; stop them first, or name one of them.",
    ErrorCode.UNKNOWN_MEMBER_ID: "Group {group!r} has no member {member!r}: it was never there, has left, or was not "
    "heard of for its session timeout. Join again without a member id.",
    ErrorCode.ILLEGAL_GENERATION: "This is not the present generation of group {group!r}; join again.",
    ErrorCode.REBALANCE_IN_PROGRESS: "Group {group!r} is rebalancing; join again with the same member id.",
    ErrorCode.FENCED_INSTANCE_ID: "The instance id has moved on to another member of group {group!r}; {member!r} is "
    "fenced.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "The members of group {group!r} have no protocol in common with this one.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "Group {group!r} is full.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Members of group {group!r} read this topic; stop them first.",
    ErrorCode.INVALID_GROUP_ID: "A group id must not be empty.",
    ErrorCode.INVALID_SESSION_TIMEOUT: "The session timeout is outside of the bounds that the broker sets.",
    ErrorCode.INVALID_REQUEST: "The metadata or the assignment of a member is larger than the broker takes.",
    ErrorCode.POLICY_VIOLATION: "There are too many groups already; delete some of them.",
}

# OffsetCommit and OffsetFetch v0 stood for offsets in ZooKeeper, a register apart. It is kept as topics of this
# prefix, which no real topic can have, so that it expires and goes with its group.
_REGISTER = "\0"


class Groups:
    """All groups of a broker, for every door."""

    def __init__(self, broker: Logs, store: Store) -> None:
        self._broker = broker
        self._topic = broker.topics.get
        loop = asyncio.get_running_loop()
        self.coordinator = GroupCoordinator(broker.config, broker.clock, loop, MetadataGroupStore(store))
        self.positions = GroupPositions(broker, self)
        # Nothing is to be added to these.
        self.join = self.coordinator.join
        self.sync = self.coordinator.sync
        self.heartbeat = self.coordinator.heartbeat
        self.leave = self.coordinator.leave
        self.describe = self.coordinator.describe
        self.list = self.coordinator.list
        self.delete = self.coordinator.delete
        self.members = GroupMembers(broker, self)
        self.lines = LineMembers(broker, self)

    async def open(self) -> None:
        """Take over what the last run left; members go on without rejoining.

        Offsets of a topic that was deleted just before a crash go now.
        """
        await self.coordinator.load()
        for topic in self.coordinator.committed_topics():
            if not self._exists(topic.removeprefix(_REGISTER), 0):
                await self.coordinator.forget_topic(topic)
        self.lines.open()

    async def cut_back(self, ends: Mapping[TopicPartition, int]) -> list[Cut]:
        """Move committed offsets beyond these ends of logs back to them, also those of v0; what was moved, durably.

        Raises KAFKA_STORAGE_ERROR; it may be tried again.
        """

        by_topic: dict[str, dict[int, int]] = {}
        for (topic, partition), end in ends.items():
            by_topic.setdefault(topic, {})[partition] = end
        by_topic |= {_REGISTER + topic: known for topic, known in by_topic.items()}
        cuts = await self.coordinator.cut_back(by_topic)
        return [cut._replace(topic=cut.topic.removeprefix(_REGISTER)) for cut in cuts]

    def drain(self) -> None:
        """Answer everybody who waits; nothing is served afterwards."""
        self.coordinator.drain()

    @property
    def closed(self) -> ErrorCode:
        """What every request hears before the groups are loaded and after the stop; NONE in between."""
        return self.coordinator.refusal("-")

    def before_sync(self, group_id: str) -> ErrorCode:
        """REBALANCE_IN_PROGRESS while the members wait for the leader's assignment, else NONE."""
        group = self.coordinator.group(group_id)
        if group is not None and group.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    async def expire(self) -> None:
        """Let offsets go whose time is over. To be called once in a while."""
        await self.coordinator.expire()

    async def topic_deleted(self, topic: str) -> None:
        """A topic is gone, and its offsets with it."""
        for name in (topic, _REGISTER + topic):
            await self.coordinator.forget_topic(name)

    def refusal(self, error: ErrorCode, group_id: str, member_id: str = NO_MEMBER) -> BrokerError:
        """The error of a member, as doors for people show it."""
        sentence = _SENTENCES.get(
            error, "The group coordinator does not serve group {group!r} now; try again."
        )
        message = sentence.format(group=group_id, member=member_id)
        return BrokerError(error, message, group=group_id)

    def owners(self, group_id: str) -> dict[TopicPartition, str]:
        """Which member owns which partition, while the group is stable."""
        view = self.describe(group_id)
        return {
            address: member.member_id
            for member in (view.members if view is not None else ())
            for address in decode(member.assignment)
        }

    # --- offsets -----------------------------------------------------------------------------------------------

    async def commit(
        self,
        group_id: str,
        commits: Sequence[Commit],
        *,
        member_id: str = NO_MEMBER,
        generation: int = NO_GENERATION,
        group_instance_id: str | None = None,
        retention_ms: int = -1,
        register: bool = False,
        any_partition: bool = False,
    ) -> list[ErrorCode]:
        """OffsetCommit: an error for each of `commits`, in their order, once the good ones are durable.

        A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION; with `any_partition` (v0–2) only a topic
        is. With `register` (v0) the offsets are kept in the register too, without metadata.
        """
        unknown = self._unknown(commits, any_partition)
        known = [c for i, c in enumerate(commits) if i not in unknown] if unknown else commits
        wanted = known
        if register:
            wanted = [*known, *(c._replace(topic=_REGISTER + c.topic, metadata="") for c in known)]
        results = await self.coordinator.commit(
            group_id,
            wanted,
            member_id=member_id,
            generation=generation,
            group_instance_id=group_instance_id,
            retention_ms=retention_ms,
        )
        if not unknown:
            return results[: len(commits)] if register else results
        answers = iter(results)
        return [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if i in unknown else next(answers)
            for i in range(len(commits))
        ]

    def committed(
        self, group_id: str, topic: str, partition: int, *, register: bool = False
    ) -> CommittedOffset | None:
        """The committed offset of a partition; None where there is none.

        With `register` (OffsetFetch v0) the register counts where it holds something; a partition that does not
        exist raises UNKNOWN_TOPIC_OR_PARTITION then.
        """
        self.coordinator.require_open()
        if register:
            if not self._exists(topic, partition):
                raise BrokerError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{partition}."
                )
            found = self.coordinator.committed(group_id, _REGISTER + topic, partition)
            if found is not None:
                return found
        return self.coordinator.committed(group_id, topic, partition)

    def all_committed(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """(topic, partition, committed offset) of a group; nothing for a group that is not there."""
        self.coordinator.require_open()
        return (
            found for found in self.coordinator.all_committed(group_id) if not found[0].startswith(_REGISTER)
        )

    def register_follows(self, group_id: str, commits: Sequence[Commit]) -> list[Commit]:
        """What must change in the register too, so that clients of v0 go by a position that was set by hand."""
        moved = [c._replace(topic=_REGISTER + c.topic, metadata="") for c in commits]
        return [c for c in moved if self.coordinator.committed(group_id, c.topic, c.partition)]

    async def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """OffsetDelete: an error for each of `partitions`, in their order.

        A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION. Raises as the coordinator does.
        """
        known = [p for p in partitions if self._exists(p[0], 0)]
        results = await self.coordinator.delete_offsets(group_id, known)
        register = [
            (_REGISTER + topic, partition)
            for (topic, partition), error in zip(known, results, strict=True)
            if not error and self.coordinator.committed(group_id, _REGISTER + topic, partition)
        ]
        if register:
            await self.coordinator.delete_offsets(group_id, register)
        answers = iter(results)
        return [
            next(answers) if self._exists(topic, 0) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for topic, _ in partitions
        ]

    def _unknown(self, commits: Sequence[Commit], any_partition: bool) -> set[int]:
        """Which of `commits`, by index, name a partition that does not exist. Neighbours share their topic."""
        unknown: set[int] = set()
        last, count = None, 0
        for index, commit in enumerate(commits):
            if commit.topic != last:
                last = commit.topic
                count = self._partitions(last)
            if not (count > 0 if any_partition else 0 <= commit.partition < count):
                unknown.add(index)
        return unknown

    def _partitions(self, topic: str) -> int:
        try:
            return self._topic(topic).partitions
        except BrokerError:
            return 0

    def _exists(self, topic: str, partition: int) -> bool:
        return 0 <= partition < self._partitions(topic)
