"""The consumer groups of the cluster, as `broker.groups`. The coordinators keep them; this is what is at hand.

Members over HTTP and the join loops of managed consumers are those of an embedded broker (`core/groups`), over
another coordinator. Transactions and the line protocol are not served over a cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

from core.client.cluster import ClusterClient
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.hosted import HostedMembers
from core.groups.http_members import HttpMembers
from core.groups.positions import GroupPositions
from core.groups.refusals import refusal
from core.types import TopicPartition
from core.upstream.coordinator import RemoteCoordinator
from core.upstream.group_offsets import RemoteOffsets
from core.upstream.group_views import GroupViews
from core.upstream.no_share_groups import NoShareGroups
from core.vocabulary.capabilities import unsupported
from core.vocabulary.consumer_groups import (
    ConsumerGroupView,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    MemberKind,
)
from core.vocabulary.groups import (
    NO_MEMBER,
    CommitRequest,
    CommittedOffset,
    GroupListing,
    GroupView,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveReply,
    LineAssignment,
    PartitionLag,
    Reset,
    Standing,
    SyncReply,
    SyncRequest,
    Target,
    TransactionalCommit,
)
from core.vocabulary.member_metadata import assigned_partitions
from core.vocabulary.partition import EARLIEST, LATEST
from core.vocabulary.settlements import OffsetToSettle
from core.vocabulary.transactions import Settlement


class RemoteGroups:
    """All groups of a cluster. Made and used on the event loop."""

    def __init__(self, config: Config, cluster: ClusterClient, broker: Logs) -> None:
        self._broker = broker
        self._views = GroupViews(cluster)
        self._offsets = RemoteOffsets(cluster)
        self._coordinator = RemoteCoordinator(cluster, broker, self._views)
        self.hosted = HostedMembers(self._coordinator, broker)
        self.members = HttpMembers(config, self._coordinator, self.hosted)
        self.positions = RemotePositions(
            GroupPositions(config, self._views, self._offsets, broker), self, broker
        )
        self.lines = NoLineMembers()

    # --- life ----------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Refuse all later requests of members; those that this gateway hosts stay in their groups."""
        self._coordinator.drain()

    async def close(self) -> None:
        """End the background work."""
        await self._coordinator.close()

    @property
    def closed(self) -> ErrorCode:
        """See `Groups.closed`."""
        return self._coordinator.closed

    # --- at hand -------------------------------------------------------------------------------------------

    @property
    def at_hand(self) -> bool:
        """Whether all is always at hand; see `core.consumers.interfaces.MemberGroups`."""
        return False

    @property
    def heartbeat_seconds(self) -> float:
        """The longest time between two heartbeats of a hosted member."""
        return self._coordinator.heartbeat_seconds

    async def look(self, group_id: str) -> None:
        """Bring a group to hand, for `describe`."""
        await self._views.look(group_id)

    async def look_at_group(self, group_id: str) -> None:
        """See `Facade.look_at_group`."""
        view = await self._views.look(group_id)
        await self._offsets.look(group_id)
        partitions = {TopicPartition(topic, p) for topic, p, _ in self._offsets.of_group(group_id)}
        for member in view.members if view is not None else ():
            partitions |= assigned_partitions(member.assignment)
        if partitions:
            await self._broker.look(partitions=sorted(partitions))

    async def look_at_groups(self) -> None:
        """See `Facade.look_at_groups`."""
        await self._views.look_at_all()

    async def bring(
        self, group_id: str, partitions: Collection[TopicPartition], *, fresh: bool = False
    ) -> None:
        """Bring the committed offsets of partitions to hand, for `committed`."""
        await self._offsets.bring(group_id, partitions, fresh=fresh)

    def standing(self, group_id: str, member_id: str) -> Standing | None:
        """Return what is known of a member; None if only the coordinator knows it."""
        return self._coordinator.standing(group_id, member_id)

    # --- members -------------------------------------------------------------------------------------------

    async def join(self, group_id: str, request: JoinRequest) -> JoinReply:
        """See `Groups.join`."""
        return await self._coordinator.join(group_id, request)

    async def sync(self, group_id: str, request: SyncRequest) -> SyncReply:
        """See `Groups.sync`."""
        return await self._coordinator.sync(group_id, request)

    def heartbeat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Return what the coordinator said last, and send the next heartbeat in the background."""
        return self._coordinator.heartbeat(group_id, member_id, generation, group_instance_id)

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> list[LeaveReply]:
        """See `Groups.leave`."""
        return await self._coordinator.leave(group_id, leavers)

    @property
    def shares(self) -> NoShareGroups:
        """The members of share groups, which speak to the cluster."""
        return NoShareGroups()

    async def consumer_heartbeat(self, group_id: str, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        """Refuse: members of the cluster's groups speak to the cluster."""
        message = "Members of the consumer protocol are not served over an existing cluster."
        return ConsumerHeartbeatReply(ErrorCode.UNSUPPORTED_VERSION, message=message)

    def describe_consumer(self, group_id: str) -> ConsumerGroupView | None:
        """See `facade.Groups.describe_consumer`; call `look_at_group` before."""
        return self._views.describe_consumer(group_id)

    def member_kind(self, group_id: str, member_id: str) -> MemberKind | None:
        """Return None: the cluster knows its members."""
        return None

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return NONE: the cluster checks."""
        return ErrorCode.NONE

    def before_sync(self, group_id: str) -> ErrorCode:
        """Return NONE: the coordinator itself refuses a member that has to wait."""
        return ErrorCode.NONE

    # --- offsets -------------------------------------------------------------------------------------------

    async def commit(self, group_id: str, request: CommitRequest) -> list[ErrorCode]:
        """See `Groups.commit`."""
        return await self._offsets.commit(group_id, request)

    def committed(
        self, group_id: str, topic: str, partition: int, *, register: bool = False
    ) -> CommittedOffset | None:
        """Return the committed offset that is at hand; None if there is none. Raises if it is not at hand."""
        return self._offsets.get(group_id, TopicPartition(topic, partition))

    def all_committed(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """See `Groups.all_committed`; call `look_at_group` before."""
        return self._offsets.of_group(group_id)

    async def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """See `Groups.delete_offsets`."""
        return await self._offsets.delete(group_id, partitions)

    # --- transactions: not over a cluster ------------------------------------------------------------------

    async def stage_transactional(self, group_id: str, request: TransactionalCommit) -> list[ErrorCode]:
        """Raise UNSUPPORTED_VERSION."""
        _no_transactions()

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Return False: no transaction is staged here."""
        return False

    def settle_offsets(self, offsets: Sequence[OffsetToSettle]) -> Settlement:
        """Raise UNSUPPORTED_VERSION."""
        _no_transactions()

    # --- groups --------------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> GroupView | None:
        """See `Groups.describe`; call `look_at_group` before."""
        return self._views.describe(group_id)

    async def delete(self, group_id: str) -> None:
        """See `Groups.delete`."""
        await self._views.delete(group_id)
        self._offsets.forget(group_id)

    def require_name(self, group_id: str) -> None:
        """Raise INVALID_GROUP_ID for the empty id, COORDINATOR_NOT_AVAILABLE after the stop."""
        error = ErrorCode.INVALID_GROUP_ID if not group_id else self.closed
        if error:
            raise refusal(error, group_id)

    def refusal(self, error: ErrorCode, group_id: str, member_id: str = NO_MEMBER) -> BrokerError:
        """See `Groups.refusal`."""
        return refusal(error, group_id, member_id)

    def list(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """See `Groups.list`; call `look_at_groups` before."""
        return self._views.list(states, types)


class RemotePositions:
    """Positions of the cluster's groups: what `GroupPositions` needs is brought to hand before each call."""

    def __init__(self, positions: GroupPositions, groups: RemoteGroups, broker: Logs) -> None:
        self._positions = positions
        self._groups = groups
        self._broker = broker

    def lag(self, group_id: str) -> list[PartitionLag]:
        """See `GroupPositions.lag`; call `look_at_group` before."""
        return self._positions.lag(group_id)

    async def set(self, group_id: str, request: CommitRequest) -> None:
        """See `GroupPositions.set`. The cluster may accept some of the commits and refuse others."""
        await self._groups.look(group_id)
        await self._broker.look(
            partitions=[TopicPartition(one.topic, one.partition) for one in request.commits]
        )
        await self._positions.set(group_id, request)

    async def reset(
        self, group_id: str, target: Target, topics: Iterable[str] = (), *, dry_run: bool = False
    ) -> list[Reset]:
        """See `GroupPositions.reset`."""
        names = list(dict.fromkeys(topics))
        await self._groups.look_at_group(group_id)
        if names:
            await self._broker.look(names)
            infos = [self._broker.topics.get(name) for name in names]
            wanted = [TopicPartition(info.name, p) for info in infos for p in range(info.partitions)]
        else:
            wanted = [TopicPartition(topic, p) for topic, p, _ in self._groups.all_committed(group_id)]
        moment = target.time
        if target.earliest or target.latest:
            moment = EARLIEST if target.earliest else LATEST
        if moment is not None:
            committed = not target.earliest
            await self._broker.look(partitions=wanted, moment=moment, committed=committed)
        await self._broker.look(partitions=wanted)
        return await self._positions.reset(group_id, target, names, dry_run=dry_run)

    async def forget(self, group_id: str, topic: str, partition: int | None = None) -> None:
        """See `GroupPositions.forget`."""
        await self._groups.look_at_group(group_id)
        await self._positions.forget(group_id, topic, partition)


class NoLineMembers:
    """Members of the line protocol: its port is off over a cluster."""

    async def join(
        self, group_id: str, topic: str, member_id: str, assignor: str = "", host: str = ""
    ) -> LineAssignment:
        """Raise UNSUPPORTED_VERSION."""
        _no_lines()

    async def sync(self, group_id: str, topic: str, member_id: str, generation: int) -> LineAssignment:
        """Raise UNSUPPORTED_VERSION."""
        _no_lines()

    def heartbeat(self, group_id: str, topic: str, member_id: str, generation: int) -> None:
        """Raise UNSUPPORTED_VERSION."""
        _no_lines()

    async def leave(self, group_id: str, topic: str, member_id: str, generation: int) -> None:
        """Raise UNSUPPORTED_VERSION."""
        _no_lines()

    async def commit(
        self, group_id: str, topic: str, member_id: str, generation: int, partition: int, offset: int
    ) -> None:
        """Raise UNSUPPORTED_VERSION."""
        _no_lines()

    def committed(self, group_id: str, topic: str, partition: int) -> int:
        """Raise UNSUPPORTED_VERSION."""
        _no_lines()

    async def take_over(
        self, group_id: str, topic: str, generation: int, assignor: str, members: Mapping[str, Sequence[int]]
    ) -> bool:
        """Raise UNSUPPORTED_VERSION."""
        _no_lines()


def _no_transactions() -> NoReturn:
    raise unsupported(
        "Transactions over HTTP are not served over an existing cluster; use a Kafka client for them."
    )


def _no_lines() -> NoReturn:
    raise unsupported("Groups of the line protocol are not served over an existing cluster.")
