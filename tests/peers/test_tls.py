"""Java's clients over TLS: Kafka's console tools, with a certificate of the client and without."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from tests.broker_process import BrokerProcess
from tests.peers.kafka import Tools
from tests.peers.tool_rows import MAINS

pytestmark = pytest.mark.client("kafka")
LISTENER = "kafka?tls=default"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, Path]]:
    """The TLS address of a broker that asks for certificates, the settings of a client with one, and without."""
    directory = tmp_path_factory.mktemp("tls")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(directory / "ca.pem")
    server = ca.issue_cert("127.0.0.1")
    server.private_key_and_cert_chain_pem.write_to_path(directory / "server.pem")
    os.chmod(directory / "server.pem", 0o600)
    client = ca.issue_cert("alice@example.org", common_name="alice")
    # Java reads keys in PKCS #8 alone.
    key = serialization.load_pem_private_key(client.private_key_pem.bytes(), None)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (directory / "client.pem").write_bytes(pem + client.cert_chain_pems[0].bytes())
    trust = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": directory / "ca.pem",
    }
    own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": directory / "client.pem"}
    (directory / "sluice.toml").write_text(
        f'[tls.default]\ncertificate = "{directory / "server.pem"}"\nclient_ca = "{directory / "ca.pem"}"\n'
    )
    process = BrokerProcess(
        directory / "data", options=["--config", str(directory / "sluice.toml")], schemes=(LISTENER,)
    )
    try:
        process.start()
        address = f"127.0.0.1:{process.ports[LISTENER]}"
        (directory / "with").write_text(properties_of(trust | own))
        (directory / "without").write_text(properties_of(trust))
        yield address, directory / "with", directory / "without"
    finally:
        process.kill()
    assert "Traceback" not in process.read_log()


def properties_of(settings: dict[str, object]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def test_java_writes_and_reads_with_its_certificate(tools: Tools, secured: tuple[str, Path, Path]) -> None:
    address, own, _ = secured
    said = tools.run(
        MAINS["console-producer"], "--bootstrap-server", address, "--topic", "java",
        "--producer.config", str(own), text="one\ntwo\n",
    )  # fmt: skip
    assert said.exit == 0, said
    said = tools.run(
        MAINS["console-consumer"], "--bootstrap-server", address, "--topic", "java", "--from-beginning",
        "--max-messages", "2", "--timeout-ms", "60000", "--consumer.config", str(own),
    )  # fmt: skip
    assert said.out == "one\ntwo\n"


def test_java_without_a_certificate_is_refused(tools: Tools, secured: tuple[str, Path, Path]) -> None:
    address, _, without = secured
    said = tools.run(
        MAINS["topics"], "--bootstrap-server", address, "--list", "--command-config", str(without)
    )
    assert said.exit != 0 and "SslAuthenticationException" in said.out + said.err
