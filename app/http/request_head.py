"""Check the head of an HTTP request: where its body ends, and which host it is for (RFC 9112).

httptools (llhttp in strict mode) refuses a head that two readers could understand in two ways: bare LF, folded lines,
a space before a colon, two Content-Lengths, Content-Length beside Transfer-Encoding, a chunk size that is no number.
The rules here are those that it leaves to its caller. If a server is laxer than the proxy before it, a client can
hide a second request in a body (request smuggling).

    version        1.0 or 1.1
    Host           exactly one with 1.1, at most one with 1.0
    body           Content-Length, or with 1.1 `Transfer-Encoding: chunked` and nothing else
    target         `/path?query`, or `http://HOST/path?query` with the HOST of the Host line; no fragment
    CONNECT        refused: this is not a proxy
    Upgrade        ignored, as RFC 9110, section 7.8, allows: `head_without_upgrade`
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.errors import Problem

Headers = Sequence[tuple[bytes, bytes]]
"""Header lines: name in lower case, value."""

_VERSIONS = frozenset({"1.0", "1.1"})
_ABSOLUTE = re.compile(rb"(https?)://([^/?#]*)([^?#]*)\??([^#]*)", re.IGNORECASE)
_DEFAULT_PORTS = {b"http": b":80", b"https": b":443"}


class HeadRefusedError(Exception):
    """A request head breaks a rule. `problem` is the refusal to answer before the connection is closed."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.problem = Problem("malformed-request", detail)


def check_head(method: bytes, version: str, headers: Headers) -> None:
    """Check everything but the target. Raises HeadRefusedError."""
    if version not in _VERSIONS:
        raise HeadRefusedError(f"HTTP/{version} is not served here; send HTTP/1.1.")
    if method == b"CONNECT":
        raise HeadRefusedError("CONNECT is not served: this is not a proxy.")
    hosts = 0
    codings = []
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding":
            codings.append(value)
    if hosts > 1:
        raise HeadRefusedError("The request has more than one Host line; send one.")
    if not hosts and version != "1.0":
        raise HeadRefusedError("The request has no Host line; HTTP/1.1 requires one.")
    if codings:
        _check_codings(version, codings)


def _check_codings(version: str, codings: list[bytes]) -> None:
    if version == "1.0":
        raise HeadRefusedError("HTTP/1.0 has no Transfer-Encoding; send Content-Length, or HTTP/1.1.")
    if len(codings) > 1 or codings[0].strip().lower() != b"chunked":
        shown = b", ".join(codings).decode("latin-1")[:60]
        raise HeadRefusedError(f"Transfer-Encoding {shown!r} is not served; only 'chunked' is.")


def split_target(target: bytes, headers: list[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    """Return the path and the query of a request target; both are still percent-encoded.

    A target with a host must name that of the Host line. HTTP/1.0 may have no such line: then one is added, so
    that the rules for hosts see it. Raises HeadRefusedError.
    """
    if target[:1] == b"/" and b"#" not in target:
        path, _, query = target.partition(b"?")
        return path, query
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        raise HeadRefusedError("The request target must be a path that begins with '/', without a fragment.")
    scheme, host, path, query = found.groups()
    named = next((value for name, value in headers if name == b"host"), None)
    if named is None:
        headers.append((b"host", host))
    elif _authority(scheme, host) != _authority(scheme, named):
        raise HeadRefusedError("The request target names another host than the Host line.")
    return path or b"/", query


def _authority(scheme: bytes, host: bytes) -> bytes:
    return host.strip().lower().removesuffix(_DEFAULT_PORTS[scheme.lower()])


def head_without_upgrade(method: bytes, version: str, target: bytes, headers: Headers) -> bytes:
    """Return the bytes of a request head without its Upgrade lines, for a parser that stops at an upgrade."""
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    lines += [b"%b: %b" % line for line in headers if line[0] != b"upgrade"]
    return b"\r\n".join(lines) + b"\r\n\r\n"
