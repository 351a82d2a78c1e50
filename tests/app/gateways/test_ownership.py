"""app.gateways.ownership: which gateway owns a request."""

from __future__ import annotations

import pytest

from app.gateways.ownership import hashed, owner_of, stateful_key
from app.http.request import InFlight, Request
from core.config import Config


def request(method: str, raw_path: str, **headers: str) -> Request:
    lines = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    from urllib.parse import unquote

    scope = {"method": method, "path": unquote(raw_path), "raw_path": raw_path.encode(), "query_string": b""}

    async def receive() -> dict[str, object]:
        return {}

    return Request(scope, receive, lines, Config(), InFlight(1))


@pytest.mark.parametrize(
    ("method", "path", "key"),
    [
        ("POST", "/api/v1/groups/g/consumers", b"group g"),
        ("GET", "/api/v1/groups/g/consumers", b"group g"),
        ("POST", "/api/v1/groups/g/consumers/one:poll", b"group g"),
        ("DELETE", "/api/v1/groups/g/consumers/one/", b"group g"),
        ("POST", "/api/v1/groups/na%C3%AFve/consumers", "group naïve".encode()),
        ("POST", "/consumers/g", b"group g"),
        ("GET", "/consumers/g/instances/i/records", b"group g"),
        ("GET", "/api/v1/groups/g", None),
        ("GET", "/api/v1/groups/g/offsets", None),
        ("GET", "/api/v1/groups", None),
        ("GET", "/consumers", None),
        ("POST", "/api/v1/topics/t/records", None),
    ],
)
def test_the_group_names_the_state_of_a_consumer(method: str, path: str, key: bytes | None) -> None:
    assert stateful_key(request(method, path)) == key


def test_an_idempotency_key_names_the_state_of_a_write_and_of_no_read() -> None:
    path = "/api/v1/topics/t/records"
    assert stateful_key(request("POST", path, idempotency_key="k1")) == b"key k1"
    assert stateful_key(request("GET", path, idempotency_key="k1")) is None
    assert stateful_key(request("POST", "/api/v1/groups/g/consumers", idempotency_key="k1")) == b"group g"


def test_the_order_of_the_names_does_not_matter_and_a_new_name_takes_only_its_own_share() -> None:
    keys = [f"group g{n}".encode() for n in range(3_000)]
    three = [owner_of(("a", "b", "c"), key) for key in keys]
    assert three == [owner_of(("c", "a", "b"), key) for key in keys]
    shares = [three.count(name) / len(keys) for name in ("a", "b", "c")]
    assert all(0.3 < share < 0.37 for share in shares)
    four = [owner_of(("a", "b", "c", "d"), key) for key in keys]
    moved = [(old, new) for old, new in zip(three, four, strict=True) if old != new]
    assert {new for _, new in moved} == {"d"}
    assert 0.2 < len(moved) / len(keys) < 0.3


def test_one_gateway_alone_owns_everything() -> None:
    assert hashed(["a"])(request("POST", "/consumers/g")) == "a"
