"""Kafka's own `kafka-acls` writes, lists and removes access rules on Sluice; they hold for a user that logs in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.broker_process import BrokerProcess
from tests.peers.kafka import Tools

ACLS = "org.apache.kafka.tools.AclCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
SCHEME = "kafka?auth=plain"
PASSWORD = "canary-of-a-password"
LOGIN = f"""\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
 username="alice" password="{PASSWORD}";
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir = tmp_path_factory.mktemp("acls") / "data"
    options = ("--super-user", "User:ANONYMOUS")
    process = BrokerProcess(data_dir, schemes=(SCHEME,), options=options).start()
    made = httpx.post(
        f"{process.http}/api/v1/users", json={"name": "alice", "password": PASSWORD}, trust_env=False
    )
    assert made.status_code == 201, made.text
    yield process
    process.kill()
    assert "Traceback" not in process.read_log()


def test_rules_of_kafka_acls_hold(guarded: BrokerProcess, tools: Tools, tmp_path: Path) -> None:
    admin = ("--bootstrap-server", guarded.kafka)
    said = tools.run(TOPICS, *admin, "--create", "--topic", "secret")
    assert "Created topic secret" in said.out, said
    file = tmp_path / "login.properties"
    file.write_text(LOGIN)
    alice = ("--bootstrap-server", f"127.0.0.1:{guarded.ports[SCHEME]}", "--command-config", str(file))

    def seen() -> list[str]:
        return tools.run(TOPICS, *alice, "--list").out.split()

    assert seen() == []
    denied = tools.run(ACLS, *alice, "--list")
    assert "ClusterAuthorizationException" in denied.out + denied.err, denied
    rule = ("--allow-principal", "User:alice", "--operation", "Describe", "--topic", "sec")
    prefixed = ("--resource-pattern-type", "prefixed")
    said = tools.run(ACLS, *admin, "--add", *rule, *prefixed)
    assert "name=sec, patternType=PREFIXED" in said.out, said
    assert seen() == ["secret"]
    said = tools.run(ACLS, *admin, "--list", "--topic", "secret", "--resource-pattern-type", "match")
    assert "principal=User:alice, host=*, operation=DESCRIBE, permissionType=ALLOW" in said.out, said
    said = tools.run(
        ACLS, *admin, "--add", "--deny-principal", "User:alice", "--operation", "Describe", "--topic", "*"
    )
    assert "permissionType=DENY" in said.out, said
    assert seen() == []
    said = tools.run(ACLS, *admin, "--remove", "--topic", "*", "--force")
    assert said.exit == 0, said
    assert seen() == ["secret"]
    said = tools.run(ACLS, *admin, "--remove", *rule, *prefixed, "--force")
    assert said.exit == 0, said
    assert seen() == []
