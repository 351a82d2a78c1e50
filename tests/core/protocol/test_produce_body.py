"""`produce_body` writes what the codec would write of a Produce request."""

from __future__ import annotations

import pytest

from core.protocol.codec import encode_request
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from core.protocol.produce_body import produce_body

TOPICS: list[dict[str, list[tuple[int, bytes]]]] = [
    {"t": [(0, b"x" * 100)]},
    {"täglich": [(0, b""), (7, b"y" * 70_000)], "b" * 200: [(2**31 - 1, b"z" * 127)], "c": []},
]


@pytest.mark.parametrize("topics", TOPICS, ids=["one", "many"])
@pytest.mark.parametrize("version", range(3, 13))
def test_it_is_what_the_codec_writes(version: int, topics: dict[str, list[tuple[int, bytes]]]) -> None:
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=1_500,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[PartitionProduceData(index, memoryview(data)) for index, data in parts],
            )
            for name, parts in topics.items()
        ],
    )
    assert b"".join(produce_body(version, -1, 1_500, topics)) == encode_request(0, version, request)
