"""Groups and managed consumers of the facade as one caller may use them. See `core.security.guarded`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from core import facade
from core.errors import BrokerError, ErrorCode
from core.security.acl import Operation, ResourceType
from core.security.authorizer import Rights
from core.security.meter import Meter
from core.types import TopicPartition
from core.vocabulary.consumer_groups import (
    ConsumerGroupView,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    MemberKind,
)
from core.vocabulary.consumers import (
    EARLIEST,
    Acknowledged,
    Batch,
    ConsumerInfo,
    ConsumerOptions,
    PartitionCommit,
    PartitionPosition,
    Seek,
    Subscription,
)
from core.vocabulary.foreign_groups import ForeignGroups
from core.vocabulary.group_calls import GroupPositions, Groups, HttpMembers
from core.vocabulary.groups import (
    NO_MEMBER,
    CommitRequest,
    CommittedOffset,
    GroupListing,
    GroupView,
    Joining,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveReply,
    LineAssignment,
    PartitionLag,
    Reset,
    SyncReply,
    SyncRequest,
    Target,
    TransactionalCommit,
)
from core.vocabulary.line_members import LineMembers
from core.vocabulary.settlements import Fault, OffsetToSettle, RefusedError, StagedAck
from core.vocabulary.share_groups import ShareGroups, ShareGroupView, ShareHeartbeat, ShareReply
from core.vocabulary.transactions import Settlement

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
_READ, _DESCRIBE, _DELETE = Operation.READ, Operation.DESCRIBE, Operation.DELETE
_GROUP_DENIED, _TOPIC_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED


def visible_foreign_groups(groups: ForeignGroups, rights: Rights) -> ForeignGroups:
    """Return the foreign groups that may be described."""
    if rights.unlimited:
        return groups
    seen = ForeignGroups()
    seen.replace(one for one in groups.list() if rights.may(_DESCRIBE, _GROUP, one.group_id))
    return seen


class GuardedGroups:
    """`Facade.groups` for one caller. An error of a member is in the reply, as the broker's own."""

    def __init__(self, groups: Groups, rights: Rights) -> None:
        self._groups = groups
        self._rights = rights

    @property
    def positions(self) -> GroupPositions:
        """See `Groups.positions`."""
        return GuardedPositions(self._groups, self._rights)

    @property
    def members(self) -> HttpMembers:
        """See `Groups.members`."""
        return GuardedHttpMembers(self._groups.members, self._rights)

    @property
    def lines(self) -> LineMembers:
        """See `Groups.lines`."""
        return GuardedLineMembers(self._groups.lines, self._rights)

    @property
    def closed(self) -> ErrorCode:
        """See `Groups.closed`."""
        return self._groups.closed

    async def join(self, group_id: str, request: JoinRequest) -> JoinReply:
        """See `Groups.join`: needs READ on the group, also at the end of the round. Topics are not looked at."""
        if self._denied(group_id):
            return JoinReply(_GROUP_DENIED, "")
        reply = await self._groups.join(group_id, request)
        return JoinReply(_GROUP_DENIED, "") if self._denied(group_id) else reply

    async def sync(self, group_id: str, request: SyncRequest) -> SyncReply:
        """See `Groups.sync`: needs READ on the group, also when the assignment is there."""
        if self._denied(group_id):
            return SyncReply(_GROUP_DENIED)
        reply = await self._groups.sync(group_id, request)
        return SyncReply(_GROUP_DENIED) if self._denied(group_id) else reply

    def heartbeat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        """See `Groups.heartbeat`: needs READ on the group."""
        if self._denied(group_id):
            return _GROUP_DENIED
        return self._groups.heartbeat(group_id, member_id, generation, group_instance_id)

    @property
    def shares(self) -> ShareGroups:
        """See `Groups.shares`."""
        return GuardedShareGroups(self._groups.shares, self._rights)

    async def consumer_heartbeat(self, group_id: str, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        """See `Groups.consumer_heartbeat`: needs READ on the group, also when the answer is durable.

        Topics that the request names need DESCRIBE; a pattern never names a topic that may not be described.
        """
        if self._denied(group_id):
            return ConsumerHeartbeatReply(_GROUP_DENIED)
        if not self._rights.unlimited:
            request = replace(request, may_describe=self._may_describe)
            denied = [topic for topic in request.topics or () if not self._may_describe(topic)]
            for topic in denied:
                self._rights.refusal(_DESCRIBE, _TOPIC, topic)
            if denied:
                return ConsumerHeartbeatReply(_TOPIC_DENIED)
        reply = await self._groups.consumer_heartbeat(group_id, request)
        return ConsumerHeartbeatReply(_GROUP_DENIED) if self._denied(group_id) else reply

    def _may_describe(self, topic: str) -> bool:
        return self._rights.may(_DESCRIBE, _TOPIC, topic)

    def describe_consumer(self, group_id: str) -> ConsumerGroupView | None:
        """See `Groups.describe_consumer`: needs DESCRIBE on the group, and on all topics that it shows."""
        self._rights.require(_DESCRIBE, _GROUP, group_id)
        view = self._groups.describe_consumer(group_id)
        if view is not None:
            for topic in {name for member in view.members for name in member.all_topics()}:
                self._rights.require(_DESCRIBE, _TOPIC, topic)
        return view

    def member_kind(self, group_id: str, member_id: str) -> MemberKind | None:
        """See `Groups.member_kind`: needs READ on the group."""
        self._rights.require(_READ, _GROUP, group_id)
        return self._groups.member_kind(group_id, member_id)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """See `Groups.check_fetch`: needs DESCRIBE on the group."""
        self._rights.require(_DESCRIBE, _GROUP, group_id)
        return self._groups.check_fetch(group_id, member_id, member_epoch)

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> list[LeaveReply]:
        """See `Groups.leave`: needs READ on the group."""
        self._rights.require(_READ, _GROUP, group_id)
        return await self._groups.leave(group_id, leavers)

    def describe(self, group_id: str) -> GroupView | None:
        """See `Groups.describe`: needs DESCRIBE on the group."""
        self._rights.require(_DESCRIBE, _GROUP, group_id)
        return self._groups.describe(group_id)

    async def delete(self, group_id: str) -> None:
        """See `Groups.delete`: needs DELETE on the group."""
        self._rights.require(_DELETE, _GROUP, group_id)
        await self._groups.delete(group_id)

    def before_sync(self, group_id: str) -> ErrorCode:
        """See `Groups.before_sync`: needs READ on the group."""
        return _GROUP_DENIED if self._denied(group_id) else self._groups.before_sync(group_id)

    def refusal(self, error: ErrorCode, group_id: str, member_id: str = NO_MEMBER) -> BrokerError:
        """See `Groups.refusal`."""
        return self._groups.refusal(error, group_id, member_id)

    async def commit(self, group_id: str, request: CommitRequest) -> list[ErrorCode]:
        """See `Groups.commit`: needs READ on the group, and READ on each topic; the others have the error."""
        commits = request.commits
        if self._denied(group_id):
            return [_GROUP_DENIED] * len(commits)
        denied = _unreadable(self._rights, (one.topic for one in commits))
        if not denied:
            return await self._groups.commit(group_id, request)
        allowed = [one for one in commits if one.topic not in denied]
        if not allowed:
            return [_TOPIC_DENIED] * len(commits)
        left = iter(await self._groups.commit(group_id, replace(request, commits=allowed)))
        return [_TOPIC_DENIED if one.topic in denied else next(left) for one in commits]

    def committed(
        self, group_id: str, topic: str, partition: int, *, register: bool = False
    ) -> CommittedOffset | None:
        """See `Groups.committed`: needs DESCRIBE on the group and on the topic."""
        self._rights.require(_DESCRIBE, _GROUP, group_id)
        self._rights.require(_DESCRIBE, _TOPIC, topic)
        return self._groups.committed(group_id, topic, partition, register=register)

    def all_committed(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """See `Groups.all_committed`: needs DESCRIBE on the group; topics that it may not describe are left out."""
        self._rights.require(_DESCRIBE, _GROUP, group_id)
        may = self._rights.may
        return (one for one in self._groups.all_committed(group_id) if may(_DESCRIBE, _TOPIC, one[0]))

    async def stage_transactional(self, group_id: str, request: TransactionalCommit) -> list[ErrorCode]:
        """See `Groups.stage_transactional`: needs WRITE on the transactional id, and READ as `commit` does."""
        commits = request.commit.commits
        if not self._rights.may(Operation.WRITE, _TRANSACTIONAL_ID, request.transactional_id):
            self._rights.refusal(Operation.WRITE, _TRANSACTIONAL_ID, request.transactional_id)
            return [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * len(commits)
        if self._denied(group_id):
            return [_GROUP_DENIED] * len(commits)
        denied = _unreadable(self._rights, (one.topic for one in commits))
        allowed = [one for one in commits if one.topic not in denied]
        if denied and not allowed:
            return [_TOPIC_DENIED] * len(commits)
        request = replace(request, commit=replace(request.commit, commits=allowed))
        left = iter(await self._groups.stage_transactional(group_id, request))
        return [_TOPIC_DENIED if one.topic in denied else next(left) for one in commits]

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """See `Groups.is_unstable`: needs DESCRIBE on the group and on the topic."""
        self._rights.require(_DESCRIBE, _GROUP, group_id)
        self._rights.require(_DESCRIBE, _TOPIC, topic)
        return self._groups.is_unstable(group_id, topic, partition)

    def settle_offsets(self, offsets: Sequence[OffsetToSettle]) -> Settlement:
        """See `Groups.settle_offsets`: needs READ on each group and each topic."""
        if not self._rights.unlimited:
            faults = []
            for index, one in enumerate(offsets):
                try:
                    _require_reading(self._rights, one.group_id, (one.topic,))
                except BrokerError as error:
                    faults.append(Fault((index,), error))
            if faults:
                raise RefusedError(faults)
        return self._groups.settle_offsets(offsets)

    async def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """See `Groups.delete_offsets`: needs DELETE on the group, and READ on each topic."""
        self._rights.require(_DELETE, _GROUP, group_id)
        denied = _unreadable(self._rights, (topic for topic, _ in partitions))
        allowed = [one for one in partitions if one[0] not in denied]
        if denied and not allowed:
            return [_TOPIC_DENIED] * len(partitions)
        left = iter(await self._groups.delete_offsets(group_id, allowed))
        return [_TOPIC_DENIED if topic in denied else next(left) for topic, _ in partitions]

    def _denied(self, group_id: str) -> bool:
        """Whether the caller may not READ the group."""
        if self._rights.may(_READ, _GROUP, group_id):
            return False
        self._rights.refusal(_READ, _GROUP, group_id)
        return True

    # Last, because annotations after it would mean this method.
    def list(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """See `Groups.list`: with DESCRIBE on the cluster all, else those with DESCRIBE on the group."""
        groups = self._groups.list(states, types)
        if self._rights.may(_DESCRIBE, _CLUSTER):
            return groups
        return [one for one in groups if self._rights.may(_DESCRIBE, _GROUP, one.group_id)]


class GuardedShareGroups:
    """`Facade.groups.shares` for one caller."""

    def __init__(self, shares: ShareGroups, rights: Rights) -> None:
        self._shares = shares
        self._rights = rights

    async def heartbeat(self, group_id: str, request: ShareHeartbeat) -> ShareReply:
        """See `ShareGroups.heartbeat`: needs READ on the group, also at the end, and DESCRIBE on the topics."""
        if (denied := self._rights.denial(_READ, _GROUP, group_id)) is not None:
            return ShareReply(denied.code, message=denied.message)
        for topic in request.topics or ():
            if (denied := self._rights.denial(_DESCRIBE, _TOPIC, topic)) is not None:
                return ShareReply(denied.code, message=denied.message)
        reply = await self._shares.heartbeat(group_id, request)
        if (denied := self._rights.denial(_READ, _GROUP, group_id)) is not None:
            return ShareReply(denied.code, message=denied.message)
        return reply

    def describe(self, group_id: str) -> ShareGroupView | None:
        """See `ShareGroups.describe`: needs DESCRIBE on the group, and on all topics that it shows."""
        self._rights.require(_DESCRIBE, _GROUP, group_id)
        view = self._shares.describe(group_id)
        if view is not None and not self._rights.unlimited:
            for topic in {name for member in view.members for name in member.topics}:
                self._rights.require(_DESCRIBE, _TOPIC, topic)
        return view


class GuardedPositions:
    """`Facade.groups.positions` for one caller."""

    def __init__(self, groups: Groups, rights: Rights) -> None:
        self._groups = groups
        self._rights = rights

    def lag(self, group_id: str) -> list[PartitionLag]:
        """See `GroupPositions.lag`: needs DESCRIBE on the group; topics that it may not describe are left out."""
        self._rights.require(_DESCRIBE, _GROUP, group_id)
        may = self._rights.may
        return [one for one in self._groups.positions.lag(group_id) if may(_DESCRIBE, _TOPIC, one.topic)]

    async def set(self, group_id: str, request: CommitRequest) -> None:
        """See `GroupPositions.set`: needs READ on the group and on each topic."""
        _require_reading(self._rights, group_id, (one.topic for one in request.commits))
        await self._groups.positions.set(group_id, request)

    async def reset(
        self, group_id: str, target: Target, topics: Iterable[str] = (), *, dry_run: bool = False
    ) -> list[Reset]:
        """See `GroupPositions.reset`: needs READ on the group and on each topic that is moved."""
        named = list(topics)
        moved = named or {topic for topic, _, _ in self._groups.all_committed(group_id)}
        _require_reading(self._rights, group_id, moved)
        return await self._groups.positions.reset(group_id, target, named, dry_run=dry_run)

    async def forget(self, group_id: str, topic: str, partition: int | None = None) -> None:
        """See `GroupPositions.forget`: needs DELETE on the group and READ on the topic."""
        self._rights.require(_DELETE, _GROUP, group_id)
        self._rights.require(_READ, _TOPIC, topic)
        await self._groups.positions.forget(group_id, topic, partition)


class GuardedHttpMembers:
    """`Facade.groups.members` for one caller: READ on the group; on the topics where the broker assigns them."""

    def __init__(self, members: HttpMembers, rights: Rights) -> None:
        self._members = members
        self._rights = rights

    async def join(
        self, group_id: str, request: JoinRequest, *, wait_ms: int, leads: bool = False
    ) -> Joining:
        """See `HttpMembers.join`."""
        self._rights.require(_READ, _GROUP, group_id)
        joining = await self._members.join(group_id, request, wait_ms=wait_ms, leads=leads)
        self._rights.require(_READ, _GROUP, group_id)
        return joining

    async def join_topics(
        self, group_id: str, request: JoinRequest, topics: Sequence[str], *, wait_ms: int, assignor: str = ""
    ) -> Joining:
        """See `HttpMembers.join_topics`."""
        _require_reading(self._rights, group_id, topics)
        joining = await self._members.join_topics(
            group_id, request, topics, wait_ms=wait_ms, assignor=assignor
        )
        _require_reading(self._rights, group_id, topics)
        return joining

    async def sync(self, group_id: str, request: SyncRequest, *, wait_ms: int) -> SyncReply | None:
        """See `HttpMembers.sync`."""
        self._rights.require(_READ, _GROUP, group_id)
        reply = await self._members.sync(group_id, request, wait_ms=wait_ms)
        self._rights.require(_READ, _GROUP, group_id)
        return reply

    async def heartbeat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> None:
        """See `HttpMembers.heartbeat`."""
        self._rights.require(_READ, _GROUP, group_id)
        await self._members.heartbeat(group_id, member_id, generation, group_instance_id)

    async def leave(self, group_id: str, member_id: str, group_instance_id: str | None = None) -> None:
        """See `HttpMembers.leave`."""
        self._rights.require(_READ, _GROUP, group_id)
        await self._members.leave(group_id, member_id, group_instance_id)


class GuardedLineMembers:
    """`Facade.groups.lines` for one caller: READ on the group and on the topic."""

    def __init__(self, lines: LineMembers, rights: Rights) -> None:
        self._lines = lines
        self._rights = rights

    async def join(
        self, group_id: str, topic: str, member_id: str, assignor: str = "", host: str = ""
    ) -> LineAssignment:
        """See `LineMembers.join`."""
        _require_reading(self._rights, group_id, (topic,))
        given = await self._lines.join(group_id, topic, member_id, assignor, host)
        _require_reading(self._rights, group_id, (topic,))
        return given

    async def sync(self, group_id: str, topic: str, member_id: str, generation: int) -> LineAssignment:
        """See `LineMembers.sync`."""
        _require_reading(self._rights, group_id, (topic,))
        return await self._lines.sync(group_id, topic, member_id, generation)

    def heartbeat(self, group_id: str, topic: str, member_id: str, generation: int) -> None:
        """See `LineMembers.heartbeat`."""
        _require_reading(self._rights, group_id, (topic,))
        self._lines.heartbeat(group_id, topic, member_id, generation)

    async def leave(self, group_id: str, topic: str, member_id: str, generation: int) -> None:
        """See `LineMembers.leave`."""
        _require_reading(self._rights, group_id, (topic,))
        await self._lines.leave(group_id, topic, member_id, generation)

    async def commit(
        self, group_id: str, topic: str, member_id: str, generation: int, partition: int, offset: int
    ) -> None:
        """See `LineMembers.commit`."""
        _require_reading(self._rights, group_id, (topic,))
        await self._lines.commit(group_id, topic, member_id, generation, partition, offset)

    def committed(self, group_id: str, topic: str, partition: int) -> int:
        """See `LineMembers.committed`: needs DESCRIBE on both."""
        self._rights.require(_DESCRIBE, _GROUP, group_id)
        self._rights.require(_DESCRIBE, _TOPIC, topic)
        return self._lines.committed(group_id, topic, partition)

    async def take_over(
        self, group_id: str, topic: str, generation: int, assignor: str, members: Mapping[str, Sequence[int]]
    ) -> bool:
        """See `LineMembers.take_over`: needs ALTER on the cluster."""
        self._rights.require(Operation.ALTER, _CLUSTER)
        return await self._lines.take_over(group_id, topic, generation, assignor, members)


class GuardedConsumers:
    """`Facade.consumers` for one caller: READ on the group, and on the topics that a call reads or names.

    To look at a consumer needs DESCRIBE on the group.
    """

    def __init__(self, consumers: facade.Consumers, rights: Rights, meter: Meter) -> None:
        self._consumers = consumers
        self._rights = rights
        self._meter = meter

    async def create(
        self,
        group_id: str,
        name: str | None = None,
        *,
        subscription: Subscription = Subscription(),  # noqa: B008 - immutable
        options: ConsumerOptions = ConsumerOptions(),  # noqa: B008 - immutable
    ) -> ConsumerInfo:
        """See `Consumers.create`."""
        named = [*subscription.topics, *(tp.topic for tp in subscription.assignments)]
        _require_reading(self._rights, group_id, named)
        return await self._consumers.create(group_id, name, subscription=subscription, options=options)

    def get(self, group_id: str, name: str) -> ConsumerInfo:
        """See `Consumers.get`."""
        self._rights.require(_DESCRIBE, _GROUP, group_id)
        return self._consumers.get(group_id, name)

    def of_group(self, group_id: str) -> list[ConsumerInfo]:
        """See `Consumers.of_group`."""
        self._rights.require(_DESCRIBE, _GROUP, group_id)
        return self._consumers.of_group(group_id)

    async def delete(self, group_id: str, name: str) -> None:
        """See `Consumers.delete`."""
        self._rights.require(_READ, _GROUP, group_id)
        await self._consumers.delete(group_id, name)

    async def subscribe(
        self, group_id: str, name: str, *, topics: Sequence[str] = (), pattern: str | None = None
    ) -> None:
        """See `Consumers.subscribe`."""
        _require_reading(self._rights, group_id, topics)
        await self._consumers.subscribe(group_id, name, topics=topics, pattern=pattern)

    async def assign(self, group_id: str, name: str, partitions: Sequence[TopicPartition]) -> None:
        """See `Consumers.assign`."""
        _require_reading(self._rights, group_id, (tp.topic for tp in partitions))
        await self._consumers.assign(group_id, name, partitions)

    async def unsubscribe(self, group_id: str, name: str) -> None:
        """See `Consumers.unsubscribe`."""
        self._rights.require(_READ, _GROUP, group_id)
        await self._consumers.unsubscribe(group_id, name)

    def subscribed_topics(self, group_id: str, name: str) -> tuple[str, ...]:
        """See `Consumers.subscribed_topics`: those that may be described."""
        self._rights.require(_DESCRIBE, _GROUP, group_id)
        found = self._consumers.subscribed_topics(group_id, name)
        return tuple(topic for topic in found if self._rights.may(_DESCRIBE, _TOPIC, topic))

    async def poll(
        self,
        group_id: str,
        name: str,
        *,
        limit: int,
        max_bytes: int,
        wait_ms: int,
        min_bytes: int = 1,
        ack: str | None = None,
        advance: bool = False,
    ) -> Batch:
        """See `Consumers.poll`: needs READ on all topics that the consumer reads, by names or by a pattern."""
        self._require_polling(group_id, name)
        batch = await self._consumers.poll(
            group_id,
            name,
            limit=limit,
            max_bytes=self._meter.readable(max_bytes),
            wait_ms=wait_ms,
            min_bytes=min_bytes,
            ack=ack,
            advance=advance,
        )
        # A batch that may not be seen stays outstanding, and is delivered once it may be.
        try:
            _require_reading(self._rights, group_id, (tp.topic for tp, _ in batch.records))
        except BrokerError:
            if advance:
                self._consumers.take_back(group_id, name, batch.token)
            raise
        for _, records in batch.records:
            self._meter.read(records)
        return batch

    def _require_polling(self, group_id: str, name: str) -> None:
        self._rights.require(_READ, _GROUP, group_id)
        if self._rights.unlimited:
            return
        info = self._consumers.get(group_id, name)
        named = [tp.topic for tp in info.subscription.assignments]
        if info.subscription.joins:
            named += self._consumers.subscribed_topics(group_id, name)
        _require_reading(self._rights, group_id, named)

    def take_back(self, group_id: str, name: str, token: str | None) -> None:
        """See `Consumers.take_back`."""
        self._rights.require(_READ, _GROUP, group_id)
        self._consumers.take_back(group_id, name, token)

    async def ack(self, group_id: str, name: str, token: str) -> Acknowledged:
        """See `Consumers.ack`."""
        self._rights.require(_READ, _GROUP, group_id)
        return await self._consumers.ack(group_id, name, token)

    def stage_ack(self, group_id: str, name: str, token: str) -> StagedAck:
        """See `Consumers.stage_ack`: needs READ on the group, as an acknowledgement does."""
        self._rights.require(_READ, _GROUP, group_id)
        return self._consumers.stage_ack(group_id, name, token)

    def positions(self, group_id: str, name: str) -> list[PartitionPosition]:
        """See `Consumers.positions`."""
        self._rights.require(_DESCRIBE, _GROUP, group_id)
        return self._consumers.positions(group_id, name)

    async def seek(self, group_id: str, name: str, seeks: Sequence[Seek], *, wait_ms: int = 0) -> None:
        """See `Consumers.seek`."""
        _require_reading(self._rights, group_id, (one.topic for one in seeks))
        await self._consumers.seek(group_id, name, seeks, wait_ms=wait_ms)

    async def seek_everywhere(
        self,
        group_id: str,
        name: str,
        to: str = EARLIEST,
        *,
        time_ms: int | None = None,
        wait_ms: int = 0,
    ) -> None:
        """See `Consumers.seek_everywhere`."""
        self._rights.require(_READ, _GROUP, group_id)
        await self._consumers.seek_everywhere(group_id, name, to, time_ms=time_ms, wait_ms=wait_ms)

    async def pause(
        self, group_id: str, name: str, partitions: Sequence[TopicPartition] | None = None
    ) -> None:
        """See `Consumers.pause`."""
        self._rights.require(_READ, _GROUP, group_id)
        await self._consumers.pause(group_id, name, partitions)

    async def resume(
        self, group_id: str, name: str, partitions: Sequence[TopicPartition] | None = None
    ) -> None:
        """See `Consumers.resume`."""
        self._rights.require(_READ, _GROUP, group_id)
        await self._consumers.resume(group_id, name, partitions)

    async def commit(
        self, group_id: str, name: str, offsets: Sequence[PartitionCommit] | None = None
    ) -> list[PartitionCommit]:
        """See `Consumers.commit`."""
        _require_reading(self._rights, group_id, (one.topic for one in offsets or ()))
        return await self._consumers.commit(group_id, name, offsets)

    def committed(
        self, group_id: str, name: str, partitions: Sequence[TopicPartition]
    ) -> list[CommittedOffset | None]:
        """See `Consumers.committed`: needs DESCRIBE on the group and on each topic."""
        self._rights.require(_DESCRIBE, _GROUP, group_id)
        for tp in partitions:
            self._rights.require(_DESCRIBE, _TOPIC, tp.topic)
        return self._consumers.committed(group_id, name, partitions)


def _unreadable(rights: Rights, topics: Iterable[str]) -> set[str]:
    """Return the topics that may not be read, and log that."""
    if rights.unlimited:
        return set()
    denied = {topic for topic in set(topics) if not rights.may(_READ, _TOPIC, topic)}
    for topic in denied:
        rights.refusal(_READ, _TOPIC, topic)
    return denied


def _require_reading(rights: Rights, group_id: str, topics: Iterable[str]) -> None:
    """Raise GROUP_ or TOPIC_AUTHORIZATION_FAILED unless the group and all of the topics may be read."""
    rights.require(_READ, _GROUP, group_id)
    if not rights.unlimited:
        for topic in set(topics):
            rights.require(_READ, _TOPIC, topic)
