"""Consumer groups, as `broker.groups`: every call that listeners, surfaces and the broker itself make on them.

The parts are the registry (all groups), the coordinator (members and groups), the offset store, the positions, and
the members that the broker hosts. Errors of members are in the replies of `join`, `sync`, `heartbeat`, `leave` and
`commit`; all other errors are raised as BrokerError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import inf

from core.clock import Clock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.consumer_coordinator import ConsumerCoordinator
from core.groups.coordinator import GroupCoordinator
from core.groups.group import Group
from core.groups.group_configs import GroupConfigs
from core.groups.hosted import HostedMembers
from core.groups.http_members import HttpMembers
from core.groups.interfaces import GroupStore
from core.groups.line_members import LineMembers
from core.groups.offset_store import OffsetStore
from core.groups.positions import GroupPositions
from core.groups.refusals import refusal
from core.groups.registry import GroupRegistry
from core.groups.settled_offsets import OffsetsSettlement, SettledOffsets
from core.groups.share_groups import ShareGroups
from core.groups.transactional_offsets import Settlement, TransactionalOffsets
from core.types import TopicPartition
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
    Cut,
    GroupListing,
    GroupView,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveReply,
    Standing,
    State,
    SyncReply,
    SyncRequest,
    TransactionalCommit,
)
from core.vocabulary.settlements import OffsetToSettle
from core.vocabulary.transactions import ProducerIdAndEpoch


class Groups:
    """All groups of a broker. Made and used on the event loop."""

    def __init__(self, config: Config, clock: Clock, store: GroupStore, broker: Logs) -> None:
        self._registry = GroupRegistry(config, clock, asyncio.get_running_loop(), store)
        self._coordinator = GroupCoordinator(self._registry)
        self._consumers = ConsumerCoordinator(self._registry, broker)
        self._offsets = OffsetStore(self._registry, broker)
        self._transactional = TransactionalOffsets(self._registry, broker, self._offsets)
        self._settled = SettledOffsets(self._registry, self._offsets)
        self.positions = GroupPositions(config, self._coordinator, self._offsets, broker)
        self.hosted = HostedMembers(self._coordinator, broker)
        self.members = HttpMembers(config, self._coordinator, self.hosted)
        self.shares = ShareGroups(self._registry, broker)
        self.lines = LineMembers(
            self._registry, self._coordinator, self._offsets, self.positions, self.hosted, broker
        )

    # --- with the broker ---------------------------------------------------------------------------------------

    def follow(self, settings: GroupConfigs) -> None:
        """Take the settings of single groups from here; before `open`."""
        self._consumers.follow(settings)

    async def open(self) -> None:
        """Load all groups; members continue without a rejoin."""
        self._consumers.open()
        await self._registry.load()
        await self._offsets.forget_missing_topics()
        self.lines.open()

    def elsewhere(self) -> None:
        """Answer all requests NOT_COORDINATOR, because another broker keeps the groups. Instead of `open`."""
        self._registry.elsewhere()

    def drain(self) -> None:
        """Answer all waiting requests and refuse all later ones."""
        self._consumers.close()
        self._registry.drain()

    @property
    def closed(self) -> ErrorCode:
        """Return the error of all requests before the groups are loaded and after the stop; NONE in between."""
        return self._registry.closed

    async def expire(self) -> None:
        """Delete expired offsets and unused groups. To be called periodically."""
        await self._offsets.expire()

    async def topic_deleted(self, topic: str) -> None:
        """Delete the committed offsets of a deleted topic."""
        await self._offsets.forget_topic(topic)

    async def cut_back(self, ends: Mapping[TopicPartition, int]) -> list[Cut]:
        """Move committed offsets beyond these log end offsets back to them. See `OffsetStore.cut_back`."""
        return await self._offsets.cut_back(ends)

    # --- members -----------------------------------------------------------------------------------------------

    async def join(self, group_id: str, request: JoinRequest) -> JoinReply:
        """Handle JoinGroup; wait for the end of the round. See `GroupCoordinator.join`."""
        return await self._coordinator.join(group_id, request)

    async def sync(self, group_id: str, request: SyncRequest) -> SyncReply:
        """Handle SyncGroup; wait for the leader's assignment."""
        return await self._coordinator.sync(group_id, request)

    def heartbeat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Extend the session of a member."""
        return self._coordinator.heartbeat(group_id, member_id, generation, group_instance_id)

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> list[LeaveReply]:
        """Handle LeaveGroup of one or more members. Raises INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE."""
        return await self._coordinator.leave(group_id, leavers)

    # --- offsets -----------------------------------------------------------------------------------------------

    async def commit(self, group_id: str, request: CommitRequest) -> list[ErrorCode]:
        """Handle OffsetCommit: return an error for each commit, in their order. See `OffsetStore.commit`."""
        return await self._offsets.commit(group_id, request)

    def committed(
        self, group_id: str, topic: str, partition: int, *, register: bool = False
    ) -> CommittedOffset | None:
        """Return the committed offset of a partition, or None. See `OffsetStore.get`."""
        return self._offsets.get(group_id, topic, partition, register=register)

    def all_committed(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Iterate over (topic, partition, committed offset) of a group; none for a group that does not exist."""
        return self._offsets.of_group(group_id)

    async def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """Handle OffsetDelete: return an error for each of `partitions`. See `OffsetStore.delete`."""
        return await self._offsets.delete(group_id, partitions)

    # --- offsets of transactions -------------------------------------------------------------------------------

    async def stage_transactional(self, group_id: str, request: TransactionalCommit) -> list[ErrorCode]:
        """Handle TxnOffsetCommit: return an error for each commit. See `TransactionalOffsets.stage`."""
        return await self._transactional.stage(group_id, request)

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction has staged an offset of the partition (KIP-447)."""
        return self._settled.is_settling(group_id, topic, partition) or self._transactional.is_unstable(
            group_id, topic, partition
        )

    def settle_offsets(self, offsets: Sequence[OffsetToSettle]) -> OffsetsSettlement:
        """Check offsets, and return the change that commits them in a decision. See `SettledOffsets.settle`."""
        return self._settled.settle(offsets)

    def groups_of(self, producer_id: int) -> list[str]:
        """Return the groups in which a producer has staged offsets."""
        return self._transactional.groups_of(producer_id)

    def pending_offsets(self) -> int:
        """Return how many offsets open transactions have staged."""
        return self._transactional.count()

    def staging_producers(self) -> list[ProducerIdAndEpoch]:
        """Return the producers that have staged offsets, under each epoch."""
        return self._transactional.producers()

    def settle_transaction(self, producer_id: int, producer_epoch: int, commit: bool) -> Settlement:
        """Return what the end of a transaction changes. See `TransactionalOffsets.settle`."""
        return self._transactional.settle(producer_id, producer_epoch, commit=commit)

    # --- groups ------------------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> GroupView | None:
        """Return the group, or None if there is none."""
        return self._coordinator.describe(group_id)

    async def delete(self, group_id: str) -> None:
        """Delete a group with its offsets or its queue. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        if self.shares.describe(group_id) is not None:
            await self.shares.delete(group_id)
            return
        await self._coordinator.delete(group_id)

    def group(self, group_id: str) -> Group | None:
        """Return the machine of a classic group, to read and never to change, or None if there is none."""
        return self._registry.classic(group_id)

    # --- groups to whose members the broker assigns (KIP-848) ----------------------------------------------------

    async def consumer_heartbeat(self, group_id: str, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        """Handle ConsumerGroupHeartbeat. Errors are in the reply. See `ConsumerCoordinator.heartbeat`."""
        return await self._consumers.heartbeat(group_id, request)

    def describe_consumer(self, group_id: str) -> ConsumerGroupView | None:
        """Return a group of KIP-848, or None if there is none of that id and type."""
        return self._consumers.describe(group_id)

    def member_kind(self, group_id: str, member_id: str) -> MemberKind | None:
        """Return the protocol of a member of a group of KIP-848; None for all others."""
        return self._consumers.kind(group_id, member_id)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return the error of an OffsetFetch (v9) on behalf of a member; NONE for a group that does not exist.

        STALE_MEMBER_EPOCH, UNKNOWN_MEMBER_ID. Without a member and with epoch −1 every client may fetch.
        """
        group = self._registry.group(group_id)
        return ErrorCode.NONE if group is None else group.check_fetch(member_id, member_epoch)

    @property
    def at_hand(self) -> bool:
        """Whether all is always at hand; see `core.consumers.interfaces.MemberGroups`."""
        return True

    @property
    def heartbeat_seconds(self) -> float:
        """The longest time between two heartbeats of a hosted member: it is told of a rebalance without them."""
        return inf

    async def look(self, group_id: str) -> None:
        """Return at once: all groups are at hand."""

    async def bring(
        self, group_id: str, partitions: Collection[TopicPartition], *, fresh: bool = False
    ) -> None:
        """Return at once: all committed offsets are at hand."""

    def standing(self, group_id: str, member_id: str) -> Standing:
        """Return what the group knows of a member."""
        group = self._coordinator.members_of(group_id)
        return Standing(False) if group is None else group.standing(member_id)

    def watch(self, watcher: Callable[[str], None]) -> None:
        """Call `watcher(group_id)` after each step of a group that is not stable after it."""
        self._registry.watch(watcher)

    def before_sync(self, group_id: str) -> ErrorCode:
        """Return REBALANCE_IN_PROGRESS while the members wait for the leader's assignment, else NONE."""
        group = self._registry.classic(group_id)
        if group is not None and group.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def require_name(self, group_id: str) -> None:
        """Raise INVALID_GROUP_ID for the empty id, COORDINATOR_LOAD_IN_PROGRESS and COORDINATOR_NOT_AVAILABLE."""
        self._registry.require_name(group_id)

    def refusal(self, error: ErrorCode, group_id: str, member_id: str = NO_MEMBER) -> BrokerError:
        """Return the error of a member with a message for people."""
        return refusal(error, group_id, member_id)

    def list(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """List all groups, or those in one of `states` and of one of `types`, ignoring case."""
        return self._coordinator.list(states, types)
