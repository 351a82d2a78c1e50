"""Requests as raw bytes, with what must come of them: which run, what is answered, whether the connection closes.

Each body holds a whole request for `/victim`: a reader that loses the end of a body would run it.
"""

from __future__ import annotations

from typing import NamedTuple

VICTIM = b"DELETE /victim HTTP/1.1\r\nHost: localhost\r\n\r\n"
SIZE = len(VICTIM)
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (SIZE, VICTIM)


class Ran(NamedTuple):
    """A request that must have run, with its whole body."""

    method: str
    path: str
    body: bytes = b""


class Raw(NamedTuple):
    """One case: the bytes of a connection, the requests in them that run, the answers' statuses, and its end."""

    name: str
    data: bytes
    ran: tuple[Ran, ...]
    statuses: tuple[int, ...]
    closed: bool


STORED = Ran("POST", "/a", VICTIM)
NEXT = Ran("GET", "/next")


def head(start: bytes, *lines: bytes, host: bytes | None = b"localhost") -> bytes:
    """A request head; the Host line first, unless `host` is None."""
    named = () if host is None else (b"Host: " + host,)
    return b"\r\n".join((start, *named, *lines, b"", b""))


def post(*lines: bytes, body: bytes = VICTIM, version: bytes = b"1.1") -> bytes:
    """A POST of a body with these header lines beside Host, and a request after it that shows where it ended."""
    return head(b"POST /a HTTP/" + version, *lines) + body + head(b"GET /next HTTP/1.1")


def sized(*lines: bytes, version: bytes = b"1.1") -> bytes:
    """The same with a right Content-Length."""
    return post(*lines, b"Content-Length: %d" % SIZE, version=version)


def java(target: bytes, size: int | None = SIZE) -> bytes:
    """The head that Java 17's HttpClient sends with a POST in clear text, as recorded; chunked without a size."""
    lines = [
        b"POST %b HTTP/1.1" % target,
        b"Connection: Upgrade, HTTP2-Settings",
        *([] if size is None else [b"Content-Length: %d" % size]),
        b"Host: localhost",
        b"HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA",
        *([b"Transfer-encoding: chunked"] if size is None else []),
        b"Upgrade: h2c",
        b"User-Agent: Java-http-client/17.0.15",
        b"Content-Type: text/plain",
    ]
    return b"\r\n".join([*lines, b"", b""])


def get(target: bytes, *lines: bytes, host: bytes | None = b"localhost", version: bytes = b"1.1") -> bytes:
    """A GET."""
    return head(b"GET %b HTTP/%b" % (target, version), *lines, host=host)


def taken(name: str, data: bytes, *ran: Ran, closed: bool = False) -> Raw:
    """A case whose requests all run."""
    return Raw(name, data, ran, (200,) * len(ran), closed)


def refused(name: str, data: bytes, *before: Ran, status: int = 400) -> Raw:
    """A case that ends with a refusal, after the requests before it have run."""
    return Raw(name, data, before, (200,) * len(before) + (status,), True)


_TE = b"Transfer-Encoding: chunked"
_LENGTH = b"Content-Length: %d" % SIZE

