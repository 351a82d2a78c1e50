"""Committed offsets of a consumer group: the progress of a job, for tools that show lag."""

from __future__ import annotations

from collections.abc import Mapping

from core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from pipeline.wire.cluster import Cluster, TopicPartition
from pipeline.wire.coordinator import GROUP, coordinator
from pipeline.wire.errors import refuse

OFFSET_COMMIT, OFFSET_FETCH = 8, 9


def commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit offsets for a group without members, patiently.

    Raises KafkaError, for instance UNKNOWN_MEMBER_ID when the group has members of its own.
    """
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        one = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        topics.setdefault(topic, OffsetCommitRequestTopic(name=topic, partitions=[])).partitions.append(one)
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, topics=list(topics.values())
    )

    def ask() -> None:
        answer = coordinator(cluster, group, GROUP).request(OFFSET_COMMIT, request, OffsetCommitResponse)
        for topic in answer.topics:
            for partition in topic.partitions:
                what = f"commit of group {group}, topic {topic.name}, partition {partition.partition_index}"
                refuse(partition.error_code, what)

    cluster.patiently(ask)


def committed(cluster: Cluster, group: str, topics: Mapping[str, list[int]]) -> dict[TopicPartition, int]:
    """The offsets that a group has committed in these partitions; those without one are left out."""
    request = OffsetFetchRequest(
        group_id=group,
        topics=[
            OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))
            for topic, partitions in topics.items()
        ],
    )

    def ask() -> dict[TopicPartition, int]:
        answer = coordinator(cluster, group, GROUP).request(OFFSET_FETCH, request, OffsetFetchResponse)
        refuse(answer.error_code, f"OffsetFetch of group {group}")
        found = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                refuse(partition.error_code, f"OffsetFetch of group {group}, topic {topic.name}")
                if partition.committed_offset >= 0:
                    found[topic.name, partition.partition_index] = partition.committed_offset
        return found

    return cluster.patiently(ask)
