"""Assignment of partitions on behalf of a leader that cannot compute one, such as a shell script.

A member of this broker's own may be elected leader of a group in which Java, librdkafka and Node clients sit. It
must then do what any client would: read the members' subscriptions, assign by the elected strategy, write
assignments that every client understands. The names are those of Kafka's own assignors, so that members of both
kinds agree on one:

- `range`: topic by topic, the members in order get neighbouring partitions;
- `roundrobin`: all partitions of all topics, dealt out like cards to the members in order;
- `sticky`: as even as can be, and whoever has a partition keeps it;
- `cooperative-sticky`: the same, but a partition that moves is first taken from its owner and given to the new
  one in the next round, which the owner starts when it has let go (KIP-429).

Members are in order of their instance id where they have one, else of their member id. Where the numbers do not
come out even the extra partitions go to the earlier members: never 4-5, always 5-4 (Kafka 0.7 notes,
"Rebalancing"). Only partitions of topics that exist are assigned; a member gets only topics that it asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from core.protocol.consumer_protocol import (
    Assignment,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from core.protocol.primitives import ProtocolError
from core.types import TopicPartition
from core.vocabulary.groups import JoinedMember


@dataclass(slots=True)
class Subscriber:
    """A member as an assignor sees it: what it wants, what it says it owns, what it had before."""

    member_id: str
    topics: frozenset[str]
    group_instance_id: str | None = None
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    previous: frozenset[TopicPartition] = frozenset()
    assigned: list[TopicPartition] = field(default_factory=list)

    @property
    def order(self) -> tuple[bool, str]:
        """Where the member stands among the others: static ones first, each kind by its id."""
        if self.group_instance_id is not None:
            return (False, self.group_instance_id)
        return (True, self.member_id)


Strategy = Callable[[Sequence[Subscriber], Sequence[TopicPartition]], None]


def assign(
    protocol: str,
    members: Iterable[JoinedMember],
    partitions: Callable[[str], int],
    previous: Mapping[str, bytes],
) -> list[tuple[str, bytes]]:
    """(member id, assignment) of every member, for a SyncGroup.

    `members` are what the leader was told; `partitions` says how many partitions a topic has, 0 if there is no
    such topic; `previous` are the assignments of the generation before, by member id. A protocol that is not
    known is assigned as `range`; a member whose subscription cannot be read gets nothing.
    """
    subscribers = sorted((_subscriber(member, previous) for member in members), key=lambda s: s.order)
    topics = sorted({topic for subscriber in subscribers for topic in subscriber.topics})
    all_partitions = [TopicPartition(topic, p) for topic in topics for p in range(partitions(topic))]
    STRATEGIES.get(protocol, assign_range)(subscribers, all_partitions)
    return [(subscriber.member_id, encode(subscriber.assigned)) for subscriber in subscribers]


def encode(assigned: Iterable[TopicPartition]) -> bytes:
    """An assignment in version 0, which every client reads."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(assigned):
        topics.setdefault(topic, []).append(partition)
    return encode_assignment(Assignment([TopicPartitions(t, p) for t, p in topics.items()]), 0)


def decode(assignment: bytes) -> frozenset[TopicPartition]:
    """The partitions of an assignment; none if it cannot be read."""
    try:
        topics = decode_assignment(assignment).assigned_partitions
    except ProtocolError:
        return frozenset()
    return _flat(topics)


def _flat(topics: Iterable[TopicPartitions]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(t.topic, p) for t in topics for p in t.partitions)


def _subscriber(member: JoinedMember, previous: Mapping[str, bytes]) -> Subscriber:
    had = decode(previous.get(member.member_id, b""))
    try:
        subscription = decode_subscription(member.metadata)
    except ProtocolError:
        return Subscriber(member.member_id, frozenset(), member.group_instance_id, previous=had)
    return Subscriber(
        member.member_id,
        frozenset(subscription.topics),
        member.group_instance_id,
        _flat(subscription.owned_partitions),
        subscription.generation_id,
        had,
    )


# --- strategies: each fills `assigned` of the subscribers, which come in order ----------------------------------


def assign_range(subscribers: Sequence[Subscriber], partitions: Sequence[TopicPartition]) -> None:
    """Topic by topic, neighbouring partitions for each member that wants the topic."""
    for topic in dict.fromkeys(partition.topic for partition in partitions):
        wanting = [subscriber for subscriber in subscribers if topic in subscriber.topics]
        mine = [partition for partition in partitions if partition.topic == topic]
        share, extra = divmod(len(mine), len(wanting))
        start = 0
        for index, subscriber in enumerate(wanting):
            end = start + share + (index < extra)
            subscriber.assigned += mine[start:end]
            start = end


