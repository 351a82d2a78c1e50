"""The router: request ids, browser rules, bodies of control routes, refusals that are never a traceback."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.http.hosts import host_name
from app.main import Application
from tests.app.native.streams.asgi_stream import streaming

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIG = {
    "http_allowed_hosts": ("sluice.example.org",),
    "http_allowed_origins": ("https://app.example.org",),
    "http_max_body_bytes": 50_000,
    "max_inflight_bytes": 60_000,
    "frame_timeout_ms": 50,
}
Check = Callable[[httpx.Response, int, str], dict[str, Any]]
T = "/api/v1/topics"


async def call(
    app: Application,
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    **scope: Any,
) -> tuple[int, dict[str, str], bytes]:
    """Call the application with a scope of our own making."""
    lines = [(k.lower().encode(), v.encode("latin-1")) for k, v in (headers or {}).items()]
    whole = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": lines, "server": ("127.0.0.1", 8082), "client": ("127.0.0.1", 1), "scheme": "http",
        "http_version": "1.1", "root_path": "", **scope,
    }  # fmt: skip
    sent: list[Any] = []
    first = True

    async def receive() -> dict[str, Any]:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": body, "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    await app(whole, receive, send)
    start, *parts = sent
    answered = {k.decode(): v.decode("latin-1") for k, v in start["headers"]}
    return start["status"], answered, b"".join(p.get("body", b"") for p in parts)


# --- request ids --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/v1/cluster", f"{T}/x/partitions/0/records", "/nothing", "/livez"])
async def test_a_request_id_is_echoed_on_every_answer(http: httpx.AsyncClient, path: str) -> None:
    got = await http.get(path, headers={"x-request-id": "Ab-1.2_3:/+=@"})
    assert got.headers.get_list("x-request-id") == ["Ab-1.2_3:/+=@"]
    assert got.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "\u00e9", "a\tb", "<script>"])
async def test_a_request_id_that_is_not_plain_is_replaced(app: Application, given: str) -> None:
    _, first, _ = await call(app, "GET", "/livez", {"x-request-id": given})
    _, second, _ = await call(app, "GET", "/livez")
    ids = {first["x-request-id"], second["x-request-id"]}
    assert len(ids) == 2 and given not in ids
    assert all(len(one) < 40 for one in ids)


# --- browser rules ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8082", "LOCALHOST:1", "127.0.0.1:8082", "10.1.2.3", "[::1]:8082", "[fe80::1]",
     "a.localhost", "sluice.example.org:8082", "Sluice.Example.ORG.", None],
)  # fmt: skip
async def test_a_known_host_is_answered(app: Application, host: str | None) -> None:
    status, _, _ = await call(app, "GET", "/livez", {} if host is None else {"host": host})
    assert status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example.org", 421), ("evil.example.org:8082", 421), ("localhost.evil.example.org", 421),
        ("127.0.0.1.evil.example.org", 421), ("notlocalhost", 421), ("127.0.0.1:x", 400), ("", 400), (":80", 400),
        ("[::1", 400), ("[::1]x", 400), ("localhost:123456789", 400), ("\xff", 421),
    ],
)  # fmt: skip
async def test_a_foreign_host_is_refused(app: Application, host: str, status: int) -> None:
    for path in ("/livez", f"{T}/t/records"):
        method = "GET" if path == "/livez" else "POST"
        assert (await call(app, method, path, {"host": host}))[0] == status


async def test_a_host_header_is_taken_apart() -> None:
    assert host_name(b"Example.ORG.:80") == "example.org"
    assert host_name(b"[::1]:80") == "::1"
    assert host_name(b"host:") == "host"


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True), ("http://127.0.0.1:8082", True), ("HTTP://127.0.0.1:8082", True),
        ("https://app.example.org", True), ("https://APP.example.org", True),
        ("http://127.0.0.1:8083", False), ("http://localhost:8082", False), ("null", False), ("", False),
        ("https://evil.example.org", False), ("http://app.example.org", False),
    ],
)  # fmt: skip
async def test_a_foreign_page_may_read_but_not_write(
    http: httpx.AsyncClient, topic: str, problem: Check, origin: str | None, allowed: bool
) -> None:
    headers = {} if origin is None else {"origin": origin}
    for method, path in (
        ("POST", f"{T}/{topic}/records"), ("PUT", f"{T}/{topic}"), ("PATCH", f"{T}/{topic}"),
        ("POST", f"{T}/{topic}:truncate"), ("DELETE", f"{T}/{topic}"),
    ):  # fmt: skip
        got = await http.request(method, path, headers={**headers, "content-type": "text/plain"})
        if allowed:
            assert got.status_code != 403
        else:
            problem(got, 403, "foreign-origin")
    assert (await http.get(T, headers=headers)).status_code == 200


# --- paths --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/api/v1/topics/%FF", "/api/v1/topics/a%00b", "/api/v1/topics/a%0Ab", "/%7F"]
)
async def test_a_path_that_cannot_be_read_is_400(app: Application, path: str) -> None:
    status, headers, body = await call(app, "GET", "/x", raw_path=path.encode())
    assert status == 400 and headers["content-type"] == "application/problem+json"
    assert b"malformed-request" in body


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", T, "GET"),
        ("POST", f"{T}/t", "DELETE, GET, PATCH, PUT"),
        ("PUT", f"{T}/t/records", "GET, POST"),
        ("DELETE", f"{T}/t/records", "GET, POST"),
        ("POST", f"{T}/t/partitions/0/records", "GET"),
        ("DELETE", f"{T}/t/partitions/0/records/1", "GET"),
        ("GET", f"{T}/t:truncate", None),
        ("DELETE", "/healthz", "GET"),
        ("BREW", "/healthz", "GET"),
        ("OPTIONS", "/healthz", "GET"),
    ],
)
async def test_a_method_that_a_path_does_not_take_is_405_with_allow(
    http: httpx.AsyncClient, problem: Check, method: str, path: str, allow: str | None
) -> None:
    got = await http.request(method, path)
    if allow is None:
        # To GET, "t:truncate" is the name of a topic.
        problem(got, 404, "unknown-topic-or-partition")
    else:
        problem(got, 405, "method-not-allowed")
        assert got.headers["allow"] == allow


@pytest.mark.parametrize(
    "path", ["/api", "/api/v2", "/api/v1/nothing", f"{T}/a/b", f"{T}/a/partitions/0", "/x/"]
)
async def test_a_path_without_a_route_is_404(http: httpx.AsyncClient, problem: Check, path: str) -> None:
    got = await http.get(f"http://127.0.0.1:8082{path}")
    assert got.status_code == 404
    assert got.json()["type"] == "/problems/not-found"


# --- bodies of control routes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "media", "status", "kind"),
    [
        (b"{}", "text/plain", 415, "unsupported-media-type"),
        (b"{}", "application/x-www-form-urlencoded", 415, "unsupported-media-type"),
        (b"{}", "", 415, "unsupported-media-type"),
        (b"{}", "application/jsonp", 415, "unsupported-media-type"),
        (b"{}", "application/json; charset=utf-16", 415, "unsupported-media-type"),
        (b"{", "application/json", 400, "malformed-request"),
        (b'{"partitions":NaN}', "application/json", 400, "malformed-request"),
        (b'{"partitions":"\xff"}', "application/json", 400, "malformed-request"),
        (b'{"configs":{"a":"\\ud800"}}', "application/json", 400, "malformed-request"),
        (b"[" * 40_000, "application/json", 400, "malformed-request"),
        (b'{"configs":' * 900 + b"1" + b"}" * 900, "application/json", 422, "invalid-request"),
        (b" " * 50_001, "application/json", 413, "payload-too-large"),
        (b" null", "application/json", 422, "invalid-request"),
        (b"{}", "application/json; charset=UTF-8", 201, ""),
        (b"{}", "application/merge-patch+json", 201, ""),
    ],
)
async def test_a_body_of_a_control_route_must_be_clean_json(
    http: httpx.AsyncClient, topic: str, problem: Check, content: bytes, media: str, status: int, kind: str
) -> None:
    got = await http.put(f"{T}/{topic}", content=content, headers={"content-type": media})
    if status == 201:
        assert got.status_code == 201, got.text
    else:
        problem(got, status, kind)


async def test_a_body_that_does_not_come_is_408(app: Application, topic: str) -> None:
    for path in (f"{T}/{topic}", f"{T}/{topic}/records"):
        sent: list[Any] = []
        first = True

        async def receive() -> dict[str, Any]:
            nonlocal first
            if first:
                first = False
                return {"type": "http.request", "body": b"{", "more_body": True}
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        method = "POST" if path.endswith("records") else "PUT"
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers}
        await app(scope, receive, send)
        assert sent[0]["status"] == 408
        assert (b"connection", b"close") in sent[0]["headers"]


async def test_a_client_that_disconnects_while_sending_is_not_answered(app: Application, topic: str) -> None:
    url = f"{T}/{topic}/records"
    async with streaming(
        app, url, method="POST", body=None, wait=False, content_type="application/json"
    ) as gone:
        gone.sent.put_nowait({"type": "http.request", "body": b"{", "more_body": True})
    assert gone.status == 0 and gone.pieces.empty()


async def test_bodies_under_way_share_one_limit(http: httpx.AsyncClient, topic: str, problem: Check) -> None:
    url = f"{T}/{topic}/records"
    await http.post(url, content=b"x")
    hold = asyncio.Event()

    async def slow() -> Any:
        yield b"x" * 40_000
        await hold.wait()
        yield b"y"

    held = asyncio.create_task(http.post(url, content=slow()))
    await asyncio.sleep(0.01)
    refused = await http.post(url, content=b"z" * 30_000)
    problem(refused, 503, "not-ready")
    assert refused.headers["retry-after"] == "1"
    hold.set()
    assert (await held).status_code == 200
    assert (await http.post(url, content=b"z" * 30_000)).status_code == 200


# --- failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/v1/topics/t", f"{T}/t/partitions/0/records"])
async def test_a_failure_of_ours_is_a_500_without_a_traceback(
    http: httpx.AsyncClient,
    app: Application,
    problem: Check,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    path: str,
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the secret of the server")

    monkeypatch.setattr(app.server.broker.topics, "get", fail)
    monkeypatch.setattr(app.server.broker.partitions, "info", fail)
    with caplog.at_level(logging.ERROR):
        got = await http.get(path, headers={"x-request-id": "find-me"})
    problem(got, 500, "internal-error")
    assert "secret" not in got.text and "Traceback" not in got.text
    assert "find-me" in caplog.text and "the secret of the server" in caplog.text


async def test_a_websocket_is_closed(app: Application) -> None:
    sent = []

    async def send(message: Any) -> None:
        sent.append(message["type"])

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    await app({"type": "websocket", "path": "/"}, receive, send)
    assert sent == ["websocket.close"]
