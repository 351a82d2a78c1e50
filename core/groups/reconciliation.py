"""Which member owns which partition, and the next step of a member towards its target (KIP-848).

A partition has one owner from the moment at which it is assigned until the member's own list does not show it any
more, or the member is removed. `Owners` is that table; nothing else decides whether a partition is free.

One step of a member (`reconcile`), in this order:

    it keeps what it has of its target; all else that it has is to be revoked
    it still has partitions to revoke    UNREVOKED, in its old epoch
    else                                 it moves to the epoch of the target and gets what is free of it;
                                         UNRELEASED if other members own some of it, else STABLE
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from core.groups.consumer_member import ConsumerMember, MemberState, Owned, contains_any
from core.vocabulary.consumer_groups import Partitions

# The partitions that a member is to have.
MemberTarget = Mapping[UUID, frozenset[int]]
NOTHING: MemberTarget = {}


class Owners:
    """The owner of each partition that has one."""

    __slots__ = ("_owners",)

    def __init__(self) -> None:
        self._owners: dict[UUID, dict[int, str]] = {}

    def of(self, topic_id: UUID) -> Mapping[int, str]:
        """Return the owners of the partitions of a topic that have one."""
        return self._owners.get(topic_id, {})

    def claim(self, member: ConsumerMember) -> None:
        """Enter all partitions of a member that is loaded. Drop those that another member has, which cannot be."""
        for owned in (member.assigned, member.revoking):
            for topic_id, numbers in owned.items():
                mine = self._owners.setdefault(topic_id, {})
                for number in list(numbers):
                    if mine.setdefault(number, member.member_id) != member.member_id:
                        del numbers[number]

    def give(self, topic_id: UUID, number: int, member_id: str) -> None:
        """Enter the owner of a partition that has none."""
        self._owners.setdefault(topic_id, {})[number] = member_id

    def free(self, owned: Owned, member_id: str) -> None:
        """Remove the owner of partitions."""
        for topic_id, numbers in owned.items():
            owners = self._owners.get(topic_id)
            if owners is None:
                continue
            for number in numbers:
                if owners.get(number) == member_id:
                    del owners[number]
            if not owners:
                del self._owners[topic_id]

    def rename(self, member: ConsumerMember) -> None:
        """Enter a member that has taken the place of another member id."""
        for owned in (member.assigned, member.revoking):
            for topic_id, numbers in owned.items():
                self._owners.setdefault(topic_id, {}).update(dict.fromkeys(numbers, member.member_id))

    def __iter__(self) -> Iterator[tuple[UUID, int, str]]:
        """Iterate over (topic id, partition, member id), for tests."""
        return (
            (topic_id, number, member_id)
            for topic_id, owners in self._owners.items()
            for number, member_id in owners.items()
        )


class Step(NamedTuple):
    """What a step has changed: anything, and the assigned partitions."""

    changed: bool
    reassigned: bool


_NO_STEP = Step(False, False)


def reconcile(
    member: ConsumerMember,
    target: MemberTarget,
    target_epoch: int,
    owners: Owners,
    owned: Partitions | None,
) -> Step:
    """Take the next step of a member towards its target.

    `owned` is what the member says that it has, None if it says nothing.
    """
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return _NO_STEP
    if member.state is MemberState.UNREVOKED:
        if owned is None or contains_any(member.revoking, owned):
            return _NO_STEP
        owners.free(member.revoking, member.member_id)
        member.revoking = {}
        reached = min(member.epoch + 1, target_epoch)
    else:
        reached = member.epoch
    before = (member.epoch, member.state)
    revoked = _revoke(member, target)
    if revoked:
        if owned is None or contains_any(revoked, owned):
            member.revoking = revoked
            member.state = MemberState.UNREVOKED
            _move(member, reached)
            return Step(True, True)
        owners.free(revoked, member.member_id)
    gained, waits = _gain(member, target, target_epoch, owners)
    member.state = MemberState.UNRELEASED if waits else MemberState.STABLE
    _move(member, target_epoch)
    reassigned = bool(revoked) or gained
    return Step(reassigned or before != (member.epoch, member.state), reassigned)


def is_blocked(member: ConsumerMember, target: MemberTarget, owners: Owners) -> bool:
    """Return whether all partitions that a member still misses belong to other members."""
    return all(
        number in owners.of(topic_id)
        for topic_id, numbers in target.items()
        for number in numbers
        if number not in member.assigned.get(topic_id, {})
    )


def _move(member: ConsumerMember, epoch: int) -> None:
    if member.epoch != epoch:
        member.previous_epoch, member.epoch = member.epoch, epoch


def _revoke(member: ConsumerMember, target: MemberTarget) -> Owned:
    """Take from `assigned` what is not in the target, and return that."""
    revoked: Owned = {}
    for topic_id, numbers in list(member.assigned.items()):
        lost = numbers.keys() - target.get(topic_id, frozenset())
        if lost:
            revoked[topic_id] = {number: numbers[number] for number in sorted(lost)}
            kept = {number: epoch for number, epoch in numbers.items() if number not in lost}
            if kept:
                member.assigned[topic_id] = kept
            else:
                del member.assigned[topic_id]
    return revoked


def _gain(member: ConsumerMember, target: MemberTarget, epoch: int, owners: Owners) -> tuple[bool, bool]:
    """Assign what is free of the target; return whether something was, and whether something is not."""
    gained = waits = False
    for topic_id, numbers in target.items():
        mine = member.assigned.get(topic_id, {})
        missing = numbers - mine.keys()
        if not missing:
            continue
        taken = owners.of(topic_id)
        free = sorted(missing - taken.keys())
        waits = waits or len(free) < len(missing)
        if free:
            gained = True
            member.assigned[topic_id] = {**mine, **dict.fromkeys(free, epoch)}
            for number in free:
                owners.give(topic_id, number, member.member_id)
    return gained, waits
