"""Members of the classic protocol in a consumer group (KIP-848): JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

The broker assigns for them as for all members, so no join waits for the end of a round, and no member leads. The
generation of a member is its own epoch:

    JoinGroup    subscribes, says what the member still owns, and takes the next step towards the target; the answer
                 has the member's epoch as generation and no members
    SyncGroup    returns what is assigned now
    Heartbeat    REBALANCE_IN_PROGRESS if there is a newer target, if partitions have to be given up, or if partitions
                 that the member waits for are free now; the client then joins again

A client of an eager assignor owns nothing when it joins, so it never holds up others. One of a cooperative assignor
gives up what the answer to SyncGroup does not show, and joins again. A member that does not join within its rebalance
timeout after REBALANCE_IN_PROGRESS, or does not sync after its join, is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from core.errors import BrokerError, ErrorCode
from core.groups.consumer_group import ConsumerGroup
from core.groups.consumer_member import ClassicSide, ConsumerMember, MemberState
from core.groups.effects import Answer, Moment, Reply
from core.groups.machines import Effects
from core.groups.reconciliation import NOTHING, is_blocked
from core.protocol.consumer_protocol import Subscription, decode_subscription
from core.protocol.primitives import ProtocolError
from core.vocabulary.groups import (
    NO_MEMBER,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveReply,
    Standing,
    SyncReply,
    SyncRequest,
)
from core.vocabulary.member_metadata import CONSUMER_PROTOCOL_TYPE


class ClassicInConsumer:
    """The classic protocol of one consumer group; see `core.groups.machines.ClassicMembers`. It has no state."""

    __slots__ = ("_group", "_roster")

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        self._roster = group.roster

    # --- join ------------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, waiter: object, now: Moment) -> Effects:
        """Handle JoinGroup; the answer is in the effects of this call."""
        member_id = request.member_id or request.new_member_id
        reply: Reply
        try:
            subscription = self._check_join(request)
            if not request.member_id and request.group_instance_id is None and request.member_id_required:
                reply = JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id)
            else:
                reply = self._join(member_id, request, subscription, now)
        except BrokerError as error:
            reply = JoinReply(error.code, request.member_id)
        return self._effects(waiter, reply, now)

    def _join(
        self, member_id: str, request: JoinRequest, subscription: Subscription, now: Moment
    ) -> JoinReply:
        group = self._group
        member = self._joining(member_id, request)
        assignor, was_classic = member.assignor, member.classic is not None
        member.update_classic(request, subscription.topics, subscription.rack_id)
        self._roster.classic += not was_classic
        self._roster.mark(member)
        group.subscribe(member)
        if member.assignor != assignor:
            group.bump()
        group.assign_if_due(now.monotonic)
        group.reconcile(member, self._owned(subscription), now.monotonic)
        classic = _classic(member)
        classic.awaits_sync = True
        self._expect(member, now.monotonic)
        group.touch(member, now.monotonic)
        return JoinReply(
            ErrorCode.NONE, member_id, member.epoch, CONSUMER_PROTOCOL_TYPE, classic.protocol, NO_MEMBER
        )

    def _check_join(self, request: JoinRequest) -> Subscription:
        """Return the subscription of a JoinGroup.

        Raises COORDINATOR_NOT_AVAILABLE, INCONSISTENT_GROUP_PROTOCOL (another protocol type, a subscription that is
        unreadable, or no protocol that all members of the classic protocol support), and what `_check_policy` raises.
        """
        if self._group.is_dead:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group is being deleted; try again.")
        self._check_policy(request)
        names = {name for name, _ in request.protocols}
        supported = all(
            not names.isdisjoint(name for name, _ in member.classic.protocols)
            for member in self._roster.members.values()
            if member.classic is not None and member.member_id != request.member_id
        )
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names or not supported:
            raise _inconsistent()
        try:
            return decode_subscription(request.protocols[0][1])
        except ProtocolError as error:
            raise _inconsistent() from error

    def _check_policy(self, request: JoinRequest) -> None:
        """Refuse another member of the classic protocol if the group cannot become a classic one.

        While an upgrade is under way (`may_upgrade`, and the group still has such members) their clients may restart.
        Raises INCONSISTENT_GROUP_PROTOCOL; UNKNOWN_MEMBER_ID in an empty group, which becomes a classic one with a
        join under no id.
        """
        settings, roster = self._group.settings, self._roster
        if settings.may_downgrade or (settings.may_upgrade and roster.classic):
            return
        member = roster.members.get(request.member_id)
        if member is not None and member.classic is not None:
            return
        if not roster.members:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, "The group is empty; join without a member id.")
        raise BrokerError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "The setting group_consumer_downgrade forbids members of the classic protocol in this group.",
        )

    def _joining(self, member_id: str, request: JoinRequest) -> ConsumerMember:
        """Return the member that joins. Raises GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        roster, instance_id = self._roster, request.group_instance_id
        if instance_id is not None:
            holder = roster.static.get(instance_id)
            if holder is not None and not request.member_id:
                # As in a classic group: the newest client of an instance takes its place.
                return self._group.replace_static(roster.members[holder], member_id)
            if holder is not None or request.member_id:
                return roster.find_static(instance_id, member_id)
        member = roster.members.get(member_id)
        if member is None:
            return self._group.add_member(member_id, instance_id)
        if member.is_away:
            member.epoch = 0
        return member

    def _owned(self, subscription: Subscription) -> dict[UUID, list[int]]:
        """Return what a client says that it owns, by topic id; topics that are deleted are left out."""
        owned: dict[UUID, list[int]] = {}
        for topic in subscription.owned_partitions:
            shape = self._roster.catalog.shape(topic.topic)
            if shape is not None:
                owned.setdefault(shape[0], []).extend(topic.partitions)
        return owned

    def abandon_join(self, waiter: object, now: Moment) -> Effects:
        """Do nothing: no join waits."""
        return Effects(None, [])

    # --- sync and heartbeat ------------------------------------------------------------------------------------

    def sync(self, request: SyncRequest, waiter: object, now: Moment) -> Effects:
        """Handle SyncGroup; the answer is in the effects of this call."""
        reply: Reply
        try:
            member = self._known(request.member_id, request.generation, request.group_instance_id)
            classic = _classic(member)
            if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol not in (
                None,
                classic.protocol,
            ):
                raise _inconsistent()
            if member.epoch < self._group.target_epoch and member.state is not MemberState.UNREVOKED:
                self._expect(member, now.monotonic)
                raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS, "There is a newer assignment; join again.")
            if classic.awaits_sync:
                classic.awaits_sync = False
                self._roster.mark(member)
            if member.state is not MemberState.UNREVOKED:
                member.rebalance_deadline = float("inf")
            self._group.touch(member, now.monotonic)
            reply = SyncReply(
                ErrorCode.NONE, self._group.encoded(member), CONSUMER_PROTOCOL_TYPE, classic.protocol
            )
        except BrokerError as error:
            reply = SyncReply(error.code)
        return self._effects(waiter, reply, now)

    def abandon_sync(self, waiter: object, now: Moment) -> Effects:
        """Do nothing: no sync waits."""
        return Effects(None, [])

    def heartbeat(
        self, member_id: str, generation: int, now: float, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Extend the session of a member. Nothing is persisted."""
        try:
            member = self._known(member_id, generation, group_instance_id)
        except BrokerError as error:
            return error.code
        self._group.touch(member, now)
        if not self._must_join(member):
            return ErrorCode.NONE
        self._expect(member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def _must_join(self, member: ConsumerMember) -> bool:
        group = self._group
        if member.epoch < group.target_epoch or member.state is MemberState.UNREVOKED:
            return True
        return member.state is MemberState.UNRELEASED and not is_blocked(
            member, group.target.get(member.member_id, NOTHING), self._roster.owners
        )

    def _expect(self, member: ConsumerMember, now: float) -> None:
        """Give a member its rebalance timeout for the next request, unless it runs already."""
        if member.rebalance_deadline == float("inf"):
            member.rebalance_deadline = now + member.rebalance_timeout_ms / 1000
            self._group.wake(member.rebalance_deadline)

    def _known(self, member_id: str, generation: int, instance_id: str | None) -> ConsumerMember:
        """Return a member. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION."""
        if self._group.is_dead:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group is being deleted; try again.")
        member = self._roster.known(member_id, instance_id)
        _classic(member)
        if generation != member.epoch:
            raise BrokerError(
                ErrorCode.ILLEGAL_GENERATION,
                f"The member {member_id!r} is in generation {member.epoch}, not in {generation}; join again.",
            )
        return member

    # --- leave -----------------------------------------------------------------------------------------------

    def leave(self, leavers: Sequence[Leaver], now: Moment) -> tuple[list[LeaveReply], Effects]:
        """Handle LeaveGroup of one or more members. An operator removes any static member by its instance alone."""
        replies = [LeaveReply(*leaver, self._leave(leaver, now)) for leaver in leavers]
        self._group.assign_if_due(now.monotonic)
        return replies, self._group.effects(now)

    def _leave(self, leaver: Leaver, now: Moment) -> ErrorCode:
        try:
            if leaver.group_instance_id is not None and not leaver.member_id:
                holder = self._roster.static.get(leaver.group_instance_id, NO_MEMBER)
                member = self._roster.find(holder)
            else:
                member = self._roster.known(*leaver)
                _classic(member)
        except BrokerError as error:
            return error.code
        self._group.remove_member(member, now.wall_ms)
        return ErrorCode.NONE

    # --- views -----------------------------------------------------------------------------------------------

    def standing(self, member_id: str) -> Standing:
        """Return what the group knows of a member. No member leads: the broker watches the topics."""
        member = self._roster.members.get(member_id)
        if member is None or member.classic is None:
            return Standing(False, topics=self._roster.topics)
        stable = not member.classic.awaits_sync and not self._must_join(member)
        return Standing(True, stable, member.epoch, self._group.encoded(member), topics=self._roster.topics)

    def _effects(self, waiter: object, reply: Reply, now: Moment) -> Effects:
        effects = self._group.effects(now)
        return Effects(effects.change, [*effects.answers, Answer(waiter, reply)], effects.becomes)


def _classic(member: ConsumerMember) -> ClassicSide:
    """Return the classic side of a member. Raises UNKNOWN_MEMBER_ID for a member of the consumer protocol."""
    if member.classic is None:
        raise BrokerError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"The member {member.member_id!r} sends ConsumerGroupHeartbeat; it is no member of the classic protocol.",
        )
    return member.classic


def _inconsistent() -> BrokerError:
    return BrokerError(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        "The group takes members of the protocol type 'consumer' that share an assignor with the others.",
    )
