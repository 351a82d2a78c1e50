"""The members of a consumer group: members, static members, owners of partitions, what members subscribe to.

The roster keeps these consistent with each other and records what has changed since it was last stored. It has no
epochs of the group and no time; the rules are in `consumer_group.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from core.errors import BrokerError, ErrorCode
from core.groups.consumer_member import ConsumerMember
from core.groups.effects import StoredModernMember
from core.groups.machines import Catalog
from core.groups.reconciliation import Owners

# A topic's name, with its id and its number of partitions as they are now.
Shapes = dict[str, tuple[UUID, int]]


class ConsumerRoster:
    """The members of one group, in the order in which they joined."""

    __slots__ = (
        "_ids",
        "_removed",
        "_unsaved",
        "catalog",
        "classic",
        "members",
        "owners",
        "shapes",
        "static",
        "topics",
    )

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.members: dict[str, ConsumerMember] = {}
        # Instance id → member id, of static members.
        self.static: dict[str, str] = {}
        # The number of members of the classic protocol.
        self.classic = 0
        self.owners = Owners()
        # The topics that members subscribe to and that exist.
        self.shapes: Shapes = {}
        self.topics: frozenset[str] = frozenset()
        self._ids: dict[frozenset[str], frozenset[UUID]] = {}
        self._unsaved: dict[str, None] = {}
        self._removed: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self.members)

    def ids_of(self, member: ConsumerMember) -> frozenset[UUID]:
        """Return the ids of the topics that a member subscribes to and that exist."""
        found = self._ids.get(member.wanted)
        if found is None:
            shapes = (self.shapes.get(topic) for topic in member.wanted)
            found = self._ids[member.wanted] = frozenset(shape[0] for shape in shapes if shape is not None)
        return found

    def look_again(self) -> bool:
        """Find out again which topics are subscribed to; return whether they or their partitions are others.

        Sets `topics`, all that are subscribed to, whether they exist or not.
        """
        kinds = {member.wanted for member in self.members.values()}
        self.topics = frozenset().union(*kinds)
        shapes: Shapes = {}
        for topic in sorted(self.topics):
            shape = self.catalog.shape(topic)
            if shape is not None:
                shapes[topic] = shape
        self._ids.clear()
        changed = shapes != self.shapes
        self.shapes = shapes
        return changed

    def refresh(self, member: ConsumerMember) -> bool:
        """Set what a member subscribes to; return whether that is something else. `look_again` after it."""
        wanted = member.matched.union(member.topics) if member.topics else member.matched
        if wanted == member.wanted:
            return False
        member.wanted = wanted
        return True

    def resolve(self, member: ConsumerMember) -> bool:
        """Find the topics of a member's pattern; return whether they are others.

        After a restart a member that sees only some topics keeps what it had until its client says which it sees.
        """
        if member.pattern is None:
            found: frozenset[str] = frozenset()
        elif member.is_unresolved:
            found = frozenset(topic for topic in member.matched if self.catalog.shape(topic) is not None)
        else:
            found = self._matching(member.pattern)
            if member.may_describe is not None:
                found = frozenset(topic for topic in found if member.may_describe(topic))
        changed = found != member.matched
        if changed:
            member.matched = found
        return changed

    def _matching(self, pattern: str) -> frozenset[str]:
        try:
            return self.catalog.matching(pattern)
        except BrokerError:
            # Accepted by an earlier run with larger limits.
            return frozenset()

    # --- members -----------------------------------------------------------------------------------------------

    def find(self, member_id: str) -> ConsumerMember:
        """Return a member. Raises UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise BrokerError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"The group has no member {member_id!r}; join with epoch 0."
            )
        return member

    def find_static(self, instance_id: str, member_id: str) -> ConsumerMember:
        """Return the member of an instance. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID if it has another id."""
        holder = self.static.get(instance_id)
        if holder is None:
            raise BrokerError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"The group has no instance {instance_id!r}; join with epoch 0."
            )
        if holder != member_id:
            raise BrokerError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Instance {instance_id!r} is the member {holder!r}, not {member_id!r}: another client uses this id.",
            )
        return self.members[holder]

    def known(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return a member by its id, and by its instance id if it names one. Raises as the two above."""
        return self.find(member_id) if instance_id is None else self.find_static(instance_id, member_id)

    def add(self, member: ConsumerMember) -> None:
        """Add a member, with the partitions that it has."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self.classic += member.classic is not None
        self.owners.claim(member)
        self.mark(member)

    def remove(self, member: ConsumerMember) -> None:
        """Remove a member; its partitions are free."""
        member_id = member.member_id
        del self.members[member_id]
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]
        self.classic -= member.classic is not None
        self.owners.free(member.assigned, member_id)
        self.owners.free(member.revoking, member_id)
        self._unsaved.pop(member_id, None)
        self._removed[member_id] = None

    def replace(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """Give a static member another id. It keeps its partitions, but for those that it had to give up."""
        self.remove(old)
        new.inherit(old)
        self.add(new)

    # --- what has to be stored -------------------------------------------------------------------------------

    def mark(self, member: ConsumerMember) -> None:
        """Store the member with the group's next change."""
        self._unsaved[member.member_id] = None
        self._removed.pop(member.member_id, None)

    def mark_all(self) -> None:
        """Store all members with the group's next change."""
        for member in self.members.values():
            self.mark(member)

    @property
    def is_changed(self) -> bool:
        """Return whether a member has to be stored or deleted."""
        return bool(self._unsaved or self._removed)

    def take_changes(self, group_id: str) -> tuple[tuple[StoredModernMember, ...], tuple[str, ...]]:
        """Return the members to store and the member ids to delete since the last call."""
        saved = tuple(self.members[member_id].stored(group_id) for member_id in self._unsaved)
        removed = tuple(self._removed)
        self._unsaved, self._removed = {}, {}
        return saved, removed

    def votes(self) -> Iterable[str]:
        """Return the assignors that members ask for, one for each member that does."""
        return (member.assignor for member in self.members.values() if member.assignor is not None)
