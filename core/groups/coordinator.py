"""The group coordinator: members and groups.

    request → the group's machine decides → its change is stored → the answer leaves

Members of the classic protocol agree by JoinGroup and SyncGroup, and one of them assigns. In a consumer group of
KIP-848 the broker assigns, also to members of the classic protocol; `ConsumerCoordinator` takes the heartbeats of its
other members. Offsets, listing and deletion are common to all types.

Errors of members are in the replies, as the machine gave them. An error of a whole request of an admin tool is raised
as BrokerError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial

from core.errors import BrokerError, ErrorCode
from core.groups.classic_in_consumer import ClassicInConsumer
from core.groups.consumer_group import ConsumerGroup
from core.groups.effects import GroupDeleted, StoredGroup, StoredMember
from core.groups.group import Group
from core.groups.interfaces import Round
from core.groups.machines import ClassicMembers
from core.groups.registry import Entry, GroupRegistry
from core.vocabulary.groups import (
    NO_MEMBER,
    GroupListing,
    GroupView,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveReply,
    Resumption,
    State,
    SyncReply,
    SyncRequest,
)
from core.vocabulary.member_metadata import CONSUMER_PROTOCOL_TYPE

# Kafka's separator between the client's name and the random part of a member id.
_ID_DELIMITER = "-"


class GroupCoordinator:
    """Requests of members and of admin tools on the groups of a registry. Used on the event loop only."""

    def __init__(self, registry: GroupRegistry) -> None:
        self._registry = registry
        self._monotonic = registry.clock.monotonic
        self.loop = registry.loop

    @property
    def closed(self) -> ErrorCode:
        """The error of all requests before the groups are loaded and after the stop; NONE in between."""
        return self._registry.closed

    def watch(self, watcher: Callable[[str], None]) -> None:
        """Call `watcher(group_id)` after each step of a group that is not stable after it."""
        self._registry.watch(watcher)

    # --- membership --------------------------------------------------------------------------------------------

    async def name(self, group_id: str, request: JoinRequest) -> str:
        """Return the id of the member that will join: its own, or a new one, which the request carries then."""
        if request.member_id == NO_MEMBER:
            request.new_member_id = self._new_member_id(request)
        return request.member_id or request.new_member_id

    async def join(self, group_id: str, request: JoinRequest) -> JoinReply:
        """Handle JoinGroup; wait for the end of the round.

        `rebalance_timeout_ms` below 0 (v0) means the session timeout. If the caller is cancelled while it waits, a
        member that does not know its id yet is removed; any other member has one session to rejoin.
        """
        error = self._registry.refusal(group_id) or self._check_join(request)
        entry = self._registry.get(group_id)
        if not error and entry is None:
            if request.member_id == NO_MEMBER:
                entry, error = self._registry.create(group_id)
            else:
                error = ErrorCode.UNKNOWN_MEMBER_ID
        if error or entry is None:
            return JoinReply(error, request.member_id)
        if request.rebalance_timeout_ms < 0:
            request.rebalance_timeout_ms = request.session_timeout_ms
        if not request.member_id and not request.new_member_id:
            request.new_member_id = self._new_member_id(request)
        group = self._members_of(entry, empty_becomes_classic=request.member_id == NO_MEMBER)
        if group is None:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            return JoinReply(error if request.member_id == NO_MEMBER else ErrorCode.UNKNOWN_MEMBER_ID, "")
        waiter: asyncio.Future[JoinReply] = self._registry.loop.create_future()
        self._registry.settle(entry, group.join(request, waiter, self._registry.moment()))
        try:
            return await waiter
        except asyncio.CancelledError:
            now_it_is = self._members_of(entry)
            if now_it_is is not None:
                self._registry.settle(entry, now_it_is.abandon_join(waiter, self._registry.moment()))
            raise

    async def sync(self, group_id: str, request: SyncRequest) -> SyncReply:
        """Handle SyncGroup; wait for the leader's assignment."""
        error = self._registry.refusal(group_id)
        entry = self._registry.get(group_id)
        if not error and entry is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if not error and any(
            len(assignment) > self._registry.config.group_max_member_bytes
            for _, assignment in request.assignments
        ):
            error = ErrorCode.INVALID_REQUEST
        if error or entry is None:
            return SyncReply(error)
        group = self._members_of(entry)
        if group is None:
            return SyncReply(ErrorCode.UNKNOWN_MEMBER_ID)
        waiter: asyncio.Future[SyncReply] = self._registry.loop.create_future()
        self._registry.settle(entry, group.sync(request, waiter, self._registry.moment()))
        try:
            return await waiter
        except asyncio.CancelledError:
            now_it_is = self._members_of(entry)
            if now_it_is is not None:
                self._registry.settle(entry, now_it_is.abandon_sync(waiter, self._registry.moment()))
            raise

    def heartbeat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Extend the session of a member. Nothing is stored."""
        entry = self._registry.get(group_id)
        if entry is None or self._registry.closed is not ErrorCode.NONE:
            return self._registry.refusal(group_id) or ErrorCode.UNKNOWN_MEMBER_ID
        group = self._members_of(entry)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.heartbeat(member_id, generation, self._monotonic(), group_instance_id)
        self._registry.keep_time(entry)
        return error

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> list[LeaveReply]:
        """Handle LeaveGroup of one or more members, named by member id or by instance id alone.

        Raises errors of the whole request: INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE.
        """
        self._registry.require_name(group_id)
        entry = self._registry.get(group_id)
        group = None if entry is None else self._members_of(entry)
        if entry is None or group is None:
            return [LeaveReply(*leaver, ErrorCode.UNKNOWN_MEMBER_ID) for leaver in leavers]
        replies, effects = group.leave(leavers, self._registry.moment())
        self._registry.settle(entry, effects)
        if entry.saving is not None and any(not reply.error for reply in replies):
            await self._durable(entry.saving)
        return replies

    async def resume(self, group_id: str, member: Resumption) -> SyncReply:
        """Continue as a member without a join: return its assignment, or why it has to join."""
        error = self.heartbeat(group_id, *member)
        if error:
            return SyncReply(error)
        return await self.sync(
            group_id,
            SyncRequest(member.member_id, member.generation, group_instance_id=member.group_instance_id),
        )

    async def beat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Handle Heartbeat for a caller that can wait."""
        return self.heartbeat(group_id, member_id, generation, group_instance_id)

    def to_lead(self, group_id: str, member_id: str, generation: int) -> Round | None:
        """Return the round that waits for the assignment of this member; None if it leads none."""
        group = self._registry.classic(group_id)
        if (
            group is None
            or group.state is not State.COMPLETING_REBALANCE
            or group.roster.leader_id != member_id
            or group.generation != generation
            or group.protocol_type != CONSUMER_PROTOCOL_TYPE
        ):
            return None
        members = list(group.roster.members.values())
        return Round(
            group.protocol or "",
            [member.joined(group.protocol) for member in members],
            {member.member_id: member.assignment for member in members},
        )

    def members_of(self, group_id: str) -> ClassicMembers | None:
        """Return the machine of a group if it may have members of the classic protocol, to read."""
        entry = self._registry.get(group_id)
        return None if entry is None else self._members_of(entry)

    def _members_of(self, entry: Entry, *, empty_becomes_classic: bool = False) -> ClassicMembers | None:
        """Return the machine of a group if it may have members of the classic protocol."""
        group = entry.group
        if isinstance(group, Group):
            return group
        if empty_becomes_classic and group.is_unused and not group.is_dead:
            return self._registry.become_classic(entry)
        return ClassicInConsumer(group) if isinstance(group, ConsumerGroup) else None

    def _new_member_id(self, request: JoinRequest) -> str:
        name = request.group_instance_id or request.client_id
        return f"{name}{_ID_DELIMITER}{self._registry.clock.uuid4()}"

    def _check_join(self, request: JoinRequest) -> ErrorCode:
        config = self._registry.config
        low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        size = len(request.client_id) + len(request.group_instance_id or "")
        size += sum(len(name) + len(metadata) for name, metadata in request.protocols)
        if size > config.group_max_member_bytes:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    # --- admin -------------------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> GroupView | None:
        """Return the group, or None if there is none."""
        self._registry.require_open()
        entry = self._registry.get(group_id)
        if entry is None or entry.group.is_dead:
            return None
        return entry.group.view()

    def list(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """List all groups, or those in one of `states` and of one of `types` (KIP-518, KIP-848), ignoring case.

        An unknown name matches no group.
        """
        self._registry.require_open()
        wanted_states = {state.lower() for state in states}
        wanted_types = {group_type.lower() for group_type in types}
        return [
            listing
            for listing in (entry.group.listing() for _, entry in self._registry)
            if (not wanted_states or listing.state.lower() in wanted_states)
            and (not wanted_types or listing.group_type.lower() in wanted_types)
        ]

    async def take_over(self, group: StoredGroup, members: Sequence[StoredMember]) -> None:
        """Continue a group of another broker here, as after a restart; durable when it returns.

        Raises INVALID_GROUP_ID, POLICY_VIOLATION, and NON_EMPTY_GROUP for a group that has members here.
        """
        self._registry.require_name(group.group_id)
        entry, error = self._registry.get(group.group_id), ErrorCode.NONE
        if entry is None:
            entry, error = self._registry.create(group.group_id)
        elif not (entry.group.is_empty and isinstance(entry.group, Group)):
            error = ErrorCode.NON_EMPTY_GROUP
        if error or entry is None:
            raise BrokerError(error, f"Group {group.group_id!r} cannot be taken over.", group=group.group_id)
        await self._durable(self._registry.replace(entry, group, members))

    async def delete(self, group_id: str) -> None:
        """Handle DeleteGroups: delete the group and its offsets.

        Raises GROUP_ID_NOT_FOUND, and NON_EMPTY_GROUP while it has members.
        """
        self._registry.require_open()
        entry = self._registry.get(group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if entry is None else entry.group.delete()
        if error is ErrorCode.NON_EMPTY_GROUP:
            raise BrokerError(error, f"Group {group_id!r} has members; stop them first.", group=group_id)
        if error or entry is None:
            raise BrokerError(error, f"There is no group {group_id!r}.", group=group_id)
        saving = self._registry.persist([GroupDeleted(group_id)])
        # A callback, so that it also runs when the caller no longer waits.
        saving.add_done_callback(partial(self._deleted, group_id, entry))
        await self._durable(saving)

    def _deleted(self, group_id: str, entry: Entry, saving: asyncio.Future[None]) -> None:
        if saving.exception() is None:
            self._registry.forget(group_id)
        else:
            # The group is still on the disk, so it exists.
            entry.group.revive()

    async def _durable(self, saving: asyncio.Future[None]) -> None:
        """Wait until a change is durable. Cancelling the caller does not cancel the change.

        Callbacks that were added to the change before have run when this returns.
        """
        waiter: asyncio.Future[BaseException | None] = self._registry.loop.create_future()
        saving.add_done_callback(partial(_pass_on, waiter))
        error = await waiter
        if error is not None:
            raise BrokerError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The change could not be stored ({error})."
            ) from error


def _pass_on(waiter: asyncio.Future[BaseException | None], saving: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(saving.exception())
