"""Kafka's own tools make users with SCRAM credentials on Sluice, and log in as them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.wire import Wire
from tests.peers.kafka import Tools

CONFIGS = "kafka.admin.ConfigCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
SCHEME = "kafka?auth=scram-sha-256,scram-sha-512,plain"
PASSWORD = "canary-of-a-password"
LOGIN = """\
security.protocol=SASL_PLAINTEXT
sasl.mechanism={mechanism}
sasl.jaas.config=org.apache.kafka.common.security.{module}LoginModule required username="alice" password="{password}";
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    options = ("--super-user", "User:alice", "--super-user", "User:ANONYMOUS")
    data_dir = tmp_path_factory.mktemp("guarded") / "data"
    process = BrokerProcess(data_dir, schemes=(SCHEME,), options=options).start()
    yield process
    process.kill()
    assert "Traceback" not in process.read_log() and PASSWORD not in process.read_log()


def test_a_user_of_kafka_configs_logs_in(guarded: BrokerProcess, tools: Tools, tmp_path: Path) -> None:
    with Wire(guarded.kafka_address) as wire:
        wire.create_topic("of-alice")
    alice = ("--bootstrap-server", guarded.kafka, "--entity-type", "users", "--entity-name", "alice")
    # As with Kafka, one credential at a time.
    for one in (
        f"SCRAM-SHA-256=[iterations=8192,password={PASSWORD}]",
        f"SCRAM-SHA-512=[password={PASSWORD}]",
    ):
        said = tools.run(CONFIGS, *alice, "--alter", "--add-config", one)
        assert "Completed updating config for user alice" in said.out, said
    said = tools.run(CONFIGS, *alice, "--describe")
    assert "SCRAM-SHA-256=iterations=8192" in said.out and "SCRAM-SHA-512=iterations=4096" in said.out, said

    def log_in(mechanism: str, password: str) -> str:
        module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        file = tmp_path / "login.properties"
        file.write_text(LOGIN.format(mechanism=mechanism, module=module, password=password))
        where = ("--bootstrap-server", f"127.0.0.1:{guarded.ports[SCHEME]}", "--command-config", str(file))
        done = tools.run(TOPICS, *where, "--list")

        return done.out + done.err

    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert "of-alice" in log_in(mechanism, PASSWORD), mechanism
        assert "SaslAuthenticationException" in log_in(mechanism, "wrong"), mechanism

    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        said = tools.run(CONFIGS, *alice, "--alter", "--delete-config", mechanism)
        assert "Completed updating config for user alice" in said.out, said
    assert "SaslAuthenticationException" in log_in("SCRAM-SHA-256", PASSWORD)
