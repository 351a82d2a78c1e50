"""A gateway that calls a real Apache Kafka as its callers: Kafka checks the passwords and its access rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.broker_process import ports_of
from tests.gateway_process import GatewayProcess
from tests.peers.kafka import KafkaProcess

PASSWORDS = {"gateway": "canary-of-gateway", "alice": "canary-of-alice", "bob": "canary-of-bob"}
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": f"{_MODULE} {USERS};",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The tests' own listener, and the controller's.
    "super.users": "User:ANONYMOUS",
}


LISTENER = "http?auth=basic"


class CallersGateway(GatewayProcess):
    """A gateway whose one listener asks for passwords."""

    @property
    def http(self) -> str:
        """The base URL of that listener."""
        return f"http://127.0.0.1:{self.ports[LISTENER]}"

    def _ports(self, listeners: Any) -> dict[str, int]:
        return ports_of(listeners, (LISTENER,))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    """A node with users and access rules: alice has `hers`, bob `his`."""
    process = KafkaProcess(
        tmp_path_factory.mktemp("secured"), settings=SETTINGS, listeners=("SASL:SASL_PLAINTEXT",)
    ).start()
    try:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        for done in admin.create_topics([NewTopic("hers", 1), NewTopic("his", 1)]).values():
            done.result(30)
        rules = [
            AclBinding(
                ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*", operation,
                AclPermissionType.ALLOW,
            )
            for user, topic in (("alice", "hers"), ("bob", "his"))
            for operation in (AclOperation.READ, AclOperation.WRITE)
        ]  # fmt: skip
        for made in admin.create_acls(rules).values():
            made.result(30)
        yield process
    finally:
        process.kill()


@pytest.fixture(scope="module")
def gateway(secured: KafkaProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway that acts as its callers; its log has neither a traceback nor a password."""
    directory: Path = tmp_path_factory.mktemp("gateway")
    file = directory / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=gateway\n"
        f"sasl.password={PASSWORDS['gateway']}\n"
    )
    file.chmod(0o600)
    process = CallersGateway(
        directory / "data",
        f"127.0.0.1:{secured.ports['SASL']}",
        options=("--upstream-config", str(file), "--upstream-identity", "caller"),
    )
    process.ports = {LISTENER: 0}
    try:
        yield process.start()
    finally:
        process.kill()
    assert "Traceback" not in process.read_log() and "canary" not in process.read_log()


def test_kafka_checks_passwords_and_rights(gateway: GatewayProcess) -> None:
    with httpx.Client(base_url=f"{gateway.http}/api/v1", timeout=60, trust_env=False) as http:
        for user, own, other in (("alice", "hers", "his"), ("bob", "his", "hers")):
            auth = (user, PASSWORDS[user])
            written = http.post(f"/topics/{own}/records", json={"value": user}, auth=auth)
            assert written.status_code == 200, written.text
            assert http.post(f"/topics/{other}/records", json={"value": user}, auth=auth).status_code == 403
            page = http.get(f"/topics/{own}/partitions/0/records?offset=0", auth=auth)
            assert [one["value"] for one in page.json()["records"]] == [user]
            assert http.get(f"/topics/{other}/partitions/0/records?offset=0", auth=auth).status_code == 403
            names = [one["name"] for one in http.get("/topics", auth=auth).json()["items"]]
            assert names == [own]
        for auth in (("alice", "wrong"), ("bob", PASSWORDS["alice"]), ("carol", "x")):
            assert http.get("/topics/hers/partitions/0/records?offset=0", auth=auth).status_code == 401
        assert http.get("/topics").status_code == 401
