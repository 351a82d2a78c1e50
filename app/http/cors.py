"""CORS: which pages of other origins may call this server, and the header lines for their browsers.

A browser lets a page send simple requests to any server. The page may read the answer only if the answer names the
page's origin. It may send other requests only if a preflight allowed them. So:

- No origin is allowed unless `--allowed-origin` names it. A foreign origin gets no CORS header, so its page cannot
  read. Its page cannot write either: a POST of text/plain needs no preflight, so a foreign Origin line is refused.
- An allowed origin gets its own name, never `*`, and the names of the header lines that a script may read. Errors and
  streams have these lines as well. If any origin is allowed, every answer has `Vary: Origin`. Otherwise a cache could
  return an answer without these lines to a page that needs them.
- A preflight of an allowed origin is granted for every path; the request itself finds out whether the route exists.
  The allowed header names are a fixed list, and the names of record headers that the preflight asks for.
- Cookies are never allowed (no Access-Control-Allow-Credentials), because the API reads none. Credentials are sent in
  the Authorization header. EventSource cannot send that header and uses a ticket: see `app.http.principal`.
- A page of a public site that calls a private address asks for that in its preflight (Private Network Access). An
  allowed origin is granted it.

Source: the Fetch standard, sections "CORS protocol" and "HTTP extensions"; the Private Network Access draft.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from app.errors import Problem
from app.http.request import Answer
from core.config import Config

Lines = Iterable[tuple[bytes, bytes]]

ALLOWED_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
ALLOWED_HEADERS = (
    b"accept", b"authorization", b"cache-control", b"content-type", b"idempotency-key", b"if-match", b"if-none-match",
    b"last-event-id", b"x-request-id",
)  # fmt: skip
EXPOSED_HEADERS = (
    b"Allow", b"ETag", b"Idempotent-Replayed", b"Link", b"Location", b"Retry-After", b"WWW-Authenticate",
    b"X-Request-Id",
)  # fmt: skip
# How long a browser may remember a preflight, in seconds: the most that Chromium does. Requests are checked anyway.
MAX_AGE = 7200
# Header lines of a record, and how many of them a preflight may name.
_RECORD_HEADER = re.compile(rb"x-kafka-header-[a-z0-9!#$%&'*+.^_`|~-]{1,200}")
MAX_RECORD_HEADERS = 64
_VARY = (b"vary", b"origin")
_VARY_PREFLIGHT = (
    b"vary",
    b"origin, access-control-request-method, access-control-request-headers, "
    b"access-control-request-private-network",
)


class Cors:
    """The rules for one configuration."""

    def __init__(self, config: Config) -> None:
        self._origins = frozenset(origin.encode() for origin in config.http_allowed_origins)

    @property
    def open(self) -> bool:
        """Whether any foreign origin is allowed, so that answers vary by it."""
        return bool(self._origins)

    def allows(self, origin: bytes) -> bool:
        """Whether that origin is on the list."""
        return origin.lower() in self._origins

    def check_write(self, origin: bytes, host: bytes | None) -> None:
        """Refuse writes of pages that are neither this server's own nor on the list. Raises Problem (403)."""
        text = origin.lower()
        _, separator, authority = text.partition(b"://")
        if separator and host is not None and authority == host.lower():
            return
        if text not in self._origins:
            shown = text.decode("latin-1")[:80]
            raise Problem("foreign-origin", f"Pages of the origin {shown!r} may not write here.")

    def lines(self, origin: bytes | None, answered: Lines) -> list[tuple[bytes, bytes]]:
        """Return the header lines to add to the answer to a request with that Origin, or with none."""
        if origin is None or not self.allows(origin):
            return [_VARY]
        of_record = [name for name, _ in answered if name.startswith(b"x-kafka-")]
        exposed = b", ".join((*EXPOSED_HEADERS, *of_record))
        return [
            _VARY,
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", exposed),
        ]

    def preflight(self, origin: bytes, headers: Mapping[bytes, bytes]) -> Answer | None:
        """Return the answer to a preflight; None for other requests. Raises Problem (403) for a foreign origin.

        `lines` adds the line that names the origin, as to every answer.
        """
        if b"access-control-request-method" not in headers:
            return None
        if not self.allows(origin):
            shown = origin.decode("latin-1")[:80]
            raise Problem("foreign-origin", f"Pages of the origin {shown!r} may not call this server.")
        asked = (
            headers.get(b"access-control-request-headers", b"").lower().split(b",", 4 * MAX_RECORD_HEADERS)
        )
        of_record = [name for part in asked if _RECORD_HEADER.fullmatch(name := part.strip())]
        granted = [
            _VARY_PREFLIGHT,
            (b"access-control-allow-methods", ALLOWED_METHODS),
            (
                b"access-control-allow-headers",
                b", ".join((*ALLOWED_HEADERS, *of_record[:MAX_RECORD_HEADERS])),
            ),
            (b"access-control-max-age", b"%d" % MAX_AGE),
        ]
        if headers.get(b"access-control-request-private-network", b"").lower() == b"true":
            granted.append((b"access-control-allow-private-network", b"true"))
        return Answer(204, b"", headers=tuple(granted))
