"""Java's client over TLS with a login: Kafka's console tools, `kafka-configs` for users, `kafka-acls`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.wire import Wire
from tests.peers.kafka import Said, Tools
from tests.peers.tool_rows import MAINS
from tests.secured import PASSWORD, SASL_SSL, USER, Secured

OTHER, OTHER_PASSWORD = "bob", "canary of bob"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("secured")) as one:
        yield one
        assert "canary" not in one.broker.read_log()


class Admin:
    """Kafka's tools, logged in over SASL_SSL."""

    def __init__(self, tools: Tools, secured: Secured, directory: Path) -> None:
        self._tools, self._secured, self._directory = tools, secured, directory

    def file(self, mechanism: str, user: str = USER, password: str = PASSWORD) -> str:
        """Write the settings of a client; return the path."""
        module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        name = f"org.apache.kafka.common.security.{module}LoginModule"
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{name} required username="{user}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._secured.ca,
        }
        path = self._directory / f"{user}-{mechanism}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(path)

    def run(self, tool: str, *arguments: str, config: str, option: str = "--command-config") -> Said:
        """Run a tool against the listener."""
        where = ("--bootstrap-server", self._secured.bootstrap(SASL_SSL), option, config)
        return self._tools.run(MAINS[tool], *where, *arguments, text="one\ntwo\n")


@pytest.fixture
def admin(tools: Tools, secured: Secured, tmp_path: Path) -> Admin:
    return Admin(tools, secured, tmp_path)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_java_writes_and_reads(admin: Admin, secured: Secured, mechanism: str) -> None:
    topic = f"java-{mechanism}"
    with Wire(secured.broker.kafka_address) as wire:
        wire.create_topic(topic)
    config = admin.file(mechanism)
    said = admin.run("console-producer", "--topic", topic, config=config, option="--producer.config")
    assert said.exit == 0, said
    read = ("--topic", topic, "--from-beginning", "--max-messages", "2", "--timeout-ms", "30000")
    said = admin.run("console-consumer", *read, config=config, option="--consumer.config")
    assert said.out == "one\ntwo\n", said


def test_kafka_configs_makes_a_user_and_kafka_acls_its_rights(admin: Admin, secured: Secured) -> None:
    with Wire(secured.broker.kafka_address) as wire:
        wire.create_topic("of-bob")
    config = admin.file("SCRAM-SHA-512")
    users = ("--entity-type", "users", "--entity-name", OTHER)
    made = f"SCRAM-SHA-256=[iterations=4096,password={OTHER_PASSWORD}]"
    said = admin.run("configs", *users, "--alter", "--add-config", made, config=config)
    assert f"Completed updating config for user {OTHER}" in said.out, said
    bob = admin.file("SCRAM-SHA-256", OTHER, OTHER_PASSWORD)
    assert "of-bob" not in admin.run("topics", "--list", config=bob).out
    rule = ("--add", "--allow-principal", f"User:{OTHER}", "--operation", "Read", "--topic", "of-bob")
    said = admin.run("acls", *rule, config=config)
    assert "Adding ACLs" in said.out, said
    assert admin.run("topics", "--list", config=bob).out.split() == ["of-bob"]
    said = admin.run("acls", "--list", "--topic", "of-bob", config=config)
    assert f"principal=User:{OTHER}" in said.out, said
    said = admin.run("topics", "--list", config=admin.file("SCRAM-SHA-256", OTHER, "wrong password"))
    assert "SaslAuthenticationException" in said.out + said.err
