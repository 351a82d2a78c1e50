"""Which pages of other origins may call this server, and how browsers are told (CORS).

A browser lets a page send a request to anybody, but read the answer only if the answer names the page's origin, and
send more than a plain form could only if a preflight allowed it. So:

- No origin is allowed unless `--allowed-origin` names it. A foreign one gets no CORS header on anything: its page
  cannot read. Nor may it write: a POST of text/plain needs no preflight, so that the Origin line itself is refused.
- An allowed origin is answered with its own name, never with `*`, on refusals and streams as well, with the header
  lines that a script may see. Where any origin is allowed, every answer varies by Origin, or a cache would hand an
  answer without these lines to the page that needs them.
- A preflight of an allowed origin is granted for every path: whether there is a route, the request itself will tell.
  Header names are a fixed list; of those that carry a record's headers, the ones that the preflight names.
- Credentials are never allowed: this server reads no cookie, and shall not begin to. When there are credentials,
  they come in the Authorization header, which then joins `ALLOWED_HEADERS`; and as EventSource cannot send that,
  in a ticket: `app.http.principal` says where it will be looked at.
- A page of a public site that calls a private address asks for that as well (Private Network Access); an allowed
  origin is granted it.

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
    b"accept", b"cache-control", b"content-type", b"idempotency-key", b"if-match", b"if-none-match",
    b"last-event-id", b"x-request-id",
)  # fmt: skip
EXPOSED_HEADERS = (
    b"Allow", b"ETag", b"Idempotent-Replayed", b"Link", b"Location", b"Retry-After", b"X-Request-Id",
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
        """Refuse the writes of pages that are neither served from here nor on the list. Raises Problem (403)."""
        text = origin.lower()
        _, separator, authority = text.partition(b"://")
        if separator and host is not None and authority == host.lower():
            return
        if text not in self._origins:
            shown = text.decode("latin-1")[:80]
            raise Problem("foreign-origin", f"Pages of the origin {shown!r} may not write here.")

    def lines(self, origin: bytes | None, answered: Lines) -> list[tuple[bytes, bytes]]:
        """What is added to the header lines of an answer to a request with that Origin, or with none."""
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
        """The answer to a preflight; None if the request is none. Raises Problem (403) for a foreign origin.

        The line that names the origin comes from `lines`, as with every answer.
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
