"""app.gateways.hop: the header line that only gateways can write."""

from __future__ import annotations

from typing import Any

from app.gateways.hop import Hop, hop_of, seal, unseal
from app.http.principal import CERTIFICATE
from core.security.principal import Principal

SECRET = b"0123456789abcdef"


def scope(method: str = "POST", raw_path: bytes = b"/consumers/g", query: bytes = b"") -> dict[str, Any]:
    return {
        "method": method,
        "path": raw_path.decode(),
        "raw_path": raw_path,
        "query_string": query,
        "scheme": "https",
        "client": ("10.1.2.3", 55),
        "server": ("10.0.0.1", 8082),
        CERTIFICATE: Principal("User", "CN=alice"),
    }


def test_a_hop_says_where_the_client_is_and_what_its_certificate_says() -> None:
    sent = scope()
    hop = hop_of(sent, "gateway", "a", "b")
    assert unseal(SECRET, seal(SECRET, hop, sent), scope()) == Hop(
        "gateway", "a", "b", "https", ["gateway"], ("10.1.2.3", 55), ("10.0.0.1", 8082), ("User", "CN=alice")
    )


def test_a_line_for_another_request_or_with_another_secret_is_not_taken() -> None:
    line = seal(SECRET, hop_of(scope(), "gateway", "a", "b"), scope())
    assert unseal(SECRET, line, scope("DELETE")) is None
    assert unseal(SECRET, line, scope(raw_path=b"/consumers/h")) is None
    assert unseal(SECRET, line, scope(query=b"x=1")) is None
    assert unseal(b"another secret, 16", line, scope()) is None
    for changed in (b"", b".", b"x", line[:-1], b"e30=" + line[line.index(b".") :], b"\xff" + line):
        assert unseal(SECRET, changed, scope()) is None
