"""Frames and connections: order, silence, what is not served, and what no client should send."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from core.errors import ErrorCode
from core.protocol.apis import APIS
from core.protocol.messages.api_versions import ApiVersionsRequest
from core.protocol.messages.describe_acls import DescribeAclsRequest
from core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from core.protocol.messages.produce import ProduceRequest
from core.protocol.protocol_versions import decode_response as decode_protocol_versions
from core.protocol.schema import Message
from tests.broker_process import BrokerProcess
from tests.clients.wire import (
    API_VERSIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    USUAL,
    Wire,
    batch,
    fetch_request,
    frame,
    produce_request,
)

HUGE = 0x7FFF_FFFF


def test_acks_0_has_no_answer_and_the_next_request_has_one(wire: Wire) -> None:
    wire.create_topic("silent")
    wire.send(PRODUCE, 9, produce_request("silent", batch(), acks=0))
    assert wire.is_silent()
    assert wire.produce("silent", batch(), acks=1).base_offset == 1


def test_an_acks_0_produce_that_fails_closes_the_connection_or_stays_silent(wire: Wire) -> None:
    wire.send(PRODUCE, 9, produce_request("no-such-topic", batch(), acks=0))
    try:
        assert wire.is_silent()
    except AssertionError:
        assert wire.is_closed()


def test_pipelined_requests_are_answered_in_order(wire: Wire) -> None:
    wire.create_topic("pipelined")
    requests: list[tuple[int, Message]] = [
        (PRODUCE, produce_request("pipelined", batch(), acks=-1)),
        (METADATA, MetadataRequest(topics=None)),
        (PRODUCE, produce_request("pipelined", batch(), acks=1)),
        (FETCH, fetch_request([("pipelined", 0, 0)], max_wait_ms=5)),
    ] * 20
    frames = [frame(key, USUAL[key], number, request) for number, (key, request) in enumerate(requests)]
    wire.send_bytes(b"".join(struct.pack(">i", len(one)) + one for one in frames))
    answers = [wire.receive(key, USUAL[key]) for key, _ in requests]
    assert [number for number, _ in answers] == list(range(len(requests)))
    produced = [
        a.responses[0].partition_responses[0].base_offset
        for (_, a), (k, _) in zip(answers, requests, strict=True)
        if k == PRODUCE
    ]
    assert produced == list(range(40))


def test_a_request_may_come_byte_by_byte(wire: Wire) -> None:
    one = frame(METADATA, 12, 7, MetadataRequest(topics=[]))
    for byte in struct.pack(">i", len(one)) + one:
        wire.send_bytes(bytes([byte]))
        time.sleep(0.001)
    assert wire.receive(METADATA, 12)[0] == 7


@pytest.mark.parametrize(
    ("key", "version"), [(9_999, 0), (-5, 3), (METADATA, 99), (PRODUCE, -1), (FETCH, 19)]
)
def test_what_is_not_served_gets_the_correlation_id_alone(wire: Wire, key: int, version: int) -> None:
    wire.send_frame(struct.pack(">hhih", key, version, 77, 2) + b"me" + b"whatever")
    assert wire.receive_frame() == struct.pack(">i", 77)
    assert wire.call(METADATA, MetadataRequest(topics=[])).brokers, "the connection lives on"


def _protocol_versions(wire: Wire, key: int = 32_035, version: int = 0) -> bytes:
    wire.send_frame(struct.pack(">hhih", key, version, 41, 2) + b"me")
    answer = wire.receive_frame()
    assert answer is not None and answer[:4] == struct.pack(">i", 41)
    return answer[4:]


def test_the_request_of_kip_35_s_draft_is_answered_beside_api_versions(wire: Wire) -> None:
    apis = {api.api_key: api for api in decode_protocol_versions(_protocol_versions(wire))}
    assert apis[PRODUCE] == (PRODUCE, "ProduceRequest", tuple(range(3, 14)), (0, 1, 2))
    assert apis[32_035] == (32_035, "ProtocolVersionRequest", (0,), ())
    adopted = wire.call(API_VERSIONS, ApiVersionsRequest(), 0)
    assert {api.api_key: (api.min_version, api.max_version) for api in adopted.api_keys} == {
        key: ((*api.deprecated_versions, *api.versions)[0], api.versions[-1])
        for key, api in apis.items()
        if key != 32_035
    }
    assert _protocol_versions(wire, version=1) == b"", "no such version: the correlation id alone"


def test_a_client_that_comes_back_gets_the_answer_of_the_broker_that_is_there_now(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data").start()
    try:
        with Wire(broker.kafka_address) as before:
            assert decode_protocol_versions(_protocol_versions(before))[-1].api_key == 32_035
            assert _protocol_versions(before, key=31_000) == b""
        broker.stop()
        broker.environment["SLUICE_PROTOCOL_VERSION_API_KEY"] = "31000"
        broker.start()
        with Wire(broker.kafka_address) as after:
            assert _protocol_versions(after) == b""
            assert decode_protocol_versions(_protocol_versions(after, key=31_000))[-1].api_key == 31_000
    finally:
        broker.kill()


def test_an_api_versions_request_from_the_future_is_answered_as_v0_with_the_table(wire: Wire) -> None:
    wire.send_frame(struct.pack(">hhih", API_VERSIONS, 99, 5, 2) + b"me" + b"\x00later")
    correlation_id, answer = wire.receive(API_VERSIONS, 0)
    assert correlation_id == 5
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert any(api.api_key == API_VERSIONS for api in answer.api_keys)


@pytest.mark.parametrize("version", range(5))
def test_every_api_versions_answer_offers_produce_from_version_0(wire: Wire, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="wire", client_software_version="1.0")
    answer = wire.call(API_VERSIONS, request, version)
    offered = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert answer.error_code == 0
    assert offered[PRODUCE] == (0, 13)
    assert offered[FETCH] == (0, 18)


def test_a_strange_client_software_name_is_refused(wire: Wire) -> None:
    request = ApiVersionsRequest(client_software_name="\x1b[31m evil", client_software_version="1")
    assert wire.call(API_VERSIONS, request, 3).error_code == ErrorCode.INVALID_REQUEST


def test_every_offered_version_of_every_api_answers_an_empty_request(
    wire: Wire, broker: BrokerProcess
) -> None:
    # A filter of kind 0 closes the connection, as with Kafka.
    others = {PRODUCE: ProduceRequest(acks=1), 29: DescribeAclsRequest(1, None, 1, None, None, 1, 1)}
    offered = wire.call(API_VERSIONS, ApiVersionsRequest(), 0).api_keys
    assert len(offered) >= 18
    for api in offered:
        for version in range(api.min_version, api.max_version + 1):
            request = others.get(api.api_key) or APIS[api.api_key].request_type()
            with Wire(broker.kafka_address) as fresh:
                sent = fresh.send(api.api_key, version, request)
                assert fresh.receive(api.api_key, version)[0] == sent, (APIS[api.api_key].name, version)


@pytest.mark.parametrize("size", [-1, -0x8000_0000, 0x7FFF_FFFF, 100 * 1024 * 1024 + 1, 0, 7])
def test_a_frame_of_an_absurd_size_closes_the_connection(
    wire: Wire, broker: BrokerProcess, size: int
) -> None:
    with Wire(broker.kafka_address) as other:
        wire.send_bytes(struct.pack(">i", size) + b"\0" * min(max(size, 0), 100))
        assert wire.is_closed()
        assert other.call(METADATA, MetadataRequest(topics=[])).brokers, "other connections are unharmed"


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">i", HUGE),  # an array of 2³¹−1 topics
        struct.pack(">ih", 1, HUGE & 0x7FFF) + b"short",  # a string longer than its frame
        struct.pack(">i", -7),
        b"",
    ],
    ids=["count", "string", "negative", "empty"],
)
def test_a_malformed_body_closes_the_connection_and_nothing_else(
    wire: Wire, broker: BrokerProcess, body: bytes
) -> None:
    with Wire(broker.kafka_address) as other:
        wire.send_frame(struct.pack(">hhih", METADATA, 1, 3, -1) + body)
        assert wire.is_closed()
        assert other.call(METADATA, MetadataRequest(topics=[])).brokers


def test_http_on_the_kafka_port_closes_the_connection(wire: Wire) -> None:
    wire.send_bytes(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert wire.is_closed()


def test_a_client_that_disconnects_in_the_middle_of_a_frame_harms_no_other(
    broker: BrokerProcess, wire: Wire
) -> None:
    for cut in range(0, 30, 3):
        one = frame(METADATA, 12, 1, MetadataRequest(topics=None))
        with Wire(broker.kafka_address) as going:
            going.send_bytes((struct.pack(">i", len(one)) + one)[:cut])
    assert wire.call(METADATA, MetadataRequest(topics=[])).brokers


def test_a_client_that_resets_its_long_poll_harms_no_other(broker: BrokerProcess, wire: Wire) -> None:
    wire.create_topic("reset")
    going = Wire(broker.kafka_address)
    going.send(FETCH, 12, fetch_request([("reset", 0, 0)], max_wait_ms=60_000))
    time.sleep(0.05)
    going.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    going.close()
    assert wire.produce("reset", batch()).base_offset == 0


def test_a_long_poll_delays_only_its_own_connection(broker: BrokerProcess, wire: Wire) -> None:
    wire.create_topic("waiting")
    with Wire(broker.kafka_address) as waiting:
        sent = waiting.send(FETCH, 12, fetch_request([("waiting", 0, 0)], max_wait_ms=600))
        behind = waiting.send(METADATA, 12, MetadataRequest(topics=[]))
        start = time.monotonic()
        assert wire.call(METADATA, MetadataRequest(topics=[])).brokers
        with urllib.request.urlopen(f"{broker.http}/healthz", timeout=10) as answer:
            assert answer.status == 200
        assert time.monotonic() - start < 0.5
        assert waiting.receive(FETCH, 12)[0] == sent
        assert waiting.receive(METADATA, 12)[0] == behind
        assert time.monotonic() - start >= 0.55


def test_a_request_with_many_searches_blocks_no_other(broker: BrokerProcess, wire: Wire) -> None:
    """20,000 offsets by time in one request: seconds of work, while others are answered."""
    wire.create_topic("searched")
    for _ in range(10):
        wire.write("searched", *("x" * 100 for _ in range(50)))
    asked = [ListOffsetsPartition(partition_index=0, timestamp=1)] * 20_000
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic("searched", asked)])
    with Wire(broker.kafka_address) as other:
        sent = wire.send(LIST_OFFSETS, 7, request)
        answered = 0
        while not wire.is_readable():
            other.call(METADATA, MetadataRequest(topics=[]))
            answered += 1
    correlation_id, answer = wire.receive(LIST_OFFSETS, 7)
    assert correlation_id == sent
    assert {(one.error_code, one.offset) for one in answer.topics[0].partitions} == {(0, 0)}
    assert answered > 20


def test_many_connections_at_once_are_all_served(broker: BrokerProcess) -> None:
    answers = []

    def ask() -> None:
        with Wire(broker.kafka_address) as one:
            answers.append(len(one.call(METADATA, MetadataRequest(topics=[])).brokers))

    threads = [threading.Thread(target=ask) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [1] * 50


def test_metadata_names_an_address_that_reaches_the_broker(broker: BrokerProcess, wire: Wire) -> None:
    (node,) = wire.call(METADATA, MetadataRequest(topics=[])).brokers
    assert (node.host, node.port) == broker.kafka_address
    listeners = json.loads((broker.data_dir / "listeners.json").read_text())
    assert str(node.port) in json.dumps(listeners)


def test_metadata_creates_a_topic_only_where_it_may(wire: Wire) -> None:
    for allowed in (False, True):
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(name="made-by-metadata")], allow_auto_topic_creation=allowed
        )
        (answer,) = wire.call(METADATA, asked).topics
        if not allowed:
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert "made-by-metadata" not in wire.topics()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        (answer,) = wire.call(METADATA, asked).topics
        if answer.error_code == 0:
            break
        assert answer.error_code in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        time.sleep(0.02)
    assert len(answer.partitions) == 1


def test_an_oversized_frame_leaves_one_line_in_the_log(broker: BrokerProcess) -> None:
    before = broker.read_log().count("\n")
    with Wire(broker.kafka_address) as wire:
        wire.send_bytes(struct.pack(">i", HUGE))
        assert wire.is_closed()
    time.sleep(0.1)
    assert broker.read_log().count("\n") == before + 1
