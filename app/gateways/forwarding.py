"""Forward a request to the gateway that owns its state, at most once per level.

A level is a set of gateways: those of the setting `--gateway`, or the workers of one host. A request that arrives
from another gateway names the level that it has passed in its hop header. So it makes one hop per level at most. If
this gateway is not its owner after that, the gateways have different settings, and the request is refused with 503.

The bodies stream in both directions, and the speed of each reader holds back its writer. The credentials of the
caller are passed on as they are, and the owner checks them. When the client disconnects, the connection to the owner
is closed, so the owner stops the work. When the owner cannot be reached, or its connection ends before the answer has
begun, the client gets 503 with Retry-After: it may repeat a keyed write without a duplicate. An answer that ends too
early ends the connection of the client too, so the client cannot take a part for the whole.

The checks of Host and Origin are made by the gateway that the client has reached, and not again by the owner.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from app.errors import Problem
from app.gateways.hop import HEADER, Hop, hop_of, seal, target_of, unseal
from app.gateways.links import Head, Link, LinkLostError, Links
from app.gateways.ownership import KEY_HEADER, Policy
from app.http.exchange import in_task
from app.http.principal import CERTIFICATE
from app.http.request import DIRECT, Answer, ClientGoneError, Request, Streamed, Write
from app.http.router import READING
from app.logs import REQUEST_ID
from core.clock import Clock
from core.counters import Tally
from core.security.principal import Principal

log = logging.getLogger("sluice.gateways")

# The label in the metrics of HTTP of a request that was forwarded.
ROUTE = "forwarded"
# Answers up to this size are sent in one write.
_WHOLE = 65_536
# How often a gateway that is being restarted is tried.
_TRY_AGAIN_SECONDS = 0.05
_HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"proxy-connection"}
)
# Lines that this gateway writes itself, or has checked.
_OWN_LINES = _HOP_BY_HOP | {b"expect", b"origin", b"content-length", b"x-request-id", HEADER}
# Lines of every answer, which the sender adds; those of CORS depend on the rules of this gateway.
_ADDED = _HOP_BY_HOP | {
    b"date", b"x-request-id", b"content-type",
}  # fmt: skip
_CORS = b"access-control-"


class Level(NamedTuple):
    """One set of gateways: its name, this gateway's name, their secret, and the way to each of the others.

    `owner` is the rule of ownership; None if another worker of this host follows it. `hold_ms`: how long a request
    waits for an owner that accepts no connections, because it is being restarted. `local`: the others are workers of
    this host, so that what this one has looked up holds for them as well.
    """

    name: str
    own: str
    secret: bytes
    owner: Policy | None
    links: Mapping[str, Links]
    hold_ms: int = 0
    local: bool = False


Everywhere = Callable[[Request, Hop | None], Awaitable[Answer | Streamed] | None]
"""Returns the awaitable that answers a request for all workers; None for other requests."""


class Counts:
    """What the metrics show: requests by owner and result, and requests that came from other gateways."""

    def __init__(self) -> None:
        self.forwarded: Tally[tuple[str, str]] = Tally()
        self.received: Tally[str] = Tally()


class Forwarding:
    """Decides for each request where it is served. `levels` are in the order of the hops.

    `everywhere` answers requests that concern all workers; it returns None for others.
    """

    def __init__(self, levels: Sequence[Level], clock: Clock, everywhere: Everywhere | None = None) -> None:
        self.counts = Counts()
        self._levels = levels
        self._everywhere = everywhere
        self._now = clock.monotonic
        # Owners that could not be reached when they were tried last.
        self._down: set[str] = set()

    def arrive(self, request: Request) -> Hop | None:
        """Return the hop of a request from another gateway, after its scope has got the client of that hop.

        Return None for a request of a client. Raises Problem for a hop header that no gateway has written, and for
        a request that this gateway does not own.
        """
        line = request.headers.get(HEADER)
        if line is None:
            return None
        scope = request.scope
        hop = next((hop for one in self._levels if (hop := unseal(one.secret, line, scope))), None)
        level = None if hop is None else next((one for one in self._levels if one.name == hop.level), None)
        if hop is None or level is None:
            # Not ignored: two gateways with different secrets would forward a request to each other without an end.
            raise Problem(
                "untrusted-hop",
                "The header Sluice-Hop is for gateways of this cluster, and its signature is not theirs. Give all "
                "gateways the same secret (SLUICE_GATEWAY_SECRET_FILE).",
            )
        scope["client"], scope["scheme"] = hop.client, hop.scheme
        if level.local and hop.server is not None:
            # The listener that the client has reached says how its clients log in.
            scope["server"] = hop.server
        scope.pop(CERTIFICATE, None)
        if hop.principal is not None:
            scope[CERTIFICATE] = Principal(*hop.principal)
        if hop.owner != level.own:
            raise Problem(
                "gateways-differ",
                f"The gateway {hop.sender!r} takes {hop.owner!r} for the owner of this request, and sent it to "
                f"{level.own!r}. Give all gateways the same list (--gateway), and each its name (--gateway-name).",
            )
        self.counts.received[hop.sender] += 1
        return hop

    def route(self, request: Request, hop: Hop | None) -> Awaitable[Answer | Streamed] | None:
        """Return the awaitable that forwards a request to its owner; None if it is served here."""
        passed = set(hop.passed) if hop is not None else set()
        if self._everywhere is not None and (answer := self._everywhere(request, hop)) is not None:
            return answer
        for level in self._levels:
            if level.owner is None or level.name in passed:
                continue
            passed.add(level.name)
            owner = level.owner(request)
            if owner is not None and owner != level.own:
                request.route = ROUTE
                return self._forward(level, owner, request, passed if level.local else ())
        return None

    def close(self) -> None:
        """Close the connections to the other gateways."""
        for level in self._levels:
            for links in level.links.values():
                links.close()

    async def _forward(
        self, level: Level, owner: str, request: Request, passed: Iterable[str]
    ) -> Answer | Streamed:
        await in_task()
        hop = hop_of(request.scope, level.name, level.own, owner, passed)
        line = seal(level.secret, hop, request.scope)
        passage = Passage(request, level.links[owner], line)
        try:
            answer = await self._pass(passage, level, owner)
        except (LinkLostError, OSError, TimeoutError) as error:
            reached = isinstance(error, LinkLostError)
            self.counts.forwarded[owner, "lost" if reached else "unreachable"] += 1
            self._note_down(owner, error)
            raise _unavailable(owner, reached) from None
        except ClientGoneError:
            self.counts.forwarded[owner, "client_gone"] += 1
            raise
        if owner in self._down:
            self._down.discard(owner)
            log.info("the gateway %s answers again", owner)
        self.counts.forwarded[owner, "answered"] += 1
        return answer

    async def _pass(self, passage: Passage, level: Level, owner: str) -> Answer | Streamed:
        """Let the owner answer. Raises OSError and TimeoutError (not reached), LinkLostError and ClientGoneError."""
        until = self._now() + level.hold_ms / 1000
        fresh = False
        while True:
            try:
                link = await level.links[owner].take(fresh=fresh)
            except (ConnectionError, FileNotFoundError):
                if self._now() >= until:
                    raise
                # Nothing was sent yet, so the request can wait for the restart.
                await asyncio.sleep(_TRY_AGAIN_SECONDS)
                continue
            used = link.used
            try:
                return await passage.run(link)
            except LinkLostError:
                # The owner may have closed an idle connection at the moment of the request.
                if not (used and passage.repeatable):
                    raise
                fresh = True

    def _note_down(self, owner: str, error: Exception) -> None:
        if owner not in self._down:
            self._down.add(owner)
            log.warning("the gateway %s does not answer: %s", owner, error or type(error).__name__)


def _unavailable(owner: str, reached: bool) -> Problem:
    if reached:
        detail = (
            f"The gateway {owner!r}, which owns this request, did not answer it. The request may have been "
            "carried out. Repeat it; a write needs an Idempotency-Key to be safe from a duplicate."
        )
    else:
        detail = (
            f"The gateway {owner!r}, which owns this request, cannot be reached. Nothing was sent to it; repeat the "
            "request after the time that Retry-After names."
        )
    return Problem("owner-unavailable", detail, extra={"gateway": owner})


class Passage:
    """One request on its way to its owner, and the answer on its way back."""

    def __init__(self, request: Request, links: Links, hop: bytes) -> None:
        self._request = request
        self._links = links
        self._hop = hop
        scope = request.scope
        direct = (scope.get("extensions") or {}).get(DIRECT)
        self._body: bytes | None = None if direct is None else direct.whole_body()
        if self._body is not None:
            request.received += len(self._body)
        # Whether the owner has the whole body, and whether the client has disconnected.
        self._sent = self._body is not None
        self._gone = False
        self._pump: asyncio.Task[None] | None = None

    @property
    def repeatable(self) -> bool:
        """Whether the request may be sent a second time: its body is at hand, and a repetition changes nothing."""
        request = self._request
        path: str = request.scope["path"]
        # A read of REST Proxy v2 moves the position of its instance.
        reads = request.scope["method"] in READING and path.startswith("/api/")
        return self._body is not None and not self._gone and (reads or KEY_HEADER in request.headers)

    async def run(self, link: Link) -> Answer | Streamed:
        """Send the request over a link and return the answer. Raises LinkLostError and ClientGoneError."""
        keep = False
        try:
            head_only = self._request.scope["method"] == "HEAD"
            head, chunked = self._head()
            link.begin(head, without_body=head_only)
            self._pump = asyncio.ensure_future(self._send_body(link, chunked))
            found = await self._answered(link)
            lines = _lines(found, head_only)
            if head_only:
                self._end(link)
                keep = True
                return Streamed(found.status, lines.media_type, lines.all, _no_body)
            if self._sent and lines.length is not None and lines.length <= _WHOLE:
                body = await _whole(link)
                self._end(link)
                keep = True
                return Answer(found.status, body, lines.media_type, lines.others)
            keep = True
            return Streamed(found.status, lines.media_type, self._closing(lines.all), self._copier(link))
        except LinkLostError:
            if self._gone:
                raise ClientGoneError from None
            raise
        finally:
            if not keep:
                self._drop(link)

    async def _answered(self, link: Link) -> Head:
        """Return the beginning of the answer. An owner that stands still must not hold its clients without an end."""
        if not self._sent:
            return await link.head()
        try:
            async with asyncio.timeout(self._links.answer_seconds):
                return await link.head()
        except TimeoutError:
            raise LinkLostError(f"it did not answer within {self._links.answer_seconds:g} s") from None

    def _head(self) -> tuple[bytes, bool]:
        """Return the head of the request, with the body if it is at hand, and whether the body is sent in chunks."""
        scope = self._request.scope
        lines = [b"%b %b HTTP/1.1\r\n" % (scope["method"].encode(), target_of(scope))]
        lines += [b"%b: %b\r\n" % line for line in scope["headers"] if line[0] not in _OWN_LINES]
        lines.append(b"x-request-id: %b\r\n%b: %b\r\n" % (REQUEST_ID.get(), HEADER, self._hop))
        headers = self._request.headers
        length = headers.get(b"content-length")
        chunked = False
        if self._body is not None:
            if self._body or length is not None or b"transfer-encoding" in headers:
                lines.append(b"content-length: %d\r\n" % len(self._body))
        elif length is not None:
            lines.append(b"content-length: %b\r\n" % length)
        elif scope["method"] not in READING or b"transfer-encoding" in headers:
            chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        lines.append(self._body or b"")
        return b"".join(lines), chunked

    async def _send_body(self, link: Link, chunked: bool) -> None:
        """Send the body as it arrives, then wait until the client disconnects. Close the link when it does."""
        request = self._request
        while True:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                self._gone = True
                link.abort()
                return
            piece: bytes = message.get("body", b"")
            request.received += len(piece)
            try:
                if piece:
                    await link.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                if not message.get("more_body", False) and not self._sent:
                    self._sent = True
                    if chunked:
                        await link.send(b"0\r\n\r\n")
            except LinkLostError:
                # The reader of the answer gets the same error.
                return

    def _closing(self, lines: tuple[tuple[bytes, bytes], ...]) -> tuple[tuple[bytes, bytes], ...]:
        """Let the client's connection end with an answer that came before the end of the body."""
        return lines if self._sent else (*lines, (b"connection", b"close"))

    def _copier(self, link: Link) -> Callable[[Write], Awaitable[None]]:
        async def copy(write: Write) -> None:
            ended = False
            try:
                while piece := await link.piece():
                    await write(piece)
                ended = True
            except LinkLostError as error:
                if not self._gone:
                    log.warning("an answer of %s ended too early: %s", self._links.target, error)
                # No answer can follow the first part of one: the connection of the client ends.
                raise ClientGoneError from None
            finally:
                if ended:
                    self._end(link)
                else:
                    self._drop(link)

        return copy

    def _end(self, link: Link) -> None:
        """Keep the link for another request, unless the body was not sent whole."""
        self._stop()
        if self._sent:
            self._links.give_back(link)
        else:
            self._links.drop(link)

    def _drop(self, link: Link) -> None:
        self._stop()
        self._links.drop(link)

    def _stop(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            self._pump = None


class _Lines(NamedTuple):
    """The header lines of an answer that are passed on. `all` has Content-Length, if the owner has sent one."""

    media_type: bytes
    length: int | None
    others: tuple[tuple[bytes, bytes], ...]
    all: tuple[tuple[bytes, bytes], ...]


def _lines(head: Head, head_only: bool) -> _Lines:
    kept = [line for line in head.headers if line[0] not in _ADDED and not line[0].startswith(_CORS)]
    named = dict(head.headers)
    length = named.get(b"content-length")
    others = tuple(line for line in kept if line[0] != b"content-length")
    # An answer without a body and without a length, such as 204, has none.
    size = 0 if length is None and head.status in (204, 304) and not head_only else None
    return _Lines(
        named.get(b"content-type", b""), int(length) if length is not None else size, others, tuple(kept)
    )


async def _whole(link: Link) -> bytes:
    parts = []
    while piece := await link.piece():
        parts.append(piece)
    return b"".join(parts)


async def _no_body(write: Write) -> None:
    """Write nothing: the answer to HEAD."""
