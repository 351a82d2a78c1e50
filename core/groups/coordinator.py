"""The group coordinator: what the broker calls for everything that has to do with groups.

    request → the group's machine decides → its change is stored → the answer leaves

Groups here are *classic* ones: members agree through JoinGroup and SyncGroup, and one of them assigns. The
consumer groups of KIP-848 and the share groups of KIP-932, where the broker assigns, will be machines of their
own beside `Group`, in the same registry, told apart by `group_type`; offsets, listing and deletion are common to
all types and know only what `Group` shows.

Errors of members come back in the replies, as the machine gave them; what concerns a whole request of an admin
tool is raised as BrokerError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from functools import partial

from core.errors import BrokerError, ErrorCode
from core.groups.commits import OffsetVerbs
from core.groups.group import Group
from core.groups.interfaces import GroupDeleted
from core.groups.messages import GroupChange, StoredGroup, StoredMember
from core.groups.registry import Entry
from core.vocabulary.groups import (
    NO_MEMBER,
    GroupListing,
    GroupView,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveReply,
    State,
    SyncReply,
    SyncRequest,
)

# Kafka separates the client's name from the random part of a member id by this.
_ID_DELIMITER = "-"


class GroupCoordinator(OffsetVerbs):
    """All verbs on groups. One instance serves every door, on the event loop."""

    # --- membership --------------------------------------------------------------------------------------------

    async def join(self, group_id: str, request: JoinRequest) -> JoinReply:
        """JoinGroup: waits for the end of the round.

        `rebalance_timeout_ms` below 0 (v0) means the session timeout. A caller that is cancelled while it waits
        has left: a member whose id it never heard is removed, another has a session to come back.
        """
        error = self.refusal(group_id) or self._check_join(request)
        entry = self._entries.get(group_id)
        if not error and entry is None:
            if request.member_id == NO_MEMBER:
                entry, error = self._create(group_id)
            else:
                error = ErrorCode.UNKNOWN_MEMBER_ID
        if error or entry is None:
            return JoinReply(error, request.member_id)
        if request.rebalance_timeout_ms < 0:
            request.rebalance_timeout_ms = request.session_timeout_ms
        if not request.member_id and not request.new_member_id:
            name = request.group_instance_id or request.client_id
            request.new_member_id = f"{name}{_ID_DELIMITER}{self._clock.uuid4()}"
        waiter: asyncio.Future[JoinReply] = self._loop.create_future()
        self._settle(entry, entry.group.join(request, waiter, self._moment()))
        try:
            return await waiter
        except asyncio.CancelledError:
            self._settle(entry, entry.group.abandon_join(waiter, self._moment()))
            raise

    async def sync(self, group_id: str, request: SyncRequest) -> SyncReply:
        """SyncGroup: waits for the leader's assignment."""
        error = self.refusal(group_id)
        entry = self._entries.get(group_id)
        if not error and entry is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if not error and any(
            len(assignment) > self._config.group_max_member_bytes for _, assignment in request.assignments
        ):
            error = ErrorCode.INVALID_REQUEST
        if error or entry is None:
            return SyncReply(error)
        waiter: asyncio.Future[SyncReply] = self._loop.create_future()
        self._settle(entry, entry.group.sync(request, waiter, self._moment()))
        try:
            return await waiter
        except asyncio.CancelledError:
            self._settle(entry, entry.group.abandon_sync(waiter, self._moment()))
            raise

    def heartbeat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Heartbeat: the member lives; nothing is stored and nobody waits."""
        entry = self._entries.get(group_id)
        if entry is None or self._closed is not ErrorCode.NONE:
            return self.refusal(group_id) or ErrorCode.UNKNOWN_MEMBER_ID
        return entry.group.heartbeat(member_id, generation, self._monotonic(), group_instance_id)

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> list[LeaveReply]:
        """LeaveGroup, of one member or many, by member id or by instance id alone.

        Raises what concerns the request as a whole: INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE.
        """
        self.require_name(group_id)
        entry = self._entries.get(group_id)
        if entry is None:
            return [LeaveReply(*leaver, ErrorCode.UNKNOWN_MEMBER_ID) for leaver in leavers]
        replies, effects = entry.group.leave(leavers, self._moment())
        self._settle(entry, effects)
        if entry.saving is not None and any(not reply.error for reply in replies):
            await self._durable(entry.saving)
        return replies

    def _check_join(self, request: JoinRequest) -> ErrorCode:
        config = self._config
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
        """The group as it is; None if there is none."""
        self.require_open()
        entry = self._entries.get(group_id)
        if entry is None or entry.group.state is State.DEAD:
            return None
        return entry.group.view()

    def group(self, group_id: str) -> Group | None:
        """The machine itself, to look at and never to change: what the broker's own members need to know."""
        entry = self._entries.get(group_id)
        return None if entry is None else entry.group

    def list(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """All groups, or those in one of `states` and of one of `types` (KIP-518, KIP-848), whatever the case.

        A name that nobody knows matches nothing.
        """
        self.require_open()
        wanted_states = {state.lower() for state in states}
        wanted_types = {group_type.lower() for group_type in types}
        return [
            listing
            for listing in (entry.group.listing() for entry in self._entries.values())
            if (not wanted_states or listing.state.lower() in wanted_states)
            and (not wanted_types or listing.group_type.lower() in wanted_types)
        ]

    async def take_over(self, group: StoredGroup, members: Sequence[StoredMember]) -> None:
        """A group as it was kept elsewhere goes on here, as after a restart; durable when it returns.

        Raises INVALID_GROUP_ID, POLICY_VIOLATION, and NON_EMPTY_GROUP for a group that has members here.
        """
        self.require_name(group.group_id)
        entry, error = self._entries.get(group.group_id), ErrorCode.NONE
        if entry is None:
            entry, error = self._create(group.group_id)
        elif entry.group.state is not State.EMPTY:
            error = ErrorCode.NON_EMPTY_GROUP
        if error or entry is None:
            raise BrokerError(error, f"Group {group.group_id!r} cannot be taken over.", group=group.group_id)
        entry.group = Group.restored(group, members, self._settings, self._monotonic())
        entry.stored = True
        saving = entry.saving = self._persist([GroupChange(group, tuple(members), replace_members=True)])
        saving.add_done_callback(partial(self._saved, entry, []))
        self._arm(entry)
        await self._durable(saving)

    async def delete(self, group_id: str) -> None:
        """DeleteGroups: the group and its offsets go.

        Raises GROUP_ID_NOT_FOUND, and NON_EMPTY_GROUP while it has members.
        """
        self.require_open()
        entry = self._entries.get(group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if entry is None else entry.group.delete()
        if error is ErrorCode.NON_EMPTY_GROUP:
            raise BrokerError(error, f"Group {group_id!r} has members; stop them first.", group=group_id)
        if error or entry is None:
            raise BrokerError(error, f"There is no group {group_id!r}.", group=group_id)
        saving = self._persist([GroupDeleted(group_id)])
        # Whether the caller still waits or not: the outcome decides what becomes of the group.
        saving.add_done_callback(partial(self._deleted, group_id, entry))
        await self._durable(saving)

    def _deleted(self, group_id: str, entry: Entry, saving: asyncio.Future[None]) -> None:
        if saving.exception() is None:
            self._forget(group_id)
        else:
            # It is still there, on the disk and so for everybody.
            row = entry.group.stored(State.EMPTY)
            entry.group = Group.restored(row, (), self._settings, self._monotonic())

    async def _durable(self, saving: asyncio.Future[None]) -> None:
        """Wait for a change without owning it: a caller that goes away must not take it along.

        What was to be done after the change, has been done when this returns.
        """
        waiter: asyncio.Future[BaseException | None] = self._loop.create_future()
        saving.add_done_callback(partial(_pass_on, waiter))
        error = await waiter
        if error is not None:
            raise BrokerError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The change could not be stored ({error})."
            ) from error


def _pass_on(waiter: asyncio.Future[BaseException | None], saving: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(saving.exception())
