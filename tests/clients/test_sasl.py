"""Clients log in to the Kafka listener: each mechanism of each client, wrong passwords, and what no client sends."""

from __future__ import annotations

import struct
import time
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from core.protocol.codec import encode_request
from core.protocol.header import encode_request_header
from core.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from core.protocol.messages.metadata import MetadataRequest
from core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from core.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker_process import BrokerProcess
from tests.clients import logins
from tests.clients.driver import CALL_SECONDS
from tests.clients.wire import Wire
from tests.frames import connect, receive_frame
from tests.secured import PASSWORD, USER

SCHEME = "kafka?auth=scram-sha-256,scram-sha-512,plain"
BROKER_SCHEMES = (SCHEME,)
# The user may do everything, and so may clients of the listener without authentication.
BROKER_OPTIONS = ("--super-user", f"User:{USER}", "--super-user", "User:ANONYMOUS")


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
    name = logins.topic_name(request)
    with Wire(broker.kafka_address) as wire:
        made = wire.call(19, CreateTopicsRequest([CreatableTopic(name, 1, 1)]))
    assert made.topics[0].error_code == 0
    return name


@logins.each_mechanism
def test_librdkafka(bootstrap: str, mechanism: str, topic: str) -> None:
    logins.by_librdkafka(logins.rdkafka(bootstrap, mechanism), topic, f"from {mechanism}")


@logins.each_mechanism
def test_librdkafka_with_a_wrong_password(bootstrap: str, mechanism: str) -> None:
    errors: list[Any] = []
    admin = AdminClient(
        {**logins.rdkafka(bootstrap, mechanism, "wrong"), "error_cb": errors.append, "log_level": 0}
    )
    deadline = time.monotonic() + CALL_SECONDS
    while not errors and time.monotonic() < deadline:
        admin.poll(0.1)
    assert "uthentication" in str(errors[0])


@logins.each_mechanism
@pytest.mark.client("kcat")
def test_kcat(bootstrap: str, mechanism: str, topic: str) -> None:
    logins.by_kcat(logins.rdkafka(bootstrap, mechanism), topic, mechanism)


@logins.each_mechanism
def test_kafka_python(bootstrap: str, mechanism: str, topic: str) -> None:
    logins.by_kafka_python(logins.python_settings(bootstrap, mechanism), topic, mechanism)


@logins.each_mechanism
async def test_aiokafka(bootstrap: str, mechanism: str, topic: str) -> None:
    await logins.by_aiokafka(logins.python_settings(bootstrap, mechanism), topic, mechanism)


# With 0.10 they send SaslHandshake 0 and raw frames, as do all versions of 1.4.7, which has no SCRAM.
@pytest.mark.client("old kafka-python")
@pytest.mark.parametrize(
    ("release", "version", "mechanism"),
    [
        ("1.4.7", "0.10", "PLAIN"),
        ("1.4.7", "1.0", "PLAIN"),
        *[("2.0.2", version, mechanism) for version in ("0.10", "2.5") for mechanism in logins.MECHANISMS],
    ],
)
def test_old_kafka_python(bootstrap: str, mechanism: str, topic: str, release: str, version: str) -> None:
    logins.by_old_kafka_python(release, version, bootstrap, mechanism, topic)


@logins.each_mechanism
@pytest.mark.client("kafkajs")
def test_kafkajs(bootstrap: str, mechanism: str, topic: str) -> None:
    logins.by_kafkajs(bootstrap, mechanism, topic)


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
