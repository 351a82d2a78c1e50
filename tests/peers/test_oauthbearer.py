"""Java's client over SASL_SSL with OAUTHBEARER: a token by client credentials, and a login again in time."""

from __future__ import annotations

import base64
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.clients.wire import Wire
from tests.issuer import AUDIENCE, Issuer
from tests.peers.jvm import WAIT_SECONDS, properties
from tests.peers.kafka import Tools
from tests.peers.tool_rows import MAINS
from tests.secured import Secured

OAUTH = "kafka?auth=oauthbearer&tls=default"
JWT = "http?auth=jwt"
# Two cores may serve many JVMs: more than a tool may take elsewhere.
SECONDS = 180
# Kafka's clients log in again in the last 5 to 15 % of this time.
SESSION_MS = 10_000
ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LOGIN = re.compile(r'"event": "login".*"mechanism": "OAUTHBEARER".*"principal": "User:alice"')


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer(time.time).served_in_a_thread() as made:
        yield made


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[Secured]:
    environment = {
        "SLUICE_OAUTH": f"issuer={issuer.url}; audience={AUDIENCE}; algorithms=RS256",
        "SLUICE_MAX_REAUTH_MS": str(SESSION_MS),
    }
    directory = tmp_path_factory.mktemp("oauthbearer")
    with Secured(directory, environment=environment, schemes=(OAUTH, JWT)) as one:
        # On a busy machine the first fetch of the keys may take longer than a broker waits, and a Java client
        # does not try a refused login again.
        deadline = time.monotonic() + WAIT_SECONDS
        while not has_keys(one, issuer):
            assert time.monotonic() < deadline, one.broker.read_log()[-5_000:]
            time.sleep(0.2)
        yield one


def has_keys(secured: Secured, issuer: Issuer) -> bool:
    """Return whether the broker takes a token of the issuer."""
    url = f"http://127.0.0.1:{secured.broker.ports[JWT]}/api/v1/topics"
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {issuer.mint()}"})
    try:
        with urllib.request.urlopen(request, timeout=60):
            return True
    except urllib.error.HTTPError as refused:
        assert refused.code == 401
        return False


@pytest.fixture(scope="module")
def tools(issuer: Issuer) -> Iterator[Tools]:
    """A JVM that may ask this issuer: since Kafka 4.0 clients ask no other one."""
    process = Tools(options=(f"-D{ALLOWED}={issuer.url}/token",))
    try:
        yield process
    finally:
        process.close()


@pytest.fixture
def login(secured: Secured, issuer: Issuer, tmp_path: Path) -> str:
    """The settings of a client."""
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    return properties(
        tmp_path / "oauth.properties",
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": handler,
            "sasl.oauthbearer.token.endpoint.url": f"{issuer.url}/token",
            "sasl.jaas.config": f'{MODULE} required clientId="alice" clientSecret="canary";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": secured.ca,
        },
    )


def where(secured: Secured, option: str, login: str, topic: str) -> tuple[str, ...]:
    return ("--bootstrap-server", secured.bootstrap(OAUTH), option, login, "--topic", topic)


def test_the_console_tools_write_and_read(tools: Tools, secured: Secured, issuer: Issuer, login: str) -> None:
    with Wire(secured.broker.kafka_address) as wire:
        wire.create_topic("java-oauth")
    producer = where(secured, "--producer.config", login, "java-oauth")
    said = tools.run(MAINS["console-producer"], *producer, text="one\ntwo\n", seconds=SECONDS)
    assert said.exit == 0, said
    consumer = where(secured, "--consumer.config", login, "java-oauth")
    read = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "100000")
    said = tools.run(MAINS["console-consumer"], *consumer, *read, seconds=SECONDS)
    assert (said.exit, said.out) == (0, "one\ntwo\n"), said
    head, form = issuer.grants[-1]
    assert b"grant_type=client_credentials" in form
    assert base64.b64encode(b"alice:canary") in head
    log = secured.broker.read_log()
    assert LOGIN.search(log) and "canary" not in log


def test_a_token_of_another_audience_is_refused(
    tools: Tools, secured: Secured, issuer: Issuer, login: str
) -> None:
    bad = f'{{"access_token": "{issuer.mint(aud="another")}", "token_type": "Bearer", "expires_in": 600}}'
    head = f"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {len(bad)}\r\n\r\n"
    issuer.answers["/token"] = (head + bad).encode()
    try:
        command = ("--bootstrap-server", secured.bootstrap(OAUTH), "--command-config", login, "--list")
        said = tools.run(MAINS["topics"], *command, seconds=SECONDS)
    finally:
        del issuer.answers["/token"]
    assert "SaslAuthenticationException" in said.out + said.err, said


def accepted(secured: Secured) -> int:
    """Return how many connections the Kafka listeners have taken."""
    with urllib.request.urlopen(secured.broker.http + "/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    name = "sluice_tcp_accepted_connections_total"
    return sum(int(float(one.rpartition(" ")[2])) for one in lines if one.startswith(name))


def test_an_open_consumer_logs_in_again(tools: Tools, secured: Secured, login: str) -> None:
    """KIP-368: there are more logins than connections, and what is written after them arrives."""
    with Wire(secured.broker.kafka_address) as wire:
        wire.create_topic("java-again")
        wire.write("java-again", "one")
        before = len(LOGIN.findall(secured.broker.read_log())) - accepted(secured)
        consumer = where(secured, "--consumer.config", login, "java-again")
        read = ("--from-beginning", "--max-messages", "2")
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(tools.run, MAINS["console-consumer"], *consumer, *read, seconds=SECONDS)
            deadline = time.monotonic() + WAIT_SECONDS
            while len(LOGIN.findall(secured.broker.read_log())) - accepted(secured) <= before:
                if reading.done() or time.monotonic() > deadline:
                    log = secured.broker.read_log()[-8_000:]
                    pytest.fail(f"{reading.result() if reading.done() else 'no new login'}\n{log}")
                time.sleep(0.2)
            wire.write("java-again", "two")
            said = reading.result()
    assert (said.exit, said.out) == (0, "one\ntwo\n"), said
