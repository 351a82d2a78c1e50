"""One member of a consumer group (KIP-848), of the consumer or of the classic protocol.

`assigned` are the partitions that it may read, each with the epoch in which it got them; `revoking` those that it
still reads and must give up. No other member gets a partition of either. The member is in `epoch`, and was in
`previous_epoch` before: a heartbeat with that one repeats a request whose answer was lost.

    STABLE        it has all of its target in its epoch
    UNREVOKED     it must give up `revoking` first, and stays in its epoch until then
    UNRELEASED    it is in the newest epoch, and waits for partitions that other members give up
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import IntEnum
from math import inf
from uuid import UUID

import msgspec

from core.groups.effects import StoredModernMember
from core.vocabulary.consumer_groups import AWAY, ConsumerHeartbeat, MemberKind, Partitions
from core.vocabulary.groups import JoinRequest

# Partitions by topic id, each with the epoch of the group in which the member got it.
Owned = dict[UUID, dict[int, int]]

_encoder = msgspec.msgpack.Encoder()


class MemberState(IntEnum):
    """How far a member is on its way to its target, with Kafka's numbers."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2


class ClassicSide:
    """What a member of the classic protocol has in addition: its protocols, its own session, and what it waits for.

    `awaits_sync`: it has joined and does not know its assignment yet.
    """

    __slots__ = ("awaits_sync", "protocols", "session_timeout_ms")

    def __init__(self, protocols: tuple[tuple[str, bytes], ...], session_timeout_ms: int) -> None:
        self.protocols = protocols
        self.session_timeout_ms = session_timeout_ms
        self.awaits_sync = False

    @property
    def protocol(self) -> str:
        """The protocol that the member prefers; the broker answers with it."""
        return self.protocols[0][0]


