"""The HTTP side: gateways that answer, gateways that do not, and the messages about them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from app.commands.client import Client, base_url, is_local, segment
from app.commands.errors import RefusedError, UnreachableError
from tests.app.commands.fake_gateway import FakeGateway, Reply, problem
from tests.app.commands.running import run
from tests.broker_process import BrokerProcess


@pytest.fixture
def client(fake: FakeGateway) -> Iterator[Client]:
    """A client of the fake gateway."""
    one = Client(fake.url)
    yield one
    one.close()


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("localhost:8082", "http://localhost:8082"), ("http://h:1/", "http://h:1"), ("https://h", "https://h"),
        ("http://h/api/v1/", "http://h"), (" http://h/kafka ", "http://h/kafka"),
    ],
)  # fmt: skip
def test_an_address_may_be_written_in_many_ways(given: str, url: str) -> None:
    assert base_url(given) == url


def test_local_addresses_are_told_from_others() -> None:
    assert all(
        map(is_local, ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost", "http://a.localhost"])
    )
    assert not any(map(is_local, ["http://10.0.0.1", "http://example.org"]))


def test_a_password_in_the_address_is_used_and_never_shown(fake: FakeGateway) -> None:
    with_user = fake.url.replace("http://", "http://ann:secret@")
    fake.will_answer(Reply(200, {"items": []}), Reply(200, b"", "text/html"), Reply(hang_up=True))
    run("topics", "list", url=with_user)
    assert fake.requests[0][3]["authorization"].startswith("Basic ")
    for _ in range(2):
        assert "secret" not in run("topics", "list", url=with_user, code=None).err
    fake.stop_listening()
    assert "secret" not in run("topics", "list", url=with_user, code=3).err


def test_names_become_single_segments() -> None:
    assert segment("a/b ü\udcff") == "a%2Fb%20%C3%BC%FF"
    assert (segment("."), segment(".."), segment("a.b"), segment("...")) == ("%2E", "%2E%2E", "a.b", "...")


def test_no_gateway_is_exit_code_3_with_a_hint() -> None:
    ran = run("topics", "list", url="http://127.0.0.1:1", code=3)
    assert ran.err.splitlines() == [
        "sluice: No gateway can be reached at http://127.0.0.1:1: connection refused.",
        "  Is it running? `sluice serve` starts one; --url or SLUICE_URL names another.",
    ]


@pytest.mark.parametrize(
    "url", ["http://", "http://[", "ftp://h:1", "http://h:99999", "http://h:0", "h h", ":", "h:x"]
)
def test_an_address_that_is_none_is_wrong_usage(url: str) -> None:
    assert "is not like http://127.0.0.1:8082" in run("topics", "list", url=url, code=2).err


def test_a_host_without_an_address_is_exit_code_3() -> None:
    assert "No gateway can be reached" in run("topics", "list", url="http://nowhere.invalid:1", code=3).err


def test_the_kafka_port_is_recognised_as_not_http(broker: BrokerProcess) -> None:
    ran = run("topics", "list", url=f"http://{broker.kafka}", code=3)
    assert "closed the connection" in ran.err or "does not speak HTTP" in ran.err
    assert "By default it is 8082" in ran.err


def test_what_speaks_no_http_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.example.org ESMTP\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        ran = run("topics", "list", url=f"http://127.0.0.1:{server.getsockname()[1]}", code=3)
        thread.join()
    assert "does not speak HTTP" in ran.err and "8082" in ran.err


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, b"<html>hello</html>", "text/html"), Reply(404, b"not found", "text/plain"),
        Reply(502, {"error": "x"}), Reply(500, b"{", "application/problem+json"),
        Reply(500, [1], "application/problem+json"),
    ],
)  # fmt: skip
def test_another_server_is_told_from_a_gateway(fake: FakeGateway, client: Client, reply: Reply) -> None:
    fake.will_answer(reply)
    with pytest.raises(UnreachableError, match="no Sluice gateway") as caught:
        client.get("/topics")
    assert caught.value.sent


def test_a_connection_that_is_cut_is_told_as_such(fake: FakeGateway, client: Client) -> None:
    fake.will_answer(Reply(hang_up=True))
    with pytest.raises(UnreachableError, match="closed the connection") as caught:
        client.send("POST", "/topics/x/records", body={})
    assert caught.value.sent


def test_a_gateway_that_does_not_answer_is_told(
    fake: FakeGateway, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.commands.client.ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        slow = Client(f"http://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(UnreachableError, match="did not answer within"):
            slow.get("/")
        slow.close()


def test_a_refusal_keeps_its_document(fake: FakeGateway, client: Client) -> None:
    fake.will_answer(problem(410, "offset-out-of-range", "Gone.", log_start_offset=5))
    with pytest.raises(RefusedError, match=r"Gone\.") as caught:
        client.get("/x")
    assert (caught.value.status, caught.value.kind) == (410, "offset-out-of-range")
    assert caught.value.problem["log_start_offset"] == 5


def test_not_now_is_asked_again_and_patience_ends(
    fake: FakeGateway, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = problem(503, "not-ready", "Starting.")
    busy.headers = (("retry-after", "0"),)
    fake.will_answer(busy, busy, Reply(200, {"ok": True}))
    assert client.get("/x") == {"ok": True} and len(fake.requests) == 3
    monkeypatch.setattr("app.commands.client.PATIENCE_SECONDS", 0.0)
    fake.will_answer(busy)
    with pytest.raises(RefusedError, match="Starting"):
        client.get("/x")


def test_a_refusal_of_kafkas_is_not_repeated(fake: FakeGateway, client: Client) -> None:
    refused = problem(
        503, "not-enough-replicas-after-append", "Late.", kafka_error="NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    )
    fake.will_answer(refused)
    with pytest.raises(RefusedError, match="Late"):
        client.send("POST", "/topics/x/records", body={})
    assert len(fake.requests) == 1


def test_parameters_are_sent_as_the_api_reads_them(fake: FakeGateway, client: Client) -> None:
    fake.will_answer(Reply(200, {}))
    client.get("/topics", {"prefix": "a&b=ü", "include_internal": True, "page_token": None, "n": 5})
    assert fake.requests[0][1] == "/api/v1/topics?prefix=a%26b%3D%C3%BC&include_internal=true&n=5"


def test_a_proxy_of_the_environment_is_not_used_for_this_machine(
    fake: FakeGateway, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    fake.will_answer(Reply(200, {}))
    assert client.get("/x") == {}


def test_lines_are_cut_at_line_feeds_alone(fake: FakeGateway, client: Client) -> None:
    body = '{"a":"\u2028\u0085\x0c\\r"}\n\n{"b":1}\nrest'.encode()
    fake.will_answer(Reply(200, body, "application/x-ndjson"))
    with client.stream("/x", {}, accept="application/x-ndjson", silence_seconds=5) as chunks:
        lines = [line for chunk in chunks for line in chunk]
    assert lines == [body.split(b"\n")[0], b"", b'{"b":1}']
    assert fake.requests[0][3]["accept"] == "application/x-ndjson"