UPGRADES = (
    taken("upgrade, sized", sized(b"Connection: upgrade", b"Upgrade: x"), STORED, NEXT),
    taken("upgrade, chunked", post(b"Connection: upgrade", b"Upgrade: x", _TE, body=CHUNKED), STORED, NEXT),
    taken("upgrade, lines the other way", sized(b"Upgrade: x", b"connection: UPGRADE"), STORED, NEXT),
    taken(
        "upgrade among other tokens",
        sized(b"Connection: keep-alive, Upgrade", b"Upgrade: h2c, x"),
        STORED,
        NEXT,
    ),
    taken("upgrade to websocket", sized(b"Connection: Upgrade", b"Upgrade: websocket"), STORED, NEXT),
    taken("upgrade twice", sized(b"Connection: upgrade", b"Upgrade: x", b"Upgrade: y"), STORED, NEXT),
    taken("upgrade without Connection", sized(b"Upgrade: x"), STORED, NEXT),
    taken("Connection: upgrade alone", sized(b"Connection: upgrade"), STORED, NEXT),
    taken("upgrade, no body", get(b"/next", b"Connection: upgrade", b"Upgrade: x") * 2, NEXT, NEXT),
    taken(
        "upgrades in a row",
        2 * (head(b"POST /a HTTP/1.1", b"Connection: upgrade", b"Upgrade: x", _LENGTH) + VICTIM),
        STORED,
        STORED,
    ),
    taken("upgrade and close", sized(b"Connection: upgrade, close", b"Upgrade: x"), STORED, closed=True),
    taken(
        "upgrade, HTTP/1.0", sized(b"Connection: upgrade", b"Upgrade: x", version=b"1.0"), STORED, closed=True
    ),
    taken(
        "Java, sized",
        java(b"/a") + VICTIM + get(b"/next"),
        STORED,
        NEXT,
    ),
    taken(
        "Java, chunked",
        java(b"/a", None) + CHUNKED + get(b"/next"),
        STORED,
        NEXT,
    ),
    refused(
        "upgrade, Content-Length beside chunked",
        post(b"Connection: upgrade", b"Upgrade: x", _LENGTH, _TE, body=CHUNKED),
    ),
    refused(
        "upgrade, another coding",
        post(b"Connection: upgrade", b"Upgrade: x", b"Transfer-Encoding: gzip", body=CHUNKED),
    ),
    refused(
        "upgrade, no Host",
        head(b"POST /a HTTP/1.1", b"Connection: upgrade", b"Upgrade: x", _LENGTH, host=None),
    ),
    refused("CONNECT", head(b"CONNECT localhost:80 HTTP/1.1") + VICTIM),
    refused("CONNECT with a body", head(b"CONNECT localhost:80 HTTP/1.1", _LENGTH) + VICTIM),
)

HOSTS = (
    refused("no Host", get(b"/a", host=None) + VICTIM),
    refused("two Hosts", get(b"/a", b"Host: evil.example") + VICTIM),
    refused("two Hosts, the same", get(b"/a", b"host: localhost")),
    refused("two Hosts, HTTP/1.0", get(b"/a", b"Host: localhost", version=b"1.0")),
    taken("no Host, HTTP/1.0", get(b"/next", host=None, version=b"1.0"), NEXT, closed=True),
    taken("absolute target", get(b"http://localhost/next"), NEXT),
    taken("absolute target, in capitals", get(b"HTTP://LocalHost/next"), NEXT),
    taken("absolute target, default port", get(b"http://localhost:80/next"), NEXT),
    taken("absolute target, port", get(b"http://localhost:8082/next", host=b"localhost:8082"), NEXT),
    taken("absolute target without a path", get(b"http://localhost"), Ran("GET", "/")),
    taken(
        "absolute target, HTTP/1.0",
        get(b"http://localhost/next", host=None, version=b"1.0"),
        NEXT,
        closed=True,
    ),
    refused("absolute target, foreign", get(b"http://evil.example/a") + VICTIM),
    refused("absolute target, foreign port", get(b"http://localhost:81/a")),
    refused("absolute target, user", get(b"http://localhost@evil.example/a")),
    refused("absolute target, user of our own", get(b"http://evil.example@localhost/a")),
    refused("absolute target, no host", get(b"http:///a")),
    refused("absolute target, other scheme", get(b"ftp://localhost/a")),
    refused("authority as target", get(b"localhost:80")),
    refused("target without a slash", get(b"a")),
    refused("target with a fragment", get(b"/a#/victim")),
    refused("asterisk", head(b"OPTIONS * HTTP/1.1")),
    refused("asterisk, GET", get(b"*")),
)

LENGTHS = (
    taken("sized", sized(), STORED, NEXT),
    taken("sized, leading zero", post(b"Content-Length: 0%d" % SIZE), STORED, NEXT),
    taken("sized, blank after it", post(_LENGTH + b" \t"), STORED, NEXT),
    taken("sized GET", head(b"GET /a HTTP/1.1", _LENGTH) + VICTIM, Ran("GET", "/a", VICTIM)),
    taken(
        "sized HEAD and DELETE", head(b"DELETE /a HTTP/1.1", _LENGTH) + VICTIM, Ran("DELETE", "/a", VICTIM)
    ),
    taken(
        "underscore", head(b"POST /a HTTP/1.1", b"Content_Length: 9") + get(b"/next"), Ran("POST", "/a"), NEXT
    ),
    taken("expect, sized", sized(b"Expect: 100-continue"), STORED, NEXT),
    taken("expect, HTTP/1.0", sized(b"Expect: 100-continue", version=b"1.0"), STORED, closed=True),
    refused("two Content-Lengths", post(_LENGTH, b"Content-Length: 0")),
    refused("two Content-Lengths, the same", post(_LENGTH, _LENGTH)),
    refused("Content-Length as a list", post(b"Content-Length: %d, %d" % (SIZE, SIZE))),
    refused("Content-Length with a plus", post(b"Content-Length: +%d" % SIZE)),
    refused("Content-Length with a minus", post(b"Content-Length: -1")),
    refused("Content-Length in hex", post(b"Content-Length: 0x%x" % SIZE)),
    refused("Content-Length with a blank inside", post(b"Content-Length: 1 2")),
    refused("Content-Length empty", post(b"Content-Length:")),
    refused("Content-Length, 2^64", post(b"Content-Length: 18446744073709551616")),
    refused("Content-Length folded", post(b"Content-Length:", b" %d" % SIZE)),
    refused("blank before the colon", post(b"Content-Length : %d" % SIZE)),
    refused("NUL in Content-Length", post(_LENGTH + b"\0")),
)

