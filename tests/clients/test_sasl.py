"""Clients log in to the Kafka listener: each mechanism of each client, wrong passwords, and what no client sends."""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition

from core.protocol.codec import encode_request
from core.protocol.header import encode_request_header
from core.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from core.protocol.messages.metadata import MetadataRequest
from core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from core.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker_process import BrokerProcess
from tests.clients.driver import CALL_SECONDS
from tests.clients.wire import Wire
from tests.conftest import NODE_MODULES, node_path, old_kafka_python_path
from tests.frames import connect, receive_frame

DRIVERS = Path(__file__).parent / "drivers"
USER, PASSWORD = "alice", "canary, a=password"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SCHEME = "kafka?auth=scram-sha-256,scram-sha-512,plain"
BROKER_SCHEMES = (SCHEME,)
# The user may do everything, and so may clients of the listener without authentication.
BROKER_OPTIONS = ("--super-user", f"User:{USER}", "--super-user", "User:ANONYMOUS")

each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)


@pytest.fixture(scope="module")
def bootstrap(broker: BrokerProcess) -> str:
    made = httpx.post(
        f"{broker.http}/api/v1/users",
        json={"name": USER, "password": PASSWORD},
        trust_env=False,
        timeout=CALL_SECONDS,
    )
    assert made.status_code == 201, made.text
    return f"127.0.0.1:{broker.ports[SCHEME]}"


@pytest.fixture
def topic(broker: BrokerProcess, mechanism: str, request: pytest.FixtureRequest) -> str:
    """A topic of this test, made over the listener without authentication."""
    name = request.node.name.replace("[", "-").replace("]", "").replace("test_", "")
    with Wire(broker.kafka_address) as wire:
        made = wire.call(19, CreateTopicsRequest([CreatableTopic(name, 1, 1)]))
    assert made.topics[0].error_code == 0
    return name


