"""Two brokers as their users run them, over mutual TLS, with users: what was acknowledged outlives the leader."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.broker_process import BrokerProcess
from tests.ports import free_ports

SECONDS = 60.0
PEER, LOGIN = "peer?tls=peers", "kafka?auth=scram-sha-256,plain"
PASSWORD = "correct horse battery"


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[dict[int, BrokerProcess]]:
    authority, ca_file = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    ports = free_ports(4)
    of_peers, of_clients = dict(enumerate(ports[:2], 1)), dict(enumerate(ports[2:], 1))
    found = {}
    for number, other in ((1, 2), (2, 1)):
        pem = tmp_path / f"broker-{number}.pem"
        issued = authority.issue_cert("127.0.0.1", common_name=f"broker-{number}")
        issued.private_key_and_cert_chain_pem.write_to_path(str(pem))
        pem.chmod(0o600)
        table = {
            "certificate": str(pem),
            "client_ca": str(ca_file),
            "principal_mapping_rules": r"RULE:^(CN=[^,]*),.*$/$1/",
        }
        process = found[number] = BrokerProcess(
            tmp_path / str(number),
            options=[
                "--broker-id", str(number), "--peer", f"{other}=127.0.0.1:{of_peers[other]}",
                "--advertised", f"kafka://127.0.0.1:{of_clients[number]}",
                "--super-user", "User:ANONYMOUS", "--super-user", "User:alice",
            ],
            environment={"SLUICE_TLS": json.dumps({"peers": table})},
        )  # fmt: skip
        process.ports |= {PEER: of_peers[number], LOGIN: of_clients[number]}
        process.spawn()
    for process in found.values():
        process.wait_ready()
    yield found
    for process in found.values():
        process.kill()


def until_done(process: BrokerProcess, method: str, path: str, body: dict[str, Any]) -> Any:
    """Repeat a call until the brokers have found each other; what it answered."""
    deadline = time.monotonic() + SECONDS
    while True:
        answer = httpx.request(method, f"{process.http}/api/v1{path}", json=body, timeout=30, trust_env=False)
        if answer.is_success:
            return answer.json()
        assert time.monotonic() < deadline, (answer.text, process.read_log())
        time.sleep(0.05)


def until_visible(process: BrokerProcess) -> None:
    """Wait until a follower knows that the record is committed: two of two replicas must be there to commit it."""
    deadline = time.monotonic() + SECONDS
    url = f"{process.http}/api/v1/topics/orders/partitions/0/role"
    while httpx.get(url, timeout=30, trust_env=False).json()["high_watermark"] < 1:
        assert time.monotonic() < deadline, process.read_log()
        time.sleep(0.05)


def as_alice(process: BrokerProcess, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"127.0.0.1:{process.ports[LOGIN]}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        "log_level": 0,
        **more,
    }


@pytest.mark.slow
def test_the_same_user_logs_in_to_the_promoted_broker(brokers: dict[int, BrokerProcess]) -> None:
    first, second = brokers[1], brokers[2]
    until_done(first, "PUT", "/topics/orders", {"replication_factor": 2})
    until_done(first, "POST", "/users", {"name": "alice", "password": PASSWORD})
    errors: list[Any] = []
    producer = Producer(as_alice(first, acks="all"))
    producer.produce("orders", b"kept twice", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS) == 0 and errors == [None]
    until_visible(second)
    first.kill()
    until_done(second, "POST", "/cluster:lead", {})
    consumer = Consumer(as_alice(second, **{"group.id": "g", "enable.auto.commit": False}))
    try:
        consumer.assign([TopicPartition("orders", 0, 0)])
        message = consumer.poll(SECONDS)
        assert message is not None and message.error() is None and message.value() == b"kept twice"
    finally:
        consumer.close()
    for process in brokers.values():
        assert PASSWORD not in process.read_log() and "Traceback" not in process.read_log()
