"""Request smuggling against a real broker: a record whose text is a request is stored, and never run."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import JavaGateway

from tests.app.http.raw_requests import java as java_head
from tests.broker_process import BrokerProcess

TOPICS = "/api/v1/topics"
# What a body would do if it ran.
DELETE = f"DELETE {TOPICS}/victim HTTP/1.1\r\nHost: localhost\r\n\r\n"
SIZE = len(DELETE)
CHUNKED = f"{SIZE:x}\r\n{DELETE}\r\n0\r\n\r\n"
UPGRADE = "Connection: upgrade\r\nUpgrade: x\r\n"


def call(broker: BrokerProcess, method: str, path: str) -> Any:
    request = urllib.request.Request(broker.http + path, method=method)
    if method == "PUT":
        request.data, request.headers["Content-type"] = b'{"partitions": 1}', "application/json"
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of one partition for this test; the victim is there before it, and must be afterwards."""
    name = re.sub(r"\W+", "-", request.node.name)
    for one in ("victim", name):
        call(broker, "PUT", f"{TOPICS}/{one}")
    yield name
    assert call(broker, "GET", f"{TOPICS}/victim")["name"] == "victim"


def values(broker: BrokerProcess, topic: str) -> list[str]:
    found = call(broker, "GET", f"{TOPICS}/{topic}/partitions/0/records?offset=0")
    return [record["value"] for record in found["records"]]


def talk(broker: BrokerProcess, *pieces: bytes) -> bytes:
    """What a connection answers, until it is closed."""
    with socket.create_connection(("127.0.0.1", broker.ports["http"]), timeout=30) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            one.sendall(piece)
        answer = b""
        while part := one.recv(65536):
            answer += part
        return answer


@pytest.mark.parametrize("client", ["x", "java"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_record_that_is_a_request_is_stored_whole(
    broker: BrokerProcess, topic: str, client: str, chunked: bool
) -> None:
    target = f"{TOPICS}/{topic}/records"
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {SIZE}"
    head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}{length}\r\n\r\n".encode()
    if client == "java":
        head = java_head(target.encode(), None if chunked else SIZE)
    body = CHUNKED if chunked else DELETE
    last = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    for pieces in ([head + body.encode() + last], [head, body.encode(), last]):
        answer = talk(broker, *pieces)
        assert answer.count(b"HTTP/1.1 200 ") == answer.count(b"HTTP/1.1 ") == 2, answer
    assert values(broker, topic) == [DELETE, DELETE]


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        (f"Content-Length: {SIZE}\r\n", DELETE),
        (f"Host: localhost\r\nHost: evil.example\r\nContent-Length: {SIZE}\r\n", DELETE),
        ("Host: localhost\r\nTransfer-Encoding: gzip, chunked\r\n", CHUNKED),
        (f"Host: localhost\r\nContent-Length: {SIZE}\r\nTransfer-Encoding: chunked\r\n", CHUNKED),
        (f"Host: localhost\r\n{UPGRADE}Content-Length: 0\r\nContent-Length: {SIZE}\r\n", DELETE),
    ],
    ids=["no Host", "two Hosts", "gzip", "both lengths", "two lengths"],
)
def test_a_request_with_two_meanings_is_refused_and_stores_nothing(
    broker: BrokerProcess, topic: str, lines: str, body: str
) -> None:
    data = f"POST {TOPICS}/{topic}/records HTTP/1.1\r\n{lines}\r\n{body}".encode()
    answer = talk(broker, data)
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"content-length: ") == 1
    assert values(broker, topic) == []


def test_other_targets_and_versions_are_refused(broker: BrokerProcess, topic: str) -> None:
    for start in ("DELETE http://evil.example%s HTTP/1.1", "DELETE %s HTTP/2.0"):
        line = start % f"{TOPICS}/{topic}"
        assert talk(broker, f"{line}\r\nHost: localhost\r\n\r\n".encode()).startswith(b"HTTP/1.1 400 ")
    chunked = f"POST {TOPICS}/{topic}/records HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n{CHUNKED}"
    assert talk(broker, chunked.encode()).startswith(b"HTTP/1.1 400 ")
    assert values(broker, topic) == []


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """A Java that Python drives: the client below needs no compiler, which a bare machine does not have."""
    jar = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
    gateway = JavaGateway.launch_gateway(classpath=str(jar), die_on_exit=True)
    try:
        yield gateway.jvm.java.net
    finally:
        gateway.shutdown()
        gateway.java_process.kill()
        gateway.java_process.wait()
        gateway.java_process.stdin.close()


@pytest.mark.client("java")
@pytest.mark.parametrize("chunked", [False, True])
def test_the_http_client_of_java(broker: BrokerProcess, topic: str, java: Any, chunked: bool) -> None:
    """It asks to upgrade to HTTP/2 with each POST in clear text."""
    publishers = java.http.HttpRequest.BodyPublishers
    client = java.http.HttpClient.newHttpClient()
    for _ in range(2):
        body = publishers.ofString(DELETE)
        request = (
            java.http.HttpRequest.newBuilder(java.URI.create(f"{broker.http}{TOPICS}/{topic}/records"))
            .header("Content-Type", "text/plain")
            .POST(publishers.fromPublisher(body) if chunked else body)
            .build()
        )
        answer = client.send(request, java.http.HttpResponse.BodyHandlers.ofString())
        assert answer.statusCode() == 200, answer.body()
    assert values(broker, topic) == [DELETE, DELETE]