def assign_roundrobin(subscribers: Sequence[Subscriber], partitions: Sequence[TopicPartition]) -> None:
    """Partition by partition to the next member that wants its topic."""
    turn = 0
    for partition in partitions:
        while partition.topic not in subscribers[turn % len(subscribers)].topics:
            turn += 1
        subscribers[turn % len(subscribers)].assigned.append(partition)
        turn += 1


def assign_sticky(subscribers: Sequence[Subscriber], partitions: Sequence[TopicPartition]) -> None:
    """As even as the subscriptions allow; of all even ways one that leaves most partitions where they are."""
    _keep(subscribers, partitions)
    if len({subscriber.topics for subscriber in subscribers}) == 1:
        _share_equally(subscribers, partitions)
    else:
        _share_fairly(subscribers, partitions)


def assign_cooperative_sticky(
    subscribers: Sequence[Subscriber], partitions: Sequence[TopicPartition]
) -> None:
    """Sticky, but what another member still owns is given out only when that one has let go of it."""
    assign_sticky(subscribers, partitions)
    owners = {partition: s.member_id for s in subscribers for partition in s.owned}
    for subscriber in subscribers:
        subscriber.assigned = [
            partition
            for partition in subscriber.assigned
            if owners.get(partition, subscriber.member_id) == subscriber.member_id
        ]


STRATEGIES: dict[str, Strategy] = {
    "range": assign_range,
    "roundrobin": assign_roundrobin,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperative_sticky,
    # What kafkajs calls its own; the blobs are the same.
    "RoundRobinAssigner": assign_roundrobin,
}


def _keep(subscribers: Sequence[Subscriber], partitions: Sequence[TopicPartition]) -> None:
    """Everybody keeps what it had. What a member says that it owns counts before what the broker remembers;
    of two that say so the one that speaks of the newer generation is believed (KIP-792)."""
    exist = set(partitions)
    taken: set[TopicPartition] = set()
    newest = max((subscriber.generation for subscriber in subscribers), default=-1)
    said = [(s, s.owned) for s in subscribers if s.generation == newest]
    remembered = [(s, s.previous) for s in subscribers]
    for subscriber, claimed in said + remembered:
        for partition in sorted(claimed):
            if partition in exist and partition not in taken and partition.topic in subscriber.topics:
                taken.add(partition)
                subscriber.assigned.append(partition)


def _share_equally(subscribers: Sequence[Subscriber], partitions: Sequence[TopicPartition]) -> None:
    """All want the same: everybody gets the share, some one more, first those that have it, then the earlier."""
    share, extra = divmod(len(partitions), len(subscribers))
    for subscriber in subscribers:
        keep = share
        if extra and len(subscriber.assigned) > share:
            keep, extra = share + 1, extra - 1
        del subscriber.assigned[keep:]
    free = iter(_free(subscribers, partitions))
    for subscriber in subscribers:
        missing = share - len(subscriber.assigned)
        if extra and missing >= 0:
            missing, extra = missing + 1, extra - 1
        subscriber.assigned += [next(free) for _ in range(missing)]


def _share_fairly(subscribers: Sequence[Subscriber], partitions: Sequence[TopicPartition]) -> None:
    """Members want different topics: what is free goes to whom has least, then the rich give to the poor.

    Every gift makes the sum of the squares of the shares smaller, so there is an end to it.
    """
    wanting = {
        topic: [subscriber for subscriber in subscribers if topic in subscriber.topics]
        for topic in dict.fromkeys(partition.topic for partition in partitions)
    }
    for partition in _free(subscribers, partitions):
        min(wanting[partition.topic], key=_share).assigned.append(partition)
    moved = True
    while moved:
        moved = False
        poorest = min(len(subscriber.assigned) for subscriber in subscribers)
        for giver in sorted(subscribers, key=_share, reverse=True):
            if len(giver.assigned) - poorest < 2:
                break
            for partition in reversed(giver.assigned.copy()):
                taker = min(wanting[partition.topic], key=_share)
                if len(giver.assigned) - len(taker.assigned) >= 2:
                    giver.assigned.remove(partition)
                    taker.assigned.append(partition)
                    moved = True


def _free(subscribers: Sequence[Subscriber], partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    taken = {partition for subscriber in subscribers for partition in subscriber.assigned}
    return [partition for partition in partitions if partition not in taken]


def _share(subscriber: Subscriber) -> int:
    return len(subscriber.assigned)
