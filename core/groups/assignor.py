"""Assign partitions for a leader that cannot do it, such as a shell script.

A member that the broker hosts may be elected leader of a group of Java, librdkafka and Node clients. Then the broker
does what any client would: it reads the members' subscriptions, assigns by the elected strategy, and writes
assignments that every client can read. The names are those of Kafka's own assignors, so that members of both kinds
can agree on one:

- `range`: topic by topic, each member in order gets neighboring partitions;
- `roundrobin`: all partitions of all topics, one by one to the members in order;
- `sticky`: as even as possible, and a member keeps the partitions that it has;
- `cooperative-sticky`: the same, but a partition that moves is first revoked from its owner and assigned to the new
  owner in the next round, which the old owner starts after that (KIP-429).

Members are in order of their instance id if they have one, else of their member id. If the numbers are not even, the
earlier members get one partition more: never 4-5, always 5-4 (Kafka 0.7 notes, "Rebalancing"). Only partitions of
topics that exist are assigned; a member gets only topics that it subscribes to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from core.protocol.consumer_protocol import TopicPartitions, decode_subscription
from core.protocol.primitives import ProtocolError
from core.types import TopicPartition
from core.vocabulary.groups import JoinedMember
from core.vocabulary.member_metadata import assigned_partitions, assignment_of


@dataclass(slots=True)
class Subscriber:
    """A member as an assignor sees it: its topics, the partitions that it claims, and those that it had before."""

    member_id: str
    topics: frozenset[str]
    group_instance_id: str | None = None
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    previous: frozenset[TopicPartition] = frozenset()
    assigned: list[TopicPartition] = field(default_factory=list)

    @property
    def order(self) -> tuple[bool, str]:
        """Return the sort key: static members first, each kind by its id."""
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
    """Return (member id, assignment) of every member, for a SyncGroup.

    `members` are those of the leader's JoinGroup answer; `partitions` returns the partition count of a topic, 0 if it
    does not exist; `previous` are the assignments of the previous generation, by member id. An unknown protocol is
    assigned as `range`; a member whose subscription is unreadable gets no partitions.
    """
    subscribers = sorted((_subscriber(member, previous) for member in members), key=lambda s: s.order)
    topics = sorted({topic for subscriber in subscribers for topic in subscriber.topics})
    all_partitions = [TopicPartition(topic, p) for topic in topics for p in range(partitions(topic))]
    STRATEGIES.get(protocol, assign_range)(subscribers, all_partitions)
    return [(subscriber.member_id, assignment_of(subscriber.assigned)) for subscriber in subscribers]


def _flat(topics: Iterable[TopicPartitions]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(t.topic, p) for t in topics for p in t.partitions)


def _subscriber(member: JoinedMember, previous: Mapping[str, bytes]) -> Subscriber:
    had = assigned_partitions(previous.get(member.member_id, b""))
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


# --- strategies: each fills `assigned` of the subscribers, which are in order -----------------------------------


def assign_range(subscribers: Sequence[Subscriber], partitions: Sequence[TopicPartition]) -> None:
    """Assign topic by topic, neighboring partitions to each member that subscribes to the topic."""
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
    """Assign partition by partition to the next member that subscribes to its topic."""
    turn = 0
    for partition in partitions:
        while partition.topic not in subscribers[turn % len(subscribers)].topics:
            turn += 1
        subscribers[turn % len(subscribers)].assigned.append(partition)
        turn += 1


def assign_sticky(subscribers: Sequence[Subscriber], partitions: Sequence[TopicPartition]) -> None:
    """Assign as evenly as the subscriptions allow, with as few moves as possible."""
    _keep(subscribers, partitions)
    if len({subscriber.topics for subscriber in subscribers}) == 1:
        _share_equally(subscribers, partitions)
    else:
        _share_fairly(subscribers, partitions)


def assign_cooperative_sticky(
    subscribers: Sequence[Subscriber], partitions: Sequence[TopicPartition]
) -> None:
    """Assign as `sticky`, but leave out partitions that another member still owns."""
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
    # The name in kafkajs; the encoding is the same.
    "RoundRobinAssigner": assign_roundrobin,
}


def _keep(subscribers: Sequence[Subscriber], partitions: Sequence[TopicPartition]) -> None:
    """Let each member keep what it had. A member's claim counts before its previous assignment; of two claims the one
    of the newer generation counts (KIP-792)."""
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
    """Give each member the same share if all subscribe to the same topics.

    Extra partitions stay where they are, or go to the earlier members.
    """
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
    """Share evenly if members subscribe to different topics: free partitions go to the member that has fewest, then
    members that have more give to those that have fewer.

    Every move makes the sum of the squares of the shares smaller, so the loop ends.
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