CODINGS = (
    taken("chunked", post(_TE, body=CHUNKED), STORED, NEXT),
    taken("chunked, in capitals", post(b"TRANSFER-ENCODING: CHUNKED ", body=CHUNKED), STORED, NEXT),
    taken(
        "chunked in two",
        post(_TE, body=b"5\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (VICTIM[:5], SIZE - 5, VICTIM[5:])),
        STORED,
        NEXT,
    ),
    taken(
        "chunk extension", post(_TE, body=b'%x;a=b;c="d"\r\n%b\r\n0;e\r\n\r\n' % (SIZE, VICTIM)), STORED, NEXT
    ),
    taken(
        "leading zeros, two zeros",
        post(_TE, body=b"000%x\r\n%b\r\n00\r\n\r\n" % (SIZE, VICTIM)),
        STORED,
        NEXT,
    ),
    taken("trailers", post(_TE, body=CHUNKED[:-2] + b"Host: evil\r\nX-T: 1\r\n\r\n"), STORED, NEXT),
    refused("gzip, chunked", post(b"Transfer-Encoding: gzip, chunked", body=CHUNKED)),
    refused("gzip and chunked", post(b"Transfer-Encoding: gzip", _TE, body=CHUNKED)),
    refused("gzip", post(b"Transfer-Encoding: gzip", body=CHUNKED)),
    refused("identity", post(b"Transfer-Encoding: identity", body=CHUNKED)),
    refused("chunked, identity", post(b"Transfer-Encoding: chunked, identity", body=CHUNKED)),
    refused("chunked, chunked", post(b"Transfer-Encoding: chunked, chunked", body=CHUNKED)),
    refused("chunked twice", post(_TE, _TE, body=CHUNKED)),
    refused("xchunked", post(b"Transfer-Encoding: xchunked", body=CHUNKED)),
    refused("chunked with a parameter", post(b"Transfer-Encoding: chunked;q=1", body=CHUNKED)),
    refused("chunked in quotes", post(b'Transfer-Encoding: "chunked"', body=CHUNKED)),
    refused("an empty coding", post(b"Transfer-Encoding:", body=CHUNKED)),
    refused("a vertical tab before chunked", post(b"Transfer-Encoding:\x0bchunked", body=CHUNKED)),
    refused("blank before the colon of a coding", post(b"Transfer-Encoding : chunked", body=CHUNKED)),
    refused("chunked, folded", post(b"Transfer-Encoding:", b" chunked", body=CHUNKED)),
    refused("chunked, HTTP/1.0", post(_TE, body=CHUNKED, version=b"1.0")),
    refused("chunked, HTTP/1.0 kept", post(_TE, b"Connection: keep-alive", body=CHUNKED, version=b"1.0")),
    refused("chunked, then Content-Length", post(_TE, _LENGTH, body=CHUNKED)),
    refused("Content-Length, then chunked", post(_LENGTH, _TE, body=CHUNKED)),
    refused("Content-Length, then gzip", post(_LENGTH, b"Transfer-Encoding: gzip", body=CHUNKED)),
    refused("chunk size, 2^64", post(_TE, body=b"1000000000000002d\r\n" + CHUNKED)),
    refused("chunk size in 0x", post(_TE, body=b"0x" + CHUNKED)),
    refused("chunk size with a plus", post(_TE, body=b"+" + CHUNKED)),
    refused("chunk size with a minus", post(_TE, body=b"-1\r\n" + CHUNKED)),
    refused("blank before a chunk size", post(_TE, body=b" " + CHUNKED)),
    refused("blank after a chunk size", post(_TE, body=CHUNKED.replace(b"\r\n", b" \r\n", 1))),
    refused("empty line before a chunk size", post(_TE, body=b"\r\n" + CHUNKED)),
    refused("bare LF after a chunk size", post(_TE, body=CHUNKED.replace(b"\r\n", b"\n", 1))),
    refused("bare CR after a chunk size", post(_TE, body=CHUNKED.replace(b"\r\n", b"\rX", 1))),
    refused("bare LF after an extension", post(_TE, body=b"%x;a\n%b\r\n0\r\n\r\n" % (SIZE, VICTIM))),
    refused(
        "quoted line end in an extension", post(_TE, body=b'%x;a="\r\n"%b\r\n0\r\n\r\n' % (SIZE, VICTIM))
    ),
    refused("a chunk longer than its size", post(_TE, body=b"3\r\n" + VICTIM + b"\r\n0\r\n\r\n")),
    refused("no line end after a chunk", post(_TE, body=b"%x\r\n%b0\r\n\r\n" % (SIZE, VICTIM))),
    refused("bare LF after a chunk", post(_TE, body=b"%x\r\n%b\n0\r\n\r\n" % (SIZE, VICTIM))),
    refused("Content-Length as a trailer", post(_TE, body=CHUNKED[:-2] + _LENGTH + b"\r\n\r\n")),
    refused("Transfer-Encoding as a trailer", post(_TE, body=CHUNKED[:-2] + _TE + b"\r\n\r\n")),
    refused("bare LF after the trailers", post(_TE, body=CHUNKED[:-2] + b"\n")),
)

LINES = (
    refused("HTTP/0.9", b"GET /a\r\n\r\n" + VICTIM),
    refused("HTTP/0.9 by name", get(b"/a", version=b"0.9")),
    refused("HTTP/1.2", get(b"/a", version=b"1.2")),
    refused("HTTP/2.0", get(b"/a", version=b"2.0")),
    refused("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    refused("lower-case method", head(b"get /a HTTP/1.1")),
    refused("unknown method", head(b"STEAL /a HTTP/1.1")),
    refused("lower-case version", head(b"GET /a http/1.1")),
    refused("blank before the method", b" " + get(b"/a")),
    refused("blank in the target", get(b"/a /victim")),
    refused("tab after the target", head(b"GET /a\tHTTP/1.1")),
    refused("blank after the version", head(b"GET /a HTTP/1.1 ")),
    refused("bare LF after the start line", b"GET /a HTTP/1.1\nHost: localhost\r\n\r\n"),
    refused("bare LF after a header line", b"GET /a HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n"),
    refused("bare LF at the end of the head", b"GET /a HTTP/1.1\r\nHost: localhost\r\n\n"),
    refused("bare CR in a value", get(b"/a", b"X: y\rTransfer-Encoding: chunked")),
    refused("a folded line", get(b"/a", b"X: y", b" z")),
    refused("a folded line, by a tab", get(b"/a", b"X: y", b"\tz")),
    refused("a folded line at once", b"GET /a HTTP/1.1\r\n X: y\r\nHost: localhost\r\n\r\n"),
    refused("blank before a colon", b"GET /a HTTP/1.1\r\nHost : localhost\r\n\r\n"),
    refused("a line without a colon", get(b"/a", b"X")),
    refused("a line without a name", get(b"/a", b": y")),
    refused("NUL in a name", get(b"/a", b"X\0: y")),
    refused("NUL in a value", get(b"/a", b"X: \0")),
    refused("NUL in the target", get(b"/a\0")),
    taken("empty lines before a request", b"\r\n\r\n" + get(b"/next"), NEXT),
    taken("close, then another", get(b"/next", b"Connection: close") + VICTIM, NEXT, closed=True),
    taken(
        "HTTP/1.0 kept, then another",
        get(b"/next", b"Connection: keep-alive", version=b"1.0") + VICTIM,
        NEXT,
        closed=True,
    ),
    refused("garbage after a request", get(b"/next") + b"\0\1\2\3", NEXT),
    refused(
        "a bad request after two",
        get(b"/next") + sized()[: -len(get(b"/next"))] + get(b"/a", host=None),
        NEXT,
        STORED,
    ),
    refused("a bad body after a request", get(b"/next") + post(_TE, body=b"x\r\n" + VICTIM), NEXT),
)

CASES = UPGRADES + HOSTS + LENGTHS + CODINGS + LINES
