"""What Metadata says of a cluster, as values: brokers, topics, leaders."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from core.client.failures import error_code
from core.client.settings import Address
from core.errors import ErrorCode
from core.protocol.messages.metadata import MetadataResponseTopic


class BrokerMetadata(NamedTuple):
    """A broker of the cluster."""

    broker_id: int
    address: Address
    rack: str | None = None


class PartitionMetadata(NamedTuple):
    """One partition. `leader` is −1 while there is none, `leader_epoch` −1 where the broker does not say it."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: ErrorCode = ErrorCode.NONE


class TopicMetadata(NamedTuple):
    """One topic; `topic_id` is the nil UUID from brokers without topic ids (before Kafka 2.8).

    `partitions` are in the order of their numbers. `operations` are the bits of the operations that the client may
    do (KIP-430), −2³¹ if they were not asked for. `read_at` is the clock's monotonic time of the answer.
    """

    name: str
    topic_id: UUID
    internal: bool
    partitions: tuple[PartitionMetadata, ...]
    operations: int
    read_at: float

    def partition(self, number: int) -> PartitionMetadata | None:
        """Return a partition by its number; None if there is none."""
        # Kafka numbers partitions from 0 without gaps; an answer during a change may lack one.
        if 0 <= number < len(self.partitions) and self.partitions[number].partition == number:
            return self.partitions[number]
        return next((one for one in self.partitions if one.partition == number), None)

    def same_as(self, other: TopicMetadata) -> bool:
        """Return whether nothing but the time of reading differs."""
        return self._replace(read_at=0.0) == other._replace(read_at=0.0)


def topic_of(topic: MetadataResponseTopic, read_at: float, old: TopicMetadata | None) -> TopicMetadata:
    """Return a topic of an answer.

    A partition of an `old` answer with a newer leader epoch is kept: another broker has not learned of the leader
    yet (KIP-320). That does not hold for a topic with another id.
    """
    partitions = [
        PartitionMetadata(
            one.partition_index,
            one.leader_id,
            one.leader_epoch,
            tuple(one.replica_nodes),
            tuple(one.isr_nodes),
            tuple(one.offline_replicas),
            error_code(one.error_code),
        )
        for one in topic.partitions
    ]
    partitions.sort()
    if old is not None and old.topic_id == topic.topic_id:
        for index, one in enumerate(partitions):
            before = old.partition(one.partition)
            if before is not None and 0 <= one.leader_epoch < before.leader_epoch:
                partitions[index] = before
    return TopicMetadata(
        topic.name or "",
        topic.topic_id,
        topic.is_internal,
        tuple(partitions),
        topic.topic_authorized_operations,
        read_at,
    )
