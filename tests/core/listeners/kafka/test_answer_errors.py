"""Error codes are found in an answer of any shape."""

from __future__ import annotations

from msgspec import Struct

from core.listeners.kafka.answer_errors import error_codes
from core.listeners.kafka.dispatch import HANDLERS
from core.protocol.apis import APIS
from core.protocol.messages.api_versions import ApiVersionsResponse
from core.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from core.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from core.protocol.schema import Kind, fields_of


def test_codes_are_found_at_the_top_and_two_lists_deep() -> None:
    assert error_codes(18, ApiVersionsResponse(error_code=35)) == [35]
    partitions = [PartitionProduceResponse(error_code=code) for code in (0, 3, 0, 10)]
    topics = [TopicProduceResponse(partition_responses=partitions), TopicProduceResponse()]
    assert error_codes(0, ProduceResponse(responses=topics)) == [3, 10]


def test_codes_of_an_outer_and_an_inner_part_both_count() -> None:
    topic = MetadataResponseTopic(error_code=5, partitions=[MetadataResponsePartition(error_code=9)])
    assert error_codes(3, MetadataResponse(topics=[topic])) == [5, 9]


def test_an_answer_without_errors_has_none() -> None:
    for key, handler in HANDLERS.items():
        assert not error_codes(handler.key, APIS[key].response_type()), APIS[key].name


def _places(message: type[Struct]) -> int:
    inner = [f.struct for f in fields_of(message) if f.kind is Kind.ARRAY and f.struct is not None]
    return sum(f.name == "error_code" for f in fields_of(message)) + sum(map(_places, inner))


def _filled(message: type[Struct]) -> Struct:
    values = {
        f.name: 1 if f.name == "error_code" else [_filled(f.struct)]
        for f in fields_of(message)
        if f.name == "error_code" or (f.kind is Kind.ARRAY and f.struct is not None)
    }
    return message(**values)


def test_every_place_of_every_api_is_looked_at() -> None:
    for key, api in APIS.items():
        answer = _filled(api.response_type)
        assert len(error_codes(key, answer)) == _places(api.response_type), api.name
