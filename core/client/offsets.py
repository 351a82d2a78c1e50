"""ListOffsets: the offsets of partitions that belong to timestamps, to the start and to the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from core.client.cluster import ClusterClient
from core.errors import BrokerError
from core.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from core.types import TimestampOffset, TopicPartition

LATEST, EARLIEST = -1, -2


async def list_offsets(
    cluster: ClusterClient,
    asked: Mapping[TopicPartition, int],
    *,
    committed: bool = False,
    patience_ms: int | None = None,
) -> dict[TopicPartition, TimestampOffset | BrokerError]:
    """Return the offset of a timestamp (ms), of LATEST or of EARLIEST, for each partition.

    For a timestamp it is that of the first record that is not older, −1 if there is none. LATEST is the high
    watermark, with `committed` the last stable offset. Errors are results: UNKNOWN_TOPIC_OR_PARTITION,
    TOPIC_AUTHORIZATION_FAILED, LEADER_NOT_AVAILABLE, LinkLost, and others.
    """

    def build(items: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsTopic] = {}
        for tp, timestamp in items.items():
            one = ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamp)
            topic = topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic, partitions=[]))
            topic.partitions.append(one)
        return ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=list(topics.values()))

    return await cluster.ask_leaders(asked, build, _answers, patience_ms=patience_ms)


def _answers(answer: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, int, TimestampOffset]]:
    for topic in answer.topics:
        for one in topic.partitions:
            offset = one.old_style_offsets[0] if one.old_style_offsets else one.offset
            found = TimestampOffset(one.timestamp, offset, one.leader_epoch)
            yield TopicPartition(topic.name, one.partition_index), one.error_code, found
