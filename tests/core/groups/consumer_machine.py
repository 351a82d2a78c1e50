"""A consumer group's machine at the end of short calls, with its durable state caught, and clients, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from core.groups.classic_in_consumer import ClassicInConsumer
from core.groups.consumer_group import ConsumerGroup, ConsumerGroupSettings
from core.groups.effects import (
    Answer,
    GroupChange,
    ModernChange,
    Moment,
    StoredGroup,
    StoredMember,
    StoredModern,
    StoredModernMember,
)
from core.groups.group import Group, GroupSettings
from core.groups.machines import Effects, Machine
from core.groups.migration import downgrade_to, upgrade
from core.groups.topic_catalog import TopicCatalog
from core.protocol.consumer_protocol import Subscription, TopicPartitions, encode_subscription
from core.vocabulary.consumer_groups import ConsumerHeartbeat, ConsumerHeartbeatReply
from core.vocabulary.groups import JoinReply, JoinRequest, Leaver, LeaveReply, SyncReply, SyncRequest
from core.vocabulary.member_metadata import assigned_partitions

REBALANCE_MS = 60_000
SESSION_MS = 10_000
CLASSIC = GroupSettings(initial_rebalance_delay=0.0, max_size=100)
Owned = dict[UUID, tuple[int, ...]]


def topic_id(number: int) -> UUID:
    """The id of the topic of this number."""
    return UUID(int=number)


T = topic_id(1)


def catalog(**topics: int) -> TopicCatalog:
    """Topics by name, with their partition counts; their ids are 1, 2, … in this order."""
    return TopicCatalog(
        (name, topic_id(number), count) for number, (name, count) in enumerate(topics.items(), start=1)
    )


class ModernDisk:
    """What a store would hold after the changes of a group of any type."""

    def __init__(self) -> None:
        self.group: StoredModern | None = None
        self.members: dict[str, StoredModernMember] = {}
        self.classic: StoredGroup | None = None
        self.classic_members: dict[str, StoredMember] = {}
        self.writes = 0

    def apply(self, effects: Effects) -> None:
        """Store the change of a step."""
        change = effects.change
        if change is None:
            return
        self.writes += 1
        if isinstance(change, ModernChange):
            if change.converted:
                self.classic, self.classic_members = None, {}
            self.group = change.group
            kept = {} if change.replace_members else self.members
            self.members = {name: row for name, row in kept.items() if name not in change.removed}
            self.members |= {row.member_id: row for row in change.members}
        elif isinstance(change, GroupChange):
            if change.converted:
                self.group, self.members = None, {}
            self.classic = change.group
            kept_classic = {} if change.replace_members else self.classic_members
            self.classic_members = {n: row for n, row in kept_classic.items() if n not in change.removed}
            self.classic_members |= {row.member_id: row for row in change.members}


class ConsumerMachine:
    """One group that begins as a consumer group, a clock, a disk. `stays`: it never becomes a classic one."""

    def __init__(
        self,
        topics: TopicCatalog | None = None,
        *,
        interval: float = 0.0,
        stays: bool = False,
        **settings: object,
    ) -> None:
        self.settings = ConsumerGroupSettings(assignment_interval=interval, **settings)  # type: ignore[arg-type]
        self.topics = topics or catalog(t=6)
        self.downgrade = downgrade_to(CLASSIC)
        self._becomes = None if stays else self.downgrade
        self.machine: Machine = ConsumerGroup("g", self.settings, self.topics, self._becomes)
        self.now = 1_000.0
        self.disk = ModernDisk()
        self.answers: list[Answer] = []

    @property
    def group(self) -> ConsumerGroup:
        """The machine, which must be a consumer group's now."""
        assert isinstance(self.machine, ConsumerGroup)
        return self.machine

    @property
    def moment(self) -> Moment:
        return Moment(self.now, int(self.now * 1000))

    def settle(self, effects: Effects) -> None:
        """Store a step and keep its answers."""
        self.disk.apply(effects)
        if effects.becomes is not None:
            self.machine = effects.becomes
        self.answers += effects.answers

    # --- the consumer protocol ---------------------------------------------------------------------------------

    def beat(self, member_id: str, epoch: int, **fields: object) -> ConsumerHeartbeatReply:
        """A heartbeat with these fields, and nothing else."""
        request = ConsumerHeartbeat(member_id, epoch, **fields)  # type: ignore[arg-type]
        reply, effects = self.group.beat(request, self.moment)
        self.settle(effects)
        return reply

    def join(
        self, member_id: str, *topics: str, instance: str | None = None, **more: object
    ) -> ConsumerHeartbeatReply:
        """Join with epoch 0."""
        fields: dict[str, object] = {
            "topics": topics or (None if "pattern" in more else ("t",)),
            "rebalance_timeout_ms": REBALANCE_MS,
            "owned": {},
            "group_instance_id": instance,
            "client_id": "c",
            "client_host": "/h",
        }
        return self.beat(member_id, 0, **{**fields, **more})

    def owns(self, member_id: str) -> list[int]:
        """The partitions of the first topic that are assigned to a member."""
        return sorted(self.group.roster.members[member_id].assigned.get(T, ()))

    # --- the classic protocol ----------------------------------------------------------------------------------

    def classic_join(
        self,
        member_id: str = "",
        *topics: str,
        owned: Iterable[tuple[str, int]] = (),
        new_id: str = "new",
        protocol: str = "cooperative-sticky",
        instance: str | None = None,
        **more: object,
    ) -> JoinReply:
        """A JoinGroup; `owned` is what a cooperative client says."""
        request = JoinRequest(
            member_id, "consumer", ((protocol, subscription(topics or ("t",), owned)),), SESSION_MS, REBALANCE_MS,
            "c", "/h", instance, new_id, **more,  # type: ignore[arg-type]
        )  # fmt: skip
        self.answers.clear()
        self.settle(ClassicInConsumer(self.group).join(request, "w", self.moment))
        reply = self.answers[-1].reply
        assert isinstance(reply, JoinReply)
        return reply

    def sync(self, member_id: str, generation: int, instance: str | None = None) -> SyncReply:
        """A SyncGroup."""
        request = SyncRequest(member_id, generation, (), instance)
        self.answers.clear()
        self.settle(ClassicInConsumer(self.group).sync(request, "w", self.moment))
        reply = self.answers[-1].reply
        assert isinstance(reply, SyncReply)
        return reply

    def heartbeat(self, member_id: str, generation: int) -> object:
        """A Heartbeat."""
        return ClassicInConsumer(self.group).heartbeat(member_id, generation, self.now)

    def leave(self, *leavers: Leaver) -> list[LeaveReply]:
        """A LeaveGroup."""
        replies, effects = ClassicInConsumer(self.group).leave(leavers, self.moment)
        self.settle(effects)
        return replies

    # --- time and topics ---------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let time pass; the timer fires when it is due."""
        end = self.now + seconds
        while self.machine.wake_at <= end:
            self.now = max(self.now, self.machine.wake_at)
            self.settle(self.machine.tick(self.moment))
        self.now = end

    def change(self, topics: TopicCatalog) -> None:
        """Adopt other topics."""
        self.topics = topics
        self.settle(self.machine.topics_changed(topics, self.moment))

    def restart(self) -> None:
        """Another machine, made of what is stored."""
        if self.disk.group is not None:
            rows = list(self.disk.members.values())
            self.machine = ConsumerGroup.restored(
                self.disk.group, rows, self.settings, self.topics, self.now, self._becomes
            )
        elif self.disk.classic is not None:
            classic = list(self.disk.classic_members.values())
            self.machine = Group.restored(self.disk.classic, classic, CLASSIC, self.now)
        else:
            self.machine = ConsumerGroup("g", self.settings, self.topics, self._becomes)

    def upgrade(self, group: Group) -> ConsumerGroup:
        """The consumer group that a classic group becomes."""
        return upgrade(group, self.settings, self.topics, self.downgrade, self.now)


def subscription(topics: Iterable[str], owned: Iterable[tuple[str, int]] = ()) -> bytes:
    """Consumer metadata, version 1."""
    held: dict[str, list[int]] = {}
    for topic, number in owned:
        held.setdefault(topic, []).append(number)
    wanted = Subscription(list(topics), None, [TopicPartitions(t, p) for t, p in held.items()])
    return encode_subscription(wanted, 1)


def numbers(assignment: Mapping[UUID, Iterable[int]] | None) -> list[int]:
    """The partitions of the first topic in an answer."""
    assert assignment is not None
    return sorted(assignment.get(T, ()))


def of_sync(reply: SyncReply) -> list[int]:
    """The partition numbers in the answer to a SyncGroup."""
    return sorted(tp.partition for tp in assigned_partitions(reply.assignment))
