"""Real clients over TLS with a login, all against one broker; every mechanism of each client is in test_sasl.py.

Java's client and Kafka's tools are in tests/peers/test_sasl_ssl.py, Spark in tests/pipeline/test_spark_security.py.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.app.commands.running import run
from tests.clients import logins
from tests.clients.driver import CALL_SECONDS
from tests.clients.wire import Wire
from tests.conftest import GO_CLIENTS
from tests.secured import CERTIFIED, HTTPS, HTTPS_CERTIFICATE, PASSWORD, SASL_SSL, SSL, USER, Secured


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("secured")) as one:
        yield one


@pytest.fixture
def bootstrap(secured: Secured) -> str:
    return secured.bootstrap(SASL_SSL)


@pytest.fixture
def topic(secured: Secured, request: pytest.FixtureRequest) -> str:
    """A topic of this test, made over the listener without authentication."""
    name = logins.topic_name(request)
    with Wire(secured.broker.kafka_address) as wire:
        wire.create_topic(name)
    return name


def rdkafka_tls(secured: Secured, mechanism: str) -> dict[str, Any]:
    over_tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(secured.ca)}
    return logins.rdkafka(secured.bootstrap(SASL_SSL), mechanism) | over_tls


def rdkafka_certificate(secured: Secured) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured.bootstrap(SSL),
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.ca),
        "ssl.certificate.location": str(secured.certificate),
        "ssl.key.location": str(secured.key),
    }


@pytest.mark.parametrize("mechanism", [*logins.MECHANISMS, "certificate"])
def test_librdkafka(secured: Secured, mechanism: str, topic: str) -> None:
    certificate = mechanism == "certificate"
    settings = rdkafka_certificate(secured) if certificate else rdkafka_tls(secured, mechanism)
    logins.by_librdkafka(settings, topic, mechanism)


@logins.each_mechanism
@pytest.mark.client("kcat")
def test_kcat(secured: Secured, mechanism: str, topic: str) -> None:
    logins.by_kcat(rdkafka_tls(secured, mechanism), topic, mechanism)


@logins.each_mechanism
def test_kafka_python(secured: Secured, bootstrap: str, mechanism: str, topic: str) -> None:
    over_tls = {"security_protocol": "SASL_SSL", "ssl_cafile": str(secured.ca)}
    logins.by_kafka_python(logins.python_settings(bootstrap, mechanism) | over_tls, topic, mechanism)


@logins.each_mechanism
async def test_aiokafka(secured: Secured, bootstrap: str, mechanism: str, topic: str) -> None:
    context = ssl.create_default_context(cafile=str(secured.ca))
    over_tls = {"security_protocol": "SASL_SSL", "ssl_context": context}
    await logins.by_aiokafka(logins.python_settings(bootstrap, mechanism) | over_tls, topic, mechanism)


@pytest.mark.client("old kafka-python")
@pytest.mark.parametrize(
    ("release", "version", "mechanism"), [("1.4.7", "0.10", "PLAIN"), ("2.0.2", "2.5", "SCRAM-SHA-512")]
)
def test_old_kafka_python(
    secured: Secured, bootstrap: str, topic: str, release: str, version: str, mechanism: str
) -> None:
    logins.by_old_kafka_python(release, version, bootstrap, mechanism, topic, SSL_CAFILE=str(secured.ca))


@pytest.mark.client("kafkajs")
def test_kafkajs(secured: Secured, bootstrap: str, topic: str) -> None:
    logins.by_kafkajs(bootstrap, "SCRAM-SHA-256", topic, SSL_CAFILE=str(secured.ca))


@logins.each_mechanism
@pytest.mark.client("go clients")
@pytest.mark.parametrize("library", ["sarama", "franz-go"])
def test_go(secured: Secured, bootstrap: str, topic: str, library: str, mechanism: str) -> None:
    record = {"key": None, "value": base64.b64encode(mechanism.encode()).decode(), "headers": []}
    commands = [
        {"verb": "write", "topic": topic, "codec": "none", "messages": [record]},
        {"verb": "read", "topic": topic, "count": 1},
    ]
    login = {"SSL_CAFILE": str(secured.ca), "SASL_MECHANISM": mechanism, "SASL_USER": USER}
    done = subprocess.run(
        [str(GO_CLIENTS), "driver", library, bootstrap],
        input="".join(json.dumps(command) + "\n" for command in commands),
        env={**os.environ, **login, "SASL_PASSWORD": PASSWORD},
        capture_output=True,
        text=True,
        timeout=2 * CALL_SECONDS,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["value"] for one in answers[-1]["result"]] == [record["value"]], done.stdout + done.stderr


# --- curl -----------------------------------------------------------------------------------------------------


def curl(secured: Secured, url: str, *options: str, config: str = "") -> Any:
    """Ask for JSON; secrets are given on standard input, where other users of the machine cannot see them."""
    command = ["curl", "-s", "--cacert", str(secured.ca), "-K", "-", "-w", "\n%{http_code}", *options, url]
    done = subprocess.run(
        command, input=config, capture_output=True, text=True, check=True, timeout=CALL_SECONDS
    )
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body)


@pytest.mark.client("curl")
def test_curl(secured: Secured, topic: str) -> None:
    records = f"/api/v1/topics/{topic}/records"
    logins = (f'user = "{USER}:{PASSWORD}"', f'oauth2-bearer = "{secured.token()}"')
    for login in logins:
        status, answer = curl(secured, secured.url(HTTPS) + records, "-d", "x", config=login)
        assert status == 200, answer
    certificate = ("--cert", str(secured.certificate), "--key", str(secured.key))
    status, answer = curl(secured, secured.url(HTTPS_CERTIFICATE) + records, *certificate, "-d", "x")
    assert status == 200, (CERTIFIED, answer)
    status, answer = curl(secured, secured.url(HTTPS) + records, "-d", "x")
    assert (status, answer["type"]) == (401, "/problems/unauthenticated")
    with Wire(secured.broker.kafka_address) as wire:
        assert [message.value for message in wire.read_all(topic, 0)] == [b"x"] * 3


def test_the_command_line(secured: Secured, topic: str) -> None:
    """With a certificate, with a password, and with neither."""
    certificate = ("--cert", str(secured.certificate), "--cert-key", str(secured.key))
    password = ("--user", USER, "--user-password-file", str(secured.password_file))
    for listener, login in ((HTTPS_CERTIFICATE, certificate), (HTTPS, password)):
        listed = run("topics", "list", "--ca", str(secured.ca), *login, url=secured.url(listener))
        assert topic in listed.out
    refused = run("topics", "list", "--ca", str(secured.ca), url=secured.url(HTTPS), code=1)
    assert "SLUICE_TOKEN" in refused.err
    wrong = ("--cert", str(secured.ca))
    refused = run("topics", "list", "--ca", str(secured.ca), *wrong, url=secured.url(HTTPS), code=2)
    assert "no certificate with its key" in refused.err


def test_no_secret_is_in_the_log(secured: Secured) -> None:
    assert "canary" not in secured.broker.read_log()
