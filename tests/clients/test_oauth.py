"""librdkafka logs in by SASL/OAUTHBEARER: with a token of its application, and with one that it fetches (KIP-768)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker_process import BrokerProcess
from tests.clients.driver import CALL_SECONDS
from tests.issuer import AUDIENCE, Issuer

KAFKA = "kafka?auth=oauthbearer"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    """An issuer that serves in a thread, because the clients here block."""
    with Issuer(time.time).served_in_a_thread() as made:
        yield made


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path_factory.mktemp("oauth") / "data",
        schemes=(KAFKA,),
        options=("--super-user", "User:alice"),
        environment={"SLUICE_OAUTH": f"issuer={issuer.url}; audience={AUDIENCE}; algorithms=RS256"},
    ).start()
    yield process
    process.kill()
    assert "Traceback" not in process.read_log()


def login(guarded: BrokerProcess) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"127.0.0.1:{guarded.ports[KAFKA]}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
    }


def write_and_read(settings: dict[str, Any], topic: str) -> None:
    producer = Producer(settings)
    producer.produce(topic, b"hello", partition=0)
    assert producer.flush(CALL_SECONDS) == 0
    consumer = Consumer({**settings, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(CALL_SECONDS)
    assert message is not None and message.error() is None and message.value() == b"hello"
    consumer.close()


def test_librdkafka_with_a_token_of_its_application(guarded: BrokerProcess, issuer: Issuer) -> None:
    def token(_: str) -> tuple[str, float]:
        return issuer.mint(), time.time() + 600

    write_and_read({**login(guarded), "oauth_cb": token}, "called-back")


def test_librdkafka_fetches_its_token(guarded: BrokerProcess, issuer: Issuer) -> None:
    settings = {
        **login(guarded),
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "alice",
        "sasl.oauthbearer.client.secret": "secret",
        "sasl.oauthbearer.token.endpoint.url": f"{issuer.url}/token",
    }
    write_and_read(settings, "fetched")
    assert "/token" in issuer.asked


def test_librdkafka_with_a_bad_token(guarded: BrokerProcess, issuer: Issuer) -> None:
    def token(_: str) -> tuple[str, float]:
        return issuer.mint(aud="another"), time.time() + 600

    errors: list[Any] = []
    admin = AdminClient({**login(guarded), "oauth_cb": token, "error_cb": errors.append, "log_level": 0})
    deadline = time.monotonic() + CALL_SECONDS
    while not any("invalid_token" in str(error) or "uthentication" in str(error) for error in errors):
        assert time.monotonic() < deadline, errors
        admin.poll(0.1)
