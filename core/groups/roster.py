"""The members of a classic group: members, static members, pending members, the leader, the common protocols.

The roster keeps these consistent with each other and records what has changed since it was last stored. It has no
states and no time; the rules are in `group.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from core.errors import ErrorCode
from core.groups.effects import StoredMember
from core.groups.member import Member
from core.vocabulary.groups import NO_MEMBER, JoinRequest


class ProtocolCount:
    """The number of members that support each protocol. A protocol that a member names repeatedly counts once."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, member: Member) -> None:
        """Count the protocols of a member."""
        for name in dict.fromkeys(name for name, _ in member.protocols):
            self._counts[name] = self._counts.get(name, 0) + 1

    def remove(self, member: Member) -> None:
        """Remove the protocols of a member."""
        for name in dict.fromkeys(name for name, _ in member.protocols):
            left = self._counts[name] - 1
            if left:
                self._counts[name] = left
            else:
                del self._counts[name]

    def supports_any(self, protocols: Iterable[tuple[str, bytes]], members: int) -> bool:
        """Return whether all `members` members support one of `protocols`."""
        return any(self._counts.get(name, 0) == members for name, _ in protocols)

    def elect(self, members: Iterable[Member], count: int) -> str | None:
        """Return the protocol with the most votes. Each member votes for the first of its list that all support.

        In a tie the candidate of the earliest member wins, so that the choice is repeatable. Return None if the
        members have no protocol in common, which `supports_any` prevents at each join.
        """
        votes: dict[str, int] = {}
        for member in members:
            for name, _ in member.protocols:
                if self._counts[name] == count:
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=lambda name: votes[name]) if votes else None


class Roster:
    """The members of one group, in the order in which they joined."""

    __slots__ = ("_counts", "_removed", "_unsaved", "joining", "leader_id", "members", "pending", "static")

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        # Instance id → member id, of static members.
        self.static: dict[str, str] = {}
        # Member ids that were assigned (MEMBER_ID_REQUIRED) and have not joined yet → their deadline.
        self.pending: dict[str, float] = {}
        self.leader_id: str | None = None
        # The number of members that wait for the end of the join round.
        self.joining = 0
        self._counts = ProtocolCount()
        self._unsaved: dict[str, None] = {}
        self._removed: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self.members)

    @property
    def all_joined(self) -> bool:
        """Return whether the join round waits for no member."""
        return self.joining == len(self.members) and not self.pending

    @property
    def rebalance_timeout(self) -> float:
        """Return the longest rebalance timeout of all members, in seconds."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0) / 1000

    def validate(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return NONE for a member of the group, else UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID (KIP-345)."""
        if group_instance_id is not None:
            holder = self.static.get(group_instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, request: JoinRequest) -> bool:
        """Return whether all members support one of the protocols of a join."""
        return self._counts.supports_any(request.protocols, len(self.members))

    def elect_protocol(self) -> str | None:
        """Return the protocol that the members vote for; None without members."""
        return self._counts.elect(self.members.values(), len(self.members))

    def add(self, member: Member) -> None:
        """Add a member. The first one leads."""
        self.pending.pop(member.member_id, None)
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._counts.add(member)
        self.mark(member)

    def update(self, member: Member, request: JoinRequest) -> None:
        """Replace the protocols and timeouts of a member."""
        self._counts.remove(member)
        member.update(request)
        self._counts.add(member)
        self.mark(member)

    def remove(self, member_id: str) -> Member:
        """Remove a member. If it led, the earliest of the other members leads."""
        member = self.members.pop(member_id)
        self._counts.remove(member)
        if member.join_waiter is not None:
            self.joining -= 1
        if member.group_instance_id is not None and self.static.get(member.group_instance_id) == member_id:
            del self.static[member.group_instance_id]
        self._forget(member)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace(self, old: Member, new: Member) -> None:
        """Give a static member another id; it leads if it led. `old` must have no waiting requests."""
        led = self.leader_id == old.member_id
        self.remove(old.member_id)
        self.add(new)
        if led:
            self.leader_id = new.member_id

    def elect_joined_leader(self) -> bool:
        """Make a member lead that has joined this round; return False if there is none."""
        leader = self.members.get(self.leader_id or NO_MEMBER)
        if leader is None or leader.join_waiter is None:
            joined = next((m for m in self.members.values() if m.join_waiter is not None), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return True

    # --- what has to be stored -------------------------------------------------------------------------------

    def mark(self, member: Member) -> None:
        """Store the member with the group's next change."""
        self._unsaved[member.member_id] = None

    def mark_all(self) -> None:
        """Store all members with the group's next change."""
        for member in self.members.values():
            self.mark(member)

    def take_changes(self, group_id: str) -> tuple[tuple[StoredMember, ...], tuple[str, ...]]:
        """Return the members to store and the member ids to delete since the last call.

        A member whose first join has not been answered is held back: after a restart no client would know its id.
        """
        saved = []
        held_back: dict[str, None] = {}
        for member_id in self._unsaved:
            member = self.members[member_id]
            if member.is_new:
                held_back[member_id] = None
            else:
                saved.append(member.stored(group_id))
        removed = tuple(self._removed)
        self._unsaved = held_back
        self._removed = {}
        return tuple(saved), removed

    def _forget(self, member: Member) -> None:
        self._unsaved.pop(member.member_id, None)
        if not member.is_new:
            self._removed[member.member_id] = None
