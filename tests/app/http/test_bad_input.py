"""What no client should send, on both surfaces: each has its clear 4xx, in the words of the surface, and never a 5xx.

What takes a socket to send (bodies of a gigabyte, slow bodies, slow header lines) is in test_bad_senders.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import httpx
import pytest
import pytest_asyncio

from app.main import Application

pytestmark = pytest.mark.asyncio(loop_scope="module")
JSON, V2 = "application/json", "application/vnd.kafka.v2+json"
V2_JSON, V2_BINARY = "application/vnd.kafka.json.v2+json", "application/vnd.kafka.binary.v2+json"
DEPTH = 100_000


class Place(NamedTuple):
    """A route that takes a body, with a body in which a value can be put."""

    method: str
    path: str
    media_type: str
    body: bytes


# Lean routes and others, of both surfaces.
PLACES = (
    Place("POST", "/api/v1/topics/t/records", JSON, b'{"records":[{"value":%b}]}'),
    Place("PUT", "/api/v1/topics/u", JSON, b'{"configs":{"retention.ms":%b}}'),
    Place("POST", "/api/v1/groups/g/consumers", JSON, b'{"topics":["t"],"ttl_ms":%b}'),
    Place("POST", "/topics/t", V2_JSON, b'{"records":[{"value":%b}]}'),
    Place("POST", "/topics/t/partitions/0", V2_JSON, b'{"records":[{"value":%b}]}'),
    Place("POST", "/consumers/g", V2, b'{"fetch.min.bytes":%b}'),
    Place("POST", "/consumers/g/instances/i/subscription", V2, b'{"topics":[%b]}'),
)
# No JSON, or none that could be kept.
VALUES = {
    "NaN": b"NaN",
    "Infinity": b"-Infinity",
    "half a surrogate pair": b'"\\ud800"',
    "half a surrogate pair in UTF-8": b'"\xed\xa0\x80"',
    "no UTF-8": b'"\xff"',
    "a control character": b'"\x01"',
    "depth": b"[" * DEPTH + b"]" * DEPTH,
    "depth that is never closed": b"[" * DEPTH,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def world(http: httpx.AsyncClient) -> None:
    """The topic and the instance that the table names."""
    assert (await http.put("/api/v1/topics/t", json={})).status_code == 201
    assert (await http.post("/consumers/g", json={"name": "i"})).status_code == 200


def check(answer: httpx.Response, *statuses: int) -> None:
    """A refusal of one of these statuses, in the shape of its surface, with words."""
    assert answer.status_code in statuses, (answer.status_code, answer.text[:300])
    told: dict[str, Any] = answer.json()
    if answer.request.url.path.startswith("/api/"):
        assert answer.headers["content-type"] == "application/problem+json"
        assert (told["status"], bool(told["detail"])) == (answer.status_code, True)
    else:
        assert str(told["error_code"]).startswith(str(answer.status_code)) or told["error_code"] > 40_000
        assert told["message"]


each_place = pytest.mark.parametrize(
    "place", PLACES, ids=[f"{place.method} {place.path}" for place in PLACES]
)


@pytest.mark.parametrize("value", list(VALUES.values()), ids=list(VALUES))
@each_place
async def test_a_value_that_is_no_json(http: httpx.AsyncClient, place: Place, value: bytes) -> None:
    headers = {"content-type": place.media_type}
    answer = await http.request(place.method, place.path, content=place.body % value, headers=headers)
    # Where no array is allowed, it is refused before its depth is counted.
    check(answer, 400, *((422,) if value.startswith(b"[") else ()))


@each_place
async def test_a_charset_that_is_not_utf_8(http: httpx.AsyncClient, place: Place) -> None:
    body = place.body % b"1"
    headers = {"content-type": f"{place.media_type}; charset=utf-16"}
    check(await http.request(place.method, place.path, content=body, headers=headers), 415)
    utf_16 = body.decode().encode("utf-16")
    headers = {"content-type": place.media_type}
    check(await http.request(place.method, place.path, content=utf_16, headers=headers), 400)


@each_place
async def test_a_page_of_another_origin(http: httpx.AsyncClient, place: Place) -> None:
    for media_type in (place.media_type, "text/plain"):
        headers = {"content-type": media_type, "origin": "http://evil.example"}
        check(await http.request(place.method, place.path, content=place.body % b"1", headers=headers), 403)


@pytest.mark.parametrize(
    ("path", "media_type", "body"),
    [
        ("/api/v1/topics/t/records", JSON, b'{"value":"%b","value_encoding":"base64"}'),
        ("/api/v1/topics/t/records", JSON, b'{"key":"%b","key_encoding":"base64"}'),
        ("/api/v1/topics/t/records", JSON, b'{"headers":[{"name":"h","value":"%b","encoding":"base64"}]}'),
        ("/api/v1/groups/g/members", JSON, b'{"protocols":[{"name":"range","metadata":"%b"}]}'),
        ("/topics/t", V2_BINARY, b'{"records":[{"value":"%b"}]}'),
        ("/topics/t", V2_BINARY, b'{"records":[{"value":"","headers":[{"name":"h","value":"%b"}]}]}'),
    ],
)
@pytest.mark.parametrize("text", [b"no!", b"YQ", b"YQ=", b"Y Q=", b"_-_-"])
async def test_what_is_not_base64(
    http: httpx.AsyncClient, path: str, media_type: str, body: bytes, text: bytes
) -> None:
    answer = await http.post(path, content=body % text, headers={"content-type": media_type})
    check(answer, 422)
    assert "base64" in answer.text


@pytest.mark.parametrize(
    "name", ["..", ".", "%2e%2e", "%2E", "a%01b", "a%00", "%0a", "%7f", "%ff", "%ed%a0%80"]
)
@pytest.mark.parametrize(
    ("method", "path", "media_type", "body"),
    [
        ("PUT", "/api/v1/topics/{}", JSON, b"{}"),
        ("GET", "/api/v1/topics/{}/partitions/0/records", JSON, b""),
        ("POST", "/api/v1/topics/{}/records", JSON, b'{"value":1}'),
        ("POST", "/api/v1/groups/{}/consumers", JSON, b'{"topics":["t"]}'),
        ("POST", "/api/v1/groups/g/consumers/{}:poll", JSON, b"{}"),
        ("POST", "/api/v1/groups/{}/members", JSON, b'{"topics":["t"],"wait_ms":0}'),
        ("PATCH", "/api/v1/groups/{}/offsets", JSON, b'{"offsets":[{"topic":"t","partition":0,"next_offset":0}]}'),
        ("POST", "/topics/{}", V2_JSON, b'{"records":[{"value":1}]}'),
        ("GET", "/topics/{}/partitions/0/records", V2_JSON, b""),
        ("POST", "/consumers/{}", V2, b"{}"),
        ("GET", "/consumers/g/instances/{}/records", V2_JSON, b""),
    ],
)  # fmt: skip
async def test_a_name_that_is_none(
    app: Application, method: str, path: str, media_type: str, body: bytes, name: str
) -> None:
    """Sent as it stands: clients resolve dots on their own."""
    status, told = await raw_call(app, method, path.format(name), media_type, body)
    assert 400 <= status < 500, (status, told)
    assert told.get("detail") or told.get("message")


@pytest.mark.parametrize(
    ("path", "media_type", "body"),
    [
        ("POST /api/v1/groups/g/consumers", JSON, b'{"name":"%b","topics":["t"]}'),
        ("POST /api/v1/groups/g/consumers", JSON, b'{"topics":["%b"]}'),
        (
            "PATCH /api/v1/groups/h/offsets",
            JSON,
            b'{"offsets":[{"topic":"%b","partition":0,"next_offset":0}]}',
        ),
        ("POST /consumers/g", V2, b'{"name":"%b"}'),
        ("POST /consumers/g/instances/i/subscription", V2, b'{"topics":["%b"]}'),
    ],
)
@pytest.mark.parametrize("name", [b"..", b".", b"a\\u0001b", b"\\u0000", b"a/b", b"\\n"])
async def test_a_name_in_a_body_that_is_none(
    http: httpx.AsyncClient, path: str, media_type: str, body: bytes, name: bytes
) -> None:
    answer = await http.request(*path.split(), content=body % name, headers={"content-type": media_type})
    check(answer, 400, 404, 422)


async def raw_call(
    app: Application, method: str, path: str, media_type: str, body: bytes
) -> tuple[int, dict[str, Any]]:
    """Status and body of a request whose path no client library has touched."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": httpx.URL("http://h").copy_with(raw_path=path.encode()).path, "raw_path": path.encode(),
        "query_string": b"", "root_path": "", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8082),
        "headers": [(b"host", b"127.0.0.1:8082"), (b"content-type", media_type.encode())],
    }  # fmt: skip
    await app(scope, receive, send)
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], httpx.Response(200, content=content).json()