class _Row(msgspec.Struct, array_like=True):
    """A member as it is stored."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: list[str]
    pattern: str | None
    matched: list[str]
    is_limited: bool
    assignor: str | None
    epoch: int
    previous_epoch: int
    state: int
    assigned: list[tuple[bytes, list[tuple[int, int]]]]
    revoking: list[tuple[bytes, list[tuple[int, int]]]]
    protocols: list[tuple[str, bytes]] | None = None
    session_timeout_ms: int = 0
    awaits_sync: bool = False


_decoder = msgspec.msgpack.Decoder(_Row)


class ConsumerMember:
    """A member. Times in monotonic seconds, timeouts in milliseconds."""

    __slots__ = (
        "assigned",
        "assignor",
        "classic",
        "client_host",
        "client_id",
        "deadline",
        "epoch",
        "instance_id",
        "is_limited",
        "is_unresolved",
        "matched",
        "may_describe",
        "member_id",
        "pattern",
        "previous_epoch",
        "rack_id",
        "rebalance_deadline",
        "rebalance_timeout_ms",
        "revoking",
        "state",
        "topics",
        "wanted",
    )

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.instance_id: str | None = None
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.rebalance_timeout_ms = -1
        self.topics: tuple[str, ...] = ()
        self.pattern: str | None = None
        # The topics that the pattern names now, as far as the client may see them.
        self.matched: frozenset[str] = frozenset()
        # All topics that the member subscribes to, whether they exist or not; `ConsumerRoster.look_again` sets it.
        self.wanted: frozenset[str] = frozenset()
        self.may_describe: Callable[[str], bool] | None = None
        # Whether the client sees only some topics; after a restart it is not known which until its next heartbeat.
        self.is_limited = False
        self.is_unresolved = False
        self.assignor: str | None = None
        self.epoch = 0
        self.previous_epoch = 0
        self.state = MemberState.STABLE
        self.assigned: Owned = {}
        self.revoking: Owned = {}
        self.classic: ClassicSide | None = None
        # When the session expires.
        self.deadline = inf
        # When the member must have given up its partitions; for the classic protocol, joined or synced.
        self.rebalance_deadline = inf

    @property
    def kind(self) -> MemberKind:
        """The protocol of the member."""
        return MemberKind.CONSUMER if self.classic is None else MemberKind.CLASSIC

    @property
    def is_away(self) -> bool:
        """Return whether this is a static member that has left for a while."""
        return self.epoch == AWAY

    def update(self, request: ConsumerHeartbeat) -> bool:
        """Adopt what a heartbeat changes, apart from the pattern's topics; return whether something did."""
        before = (
            self.instance_id, self.rack_id, self.rebalance_timeout_ms, self.topics, self.pattern, self.assignor,
            self.client_id, self.client_host, self.classic,
        )  # fmt: skip
        self.classic = None
        if request.group_instance_id is not None:
            self.instance_id = request.group_instance_id
        if request.rack_id is not None:
            self.rack_id = request.rack_id
        if request.rebalance_timeout_ms >= 0:
            self.rebalance_timeout_ms = request.rebalance_timeout_ms
        if request.topics is not None:
            self.topics = tuple(sorted(set(request.topics)))
        if request.pattern is not None:
            self.pattern = request.pattern or None
        if request.assignor is not None:
            self.assignor = request.assignor
        if request.client_id or request.client_host:
            self.client_id, self.client_host = request.client_id, request.client_host
        return before != (
            self.instance_id, self.rack_id, self.rebalance_timeout_ms, self.topics, self.pattern, self.assignor,
            self.client_id, self.client_host, self.classic,
        )  # fmt: skip

    def update_classic(self, request: JoinRequest, topics: Iterable[str], rack_id: str | None) -> None:
        """Adopt a JoinGroup."""
        self.classic = ClassicSide(request.protocols, request.session_timeout_ms)
        self.instance_id = request.group_instance_id
        self.rack_id = rack_id
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.topics = tuple(sorted(set(topics)))
        self.pattern, self.matched, self.may_describe = None, frozenset(), None
        self.is_limited = self.is_unresolved = False
        self.assignor = server_assignor(self.classic.protocol)
        self.client_id, self.client_host = request.client_id, request.client_host

    def holds(self, partitions: Partitions | None) -> bool:
        """Return whether all these partitions are assigned to the member."""
        return partitions is not None and all(
            self.assigned.get(topic_id, {}).keys() >= set(numbers) for topic_id, numbers in partitions.items()
        )

    def has_only(self, partitions: Partitions | None) -> bool:
        """Return whether these are all that is assigned to the member, or nothing is said.

        Other than in Kafka, a member that shows other partitions is told its assignment again: the answer that named
        it may be lost, and not each client then says everything again.
        """
        if partitions is None:
            return True
        shown = {topic_id: set(numbers) for topic_id, numbers in partitions.items() if numbers}
        return shown == {topic_id: numbers.keys() for topic_id, numbers in self.assigned.items() if numbers}

    def inherit(self, old: ConsumerMember) -> None:
        """Take the place of another member id of the same static member: all but the epochs."""
        for name in (
            "instance_id", "rack_id", "client_id", "client_host", "rebalance_timeout_ms", "topics", "pattern",
            "matched", "wanted", "may_describe", "is_limited", "is_unresolved", "assignor", "assigned", "classic",
        ):  # fmt: skip
            setattr(self, name, getattr(old, name))

    # --- rows ------------------------------------------------------------------------------------------------

    def stored(self, group_id: str) -> StoredModernMember:
        """Return the member's row."""
        classic = self.classic
        row = _Row(
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            list(self.topics),
            self.pattern,
            # Only needed where it cannot be found out again.
            sorted(self.matched) if self.is_limited else [],
            self.is_limited,
            self.assignor,
            self.epoch,
            self.previous_epoch,
            self.state,
            _flat(self.assigned),
            _flat(self.revoking),
            None if classic is None else list(classic.protocols),
            0 if classic is None else classic.session_timeout_ms,
            classic is not None and classic.awaits_sync,
        )
        return StoredModernMember(group_id, self.member_id, _encoder.encode(row))

    @classmethod
    def restored(cls, stored: StoredModernMember) -> ConsumerMember:
        """Restore a member from its row, without deadlines."""
        row = _decoder.decode(stored.details)
        member = cls(stored.member_id)
        member.instance_id, member.rack_id = row.instance_id, row.rack_id
        member.client_id, member.client_host = row.client_id, row.client_host
        member.rebalance_timeout_ms = row.rebalance_timeout_ms
        member.topics, member.pattern = tuple(row.topics), row.pattern
        member.matched = frozenset(row.matched)
        member.is_limited = member.is_unresolved = row.is_limited
        member.assignor = row.assignor
        member.epoch, member.previous_epoch = row.epoch, row.previous_epoch
        member.state = MemberState(row.state)
        member.assigned, member.revoking = _nested(row.assigned), _nested(row.revoking)
        if row.protocols is not None:
            member.classic = ClassicSide(tuple(row.protocols), row.session_timeout_ms)
            member.classic.awaits_sync = row.awaits_sync
        return member


def server_assignor(protocol: str) -> str:
    """Return the assignor of the broker that is nearest to an assignor of the classic protocol, as Kafka does."""
    return "range" if protocol == "range" else "uniform"


def as_partitions(owned: Owned) -> dict[UUID, tuple[int, ...]]:
    """Return partitions without their epochs, in ascending order."""
    return {topic_id: tuple(sorted(numbers)) for topic_id, numbers in owned.items() if numbers}


def contains_any(owned: Owned, partitions: Partitions) -> bool:
    """Return whether one of the partitions is among `owned`."""
    return any(not _disjoint(owned.get(topic_id), numbers) for topic_id, numbers in partitions.items())


def _disjoint(mine: dict[int, int] | None, numbers: Collection[int]) -> bool:
    return not mine or mine.keys().isdisjoint(numbers)


def _flat(owned: Owned) -> list[tuple[bytes, list[tuple[int, int]]]]:
    return [(topic_id.bytes, list(numbers.items())) for topic_id, numbers in owned.items()]


def _nested(rows: list[tuple[bytes, list[tuple[int, int]]]]) -> Owned:
    return {UUID(bytes=topic_id): dict(numbers) for topic_id, numbers in rows}
