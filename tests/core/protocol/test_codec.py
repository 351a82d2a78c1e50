"""The codec's functions: what they refuse, with which error, and what they pass by reference."""

from __future__ import annotations

from struct import pack
from typing import Annotated

import pytest

from core.protocol.codec import (
    decode_request,
    decode_response,
    decode_struct,
    encode_request,
    encode_response,
    encode_struct,
)
from core.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from core.protocol.primitives import ProtocolError
from core.protocol.schema import F, Int8, Message
from core.types import FileSlice


class NoFile:
    def fileno(self) -> int:
        raise AssertionError("never read")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_request_is_read_from_any_buffer_and_any_position(kind: type) -> None:
    message = MetadataRequest([MetadataRequestTopic(name="a")])
    raw = encode_request(3, 9, message)
    assert decode_request(3, 9, kind(b"header" + raw), 6) == message


def test_bytes_after_a_request_are_left_alone_but_not_after_a_response() -> None:
    assert decode_request(3, 1, encode_request(3, 1, MetadataRequest()) + b"abc") == MetadataRequest()
    raw = b"".join(encode_response(3, 1, MetadataResponse()))  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="3 bytes after the end"):
        decode_response(3, 1, raw + b"abc")


@pytest.mark.parametrize(
    ("key", "version", "says"),
    [(999, 0, "no API has the key 999"), (3, 99, "Metadata has no version 99"), (3, -1, "no version -1")],
)
def test_an_unknown_api_or_version_is_refused(key: int, version: int, says: str) -> None:
    for function in (decode_request, decode_response):
        with pytest.raises(ProtocolError, match=says):
            function(key, version, b"")
    for write in (encode_request, encode_response):
        with pytest.raises(ProtocolError, match=says):
            write(key, version, MetadataRequest())


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (pack(">ih", 2, 1) + b"a" + pack(">h", 9) + b"b", r"topics\[1\]\.name: length 9, 1 bytes left"),
        (pack(">ih", 1, -1), r"topics\[0\]\.name: length -1, may not be null"),
        (pack(">ih", 1, 2) + b"\xff\xfe", r"topics\[0\]\.name: not UTF-8"),
        (b"\0\0", "topics: the frame ends inside"),
        (pack(">i", -3), "topics: length -3"),
        (pack(">i", 100), "topics: 100 elements, 0 bytes left"),
    ],
)
def test_an_error_names_message_version_and_field(raw: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=f"^decode MetadataRequest v1 {says}"):
        decode_request(3, 1, raw)


def test_a_message_that_a_version_cannot_carry_is_refused_by_the_name_of_the_field() -> None:
    with pytest.raises(ProtocolError, match=r"^encode MetadataRequest v0 topics"):
        encode_request(3, 0, MetadataRequest(topics=None))  # null came with version 1
    with pytest.raises(ProtocolError, match=r"^encode MetadataRequest v1 topics\[\]\.name"):
        encode_request(3, 1, MetadataRequest([MetadataRequestTopic(name="x" * 40_000)]))
    with pytest.raises(ProtocolError, match=r"^encode MetadataResponse v1 controller_id … topics: "):
        encode_response(3, 1, MetadataResponse(controller_id=2**31))


def test_what_a_version_lacks_comes_back_as_its_default() -> None:
    message = MetadataRequest(None, allow_auto_topic_creation=False)
    assert decode_request(3, 1, encode_request(3, 1, message)) == MetadataRequest(None)
    assert decode_request(3, 4, encode_request(3, 4, message)) == message


@pytest.mark.parametrize("version", [3, 9, 13])
def test_records_are_views_into_the_frame(version: int) -> None:
    data = [PartitionProduceData(0, memoryview(b"r" * 1_000)), PartitionProduceData(1, memoryview(b"s"))]
    frame = bytearray(
        encode_request(0, version, ProduceRequest(topic_data=[TopicProduceData("t", partition_data=data)]))
    )
    read = decode_request(0, version, frame)
    assert isinstance(read, ProduceRequest)
    records = read.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview) and not records.readonly
    frame[frame.index(b"r")] = ord("R")
    assert bytes(records[:2]) == b"Rr"


@pytest.mark.parametrize("version", [0, 4, 11, 12, 13, 18])
def test_records_in_files_go_by_reference_and_their_length_is_told(version: int) -> None:
    small, large = FileSlice(NoFile(), 0, 1), FileSlice(NoFile(), 7, 70_000)
    memory = memoryview(bytes(70_000))
    partitions = [
        PartitionData(index, records=records) for index, records in enumerate((small, large, memory))
    ]
    parts = encode_response(
        1, version, FetchResponse(responses=[FetchableTopicResponse("t", partitions=partitions)])
    )
    assert [part for part in parts if isinstance(part, FileSlice)] == [small, large]
    assert any(part is memory for part in parts)
    raw = b"".join(bytes(part.length) if isinstance(part, FileSlice) else part for part in parts)
    read = decode_response(1, version, raw)
    assert isinstance(read, FetchResponse)
    assert [len(partition.records or b"") for partition in read.responses[0].partitions] == [
        1,
        70_000,
        70_000,
    ]  # type: ignore[arg-type]


class Sample(Message):
    number: Annotated[Int8, F("0+")] = 0
    late: Annotated[Int8, F("1+")] = 5


def test_a_message_that_is_no_api_is_written_and_read_too() -> None:
    assert encode_struct(1, Sample(1, 2)) == b"\1\2"
    assert decode_struct(Sample, 0, b"\1") == Sample(1, 5)
    with pytest.raises(ProtocolError):
        decode_struct(Sample, 0, b"\1\2")
    assert decode_struct(Sample, 0, b"\1\2", whole=False) == Sample(1, 5)