def rdkafka(bootstrap: str, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


@each_mechanism
def test_librdkafka(bootstrap: str, mechanism: str, topic: str) -> None:
    producer = Producer(rdkafka(bootstrap, mechanism))
    producer.produce(topic, f"from {mechanism}")
    assert producer.flush(CALL_SECONDS) == 0
    consumer = Consumer({**rdkafka(bootstrap, mechanism), "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(CALL_SECONDS)
    assert message is not None and message.value() == f"from {mechanism}".encode()
    consumer.close()


@each_mechanism
def test_librdkafka_with_a_wrong_password(bootstrap: str, mechanism: str) -> None:
    errors: list[Any] = []
    admin = AdminClient({**rdkafka(bootstrap, mechanism, "wrong"), "error_cb": errors.append, "log_level": 0})
    deadline = time.monotonic() + CALL_SECONDS
    while not errors and time.monotonic() < deadline:
        admin.poll(0.1)
    assert "uthentication" in str(errors[0])


@each_mechanism
@pytest.mark.client("kcat")
def test_kcat(bootstrap: str, mechanism: str, topic: str) -> None:
    settings = [part for name, value in rdkafka(bootstrap, mechanism).items() if name != "bootstrap.servers"
                for part in ("-X", f"{name}={value}")]  # fmt: skip
    written = ["kcat", "-b", bootstrap, *settings, "-P", "-t", topic, "-p", "0"]
    subprocess.run(written, input=mechanism.encode(), check=True, timeout=CALL_SECONDS, capture_output=True)
    read = ["kcat", "-b", bootstrap, *settings, "-C", "-t", topic, "-p", "0", "-e", "-q", "-o", "beginning"]
    done = subprocess.run(read, check=True, timeout=CALL_SECONDS, capture_output=True)
    assert done.stdout.decode().strip() == mechanism


@each_mechanism
def test_kafka_python(bootstrap: str, mechanism: str, topic: str) -> None:
    login: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    producer = KafkaProducer(**login)
    producer.send(topic, mechanism.encode()).get(CALL_SECONDS)
    producer.close()
    consumer = KafkaConsumer(auto_offset_reset="earliest", consumer_timeout_ms=30_000, **login)
    consumer.assign([PythonTopicPartition(topic, 0)])
    assert next(consumer).value == mechanism.encode()
    consumer.close()


@each_mechanism
async def test_aiokafka(bootstrap: str, mechanism: str, topic: str) -> None:
    login: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    async with AIOKafkaProducer(**login) as producer:
        await producer.send_and_wait(topic, mechanism.encode())
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **login) as consumer:
        record = await asyncio.wait_for(consumer.getone(), CALL_SECONDS)
    assert record.value == mechanism.encode()


# With 0.10 they send SaslHandshake 0 and raw frames, as do all versions of 1.4.7, which has no SCRAM.
@pytest.mark.client("old kafka-python")
@pytest.mark.parametrize(
    ("release", "version", "mechanism"),
    [
        ("1.4.7", "0.10", "PLAIN"),
        ("1.4.7", "1.0", "PLAIN"),
        *[("2.0.2", version, mechanism) for version in ("0.10", "2.5") for mechanism in MECHANISMS],
    ],
)
def test_old_kafka_python(bootstrap: str, mechanism: str, topic: str, release: str, version: str) -> None:
    path = old_kafka_python_path(release)
    assert path is not None
    script = DRIVERS / "sasl_kafka_python.py"
    done = subprocess.run(
        [sys.executable, str(script), bootstrap, version, mechanism, USER, PASSWORD, topic],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=2 * CALL_SECONDS,
    )
    assert done.stdout.strip() == f"from {mechanism}", done.stderr


@each_mechanism
@pytest.mark.client("kafkajs")
def test_kafkajs(bootstrap: str, mechanism: str, topic: str) -> None:
    node = node_path()
    assert node is not None
    done = subprocess.run(
        [node, str(DRIVERS / "sasl_kafka_js.js"), bootstrap, mechanism, USER, PASSWORD, topic],
        env={"NODE_PATH": str(NODE_MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=2 * CALL_SECONDS,
    )
    assert done.stdout.strip() == "1", done.stderr


# --- what no client sends -------------------------------------------------------------------------------------


def frame(key: int, version: int, request: Any) -> bytes:
    data = encode_request_header(key, version, 1, "raw") + encode_request(key, version, request)
    return struct.pack(">i", len(data)) + data


def exchange(bootstrap: str, data: bytes) -> bytes:
    """Send bytes at once and return all that comes until the broker closes the connection."""
    host, port = bootstrap.split(":")
    with connect((host, int(port)), CALL_SECONDS) as raw:
        raw.sendall(data)
        answer = b""
        try:
            while piece := raw.recv(65_536):
                answer += piece
        except ConnectionResetError:
            # What was sent and not read makes the system cut the connection.
            pass
        return answer


def frames_of(answer: bytes) -> list[bytes]:
    found = []
    while answer:
        (size,) = struct.unpack_from(">i", answer)
        found.append(answer[4 : 4 + size])
        answer = answer[4 + size :]
    return found


def test_requests_after_a_bad_token_are_not_answered(bootstrap: str) -> None:
    data = frame(17, 1, SaslHandshakeRequest("PLAIN"))
    data += frame(36, 1, SaslAuthenticateRequest(b"\0alice\0wrong"))
    data += frame(3, 9, MetadataRequest(None)) * 3
    answers = frames_of(exchange(bootstrap, data))
    assert len(answers) == 2
    assert struct.unpack_from(">ih", answers[1]) == (1, 58)


def test_requests_after_a_good_token_are_answered(bootstrap: str) -> None:
    data = frame(17, 1, SaslHandshakeRequest("PLAIN"))
    data += frame(36, 1, SaslAuthenticateRequest(f"\0{USER}\0{PASSWORD}".encode()))
    data += frame(3, 9, MetadataRequest(None))
    host, port = bootstrap.split(":")
    with connect((host, int(port)), CALL_SECONDS) as raw:
        raw.sendall(data)
        for _ in range(3):
            assert receive_frame(raw)


@pytest.mark.parametrize(
    "first",
    [
        frame(3, 9, MetadataRequest(None)),
        frame(36, 1, SaslAuthenticateRequest(f"\0{USER}\0{PASSWORD}".encode())),
        # Larger than anything before authentication, and half of it is not even sent.
        struct.pack(">i", 65_537) + b"\0" * 100,
        struct.pack(">i", 100 * 1024 * 1024),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["metadata", "token", "large", "huge", "http"],
)
def test_what_must_not_come_first_closes_the_connection(bootstrap: str, first: bytes) -> None:
    assert exchange(bootstrap, first) == b""


def test_no_secret_is_in_the_log(broker: BrokerProcess, bootstrap: str) -> None:
    log = broker.read_log()
    assert "authentication failed" in log
    for secret in (PASSWORD, "canary", "\\x00alice"):
        assert secret not in log
