"""One connection to a broker: versions, a login, and requests whose answers are told apart by correlation ids.

Many requests may be under way; the broker answers them in order. After any error the connection is closed and each
request under way fails with `LinkLost`. A request without an answer in time closes it as well: the answers after
the missing one would come late, too.

A session that SASL has opened may have a lifetime (KIP-368). Before it ends the link logs in again. New requests are
held until that is done; those under way get their answers in between.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from struct import Struct as Layout
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from msgspec import Struct

from core.client.counts import ClientCounts
from core.client.failures import LinkLost, error_code, refused
from core.client.login import log_in
from core.client.network import Network
from core.client.settings import Address, ClientSettings
from core.clock import Clock
from core.errors import BrokerError, ErrorCode
from core.protocol.apis import API_VERSIONS, APIS
from core.protocol.codec import decode_response, encode_request
from core.protocol.header import decode_response_header
from core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from core.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from core.protocol.primitives import ProtocolError
from core.protocol.traits import newest_by_name

_SIZE = Layout(">i")
_HEAD = Layout(">ihhih")  # size, key, version, correlation id, length of the client id
_BUFFER_BYTES = 32 * 1024
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36
# After SaslHandshake 0 raw frames would follow (Kafka 0.10).
_FRAMED_HANDSHAKE = 1
_SOFTWARE = "sluice"
# The Java client logs in again after 85 to 95 % of a session's life.
_RENEW_AFTER, _RENEW_SPREAD = 0.85, 0.1
# Below this size the pieces of a request are joined: a piece of its own costs the transport more.
_JOIN_BYTES = 64 * 1024

_UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")

KEYS: dict[str, int] = {api.name: api.key for api in APIS.values()}
_KEY_OF: dict[type[Struct], int] = {}


def key_of(request: Struct) -> int:
    """Return the key of the API that a request message belongs to."""
    key = _KEY_OF.get(type(request))
    if key is None:
        key = _KEY_OF[type(request)] = KEYS[type(request).__name__.removesuffix("Request")]
    return key


Taker = TypeVar("Taker", bound="Reply")


class Reply(Protocol):
    """What takes the answer to a request: a future, or an object that is called in the same turn of the loop."""

    def done(self) -> bool:
        """Whether no answer is wanted any more."""

    def cancelled(self) -> bool:
        """Whether the caller has given up."""

    def set_result(self, message: Any, /) -> None:
        """Take the answer."""

    def set_exception(self, error: LinkLost, /) -> None:
        """Take the reason why there is none."""


class _Waiting(NamedTuple):
    """A request under way, with its bytes. `deadline` is in the loop's time, `began` in the clock's."""

    future: Reply
    key: int
    version: int
    deadline: float
    began: float
    size: int


class Link(asyncio.BufferedProtocol):
    """A connection that has agreed on versions with its broker, and has logged in. Made by `open_link`."""

    def __init__(
        self, address: Address, settings: ClientSettings, clock: Clock, counts: ClientCounts
    ) -> None:
        self.address = address
        self._counts = counts
        self.lost: BrokerError | None = None
        self.closed: list[Callable[[Link], None]] = []
        # The loop's time of the last request.
        self.used = 0.0
        self._settings = settings
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._client_id = settings.client_id.encode()
        self._transport: asyncio.Transport | None = None
        self._versions: dict[int, tuple[int, int]] = {API_VERSIONS: (0, APIS[API_VERSIONS].max_version)}
        self._chosen: dict[tuple[int, int | None], int] = {}
        self._correlation = 0
        self._waiting: dict[int, _Waiting] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Requests that wait while the link logs in again; None otherwise.
        self._held: list[Sequence[bytes | bytearray]] | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._buffer = bytearray(_BUFFER_BYTES)
        self._have = 0
        # A frame that does not fit the buffer, and how much of it has arrived.
        self._large: bytearray | None = None
        self._large_have = 0

    @property
    def waiting(self) -> int:
        """Return how many requests are under way."""
        return len(self._waiting)

    # --- versions ------------------------------------------------------------------------------------------

    def serves(self, key: int) -> bool:
        """Whether the broker serves this API."""
        return key in self._versions

    def version(self, key: int, newest: int | None = None) -> int:
        """Return the newest version of an API that both sides know, at most `newest`.

        Without `newest` a version that names topics by their names is chosen. Raises UNSUPPORTED_VERSION.
        """
        chosen = self._chosen.get((key, newest))
        if chosen is not None:
            return chosen
        api = APIS[key]
        lowest, highest = self._versions.get(key, (0, -1))
        limit = newest if newest is not None else newest_by_name(key)
        chosen = min(highest, api.max_version, api.max_version if limit is None else limit)
        if chosen < max(lowest, api.min_version):
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The broker at {self.address} serves no version of {api.name} that is known here.",
                api=api.name,
            )
        self._chosen[key, newest] = chosen
        return chosen

    # --- requests ------------------------------------------------------------------------------------------

    async def call(
        self,
        request: Struct,
        *,
        timeout_ms: int | None = None,
        newest: int | None = None,
        client_id: str | None = None,
    ) -> Any:
        """Send a request and return its answer. Record bytes in it are views of a frame that nothing changes.

        `timeout_ms` None is the request timeout of the settings; add what the broker may wait. `newest` is as in
        `version`. `client_id` None is that of the settings. Raises LinkLost, UNSUPPORTED_VERSION, and
        INVALID_REQUEST for a message that the version cannot carry.
        """
        return await self.start(request, timeout_ms=timeout_ms, newest=newest, client_id=client_id)

    def start(
        self,
        request: Struct,
        *,
        timeout_ms: int | None = None,
        newest: int | None = None,
        client_id: str | None = None,
    ) -> asyncio.Future[Any]:
        """Send a request and return the future of its answer; see `call`."""
        key = key_of(request)
        version = self.version(key, newest)
        try:
            body = encode_request(key, version, request)
        except ProtocolError as error:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"{APIS[key].name}: {error}") from None
        name = None if client_id is None else client_id.encode()
        future = self._loop.create_future()
        return self._start(key, version, (body,), timeout_ms, future, hold=True, name=name)

    def start_encoded(
        self,
        key: int,
        version: int,
        body: Sequence[bytes | bytearray],
        reply: Reply,
        timeout_ms: int | None = None,
    ) -> None:
        """Send a request whose body is encoded, in pieces; `reply` takes its answer. Raises LinkLost."""
        self._start(key, version, body, timeout_ms, reply, hold=True)

    def _start(
        self,
        key: int,
        version: int,
        body: Sequence[bytes | bytearray],
        timeout_ms: int | None,
        reply: Taker,
        *,
        hold: bool,
        name: bytes | None = None,
    ) -> Taker:
        if self.lost is not None or self._transport is None:
            raise LinkLost(f"The connection to {self.address} is closed.", sent=False)
        loop = self._loop
        now = loop.time()
        self.used = now
        deadline = now + (self._settings.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        correlation = self._correlation = (self._correlation + 1) & 0x7FFF_FFFF
        timer = self._timer
        if timer is None:
            self._timer = loop.call_at(deadline, self._check_deadlines)
        elif deadline < timer.when():
            timer.cancel()
            self._timer = loop.call_at(deadline, self._check_deadlines)
        name = self._client_id if name is None else name
        tags = b"\0" if APIS[key].is_flexible(version) else b""
        size = 10 + len(name) + len(tags) + sum(map(len, body))
        self._waiting[correlation] = _Waiting(reply, key, version, deadline, self._clock.monotonic(), size)
        head = _HEAD.pack(size, key, version, correlation, len(name)) + name + tags
        if hold and self._held is not None:
            self._held.append((head, *body))
        elif size < _JOIN_BYTES:
            self._transport.write(b"".join((head, *body)))
        else:
            self._transport.writelines((head, *body))
        return reply

    def _check_deadlines(self) -> None:
        """Close the link if a request has had no answer in time; answers come in order, so none comes before."""
        self._timer = None
        now = self._loop.time()
        late = [one for one in self._waiting.values() if one.deadline <= now]
        if any(not one.future.cancelled() for one in late):
            name = APIS[late[0].key].name
            self._fail(LinkLost(f"The broker at {self.address} did not answer {name} in time.", sent=True))
            return
        left = [one.deadline for one in self._waiting.values() if one.deadline > now]
        if left:
            self._timer = self._loop.call_at(min(left), self._check_deadlines)

    # --- the beginning, and the login ----------------------------------------------------------------------

    async def begin(self) -> None:
        """Ask for versions and log in; for `open_link`."""
        newest = APIS[API_VERSIONS].max_version
        answer = await self._ask_versions(newest)
        if error_code(answer.error_code) is ErrorCode.UNSUPPORTED_VERSION:
            answer = await self._ask_versions(0)
        if answer.error_code:
            raise refused(answer.error_code, f"ApiVersions at {self.address}")
        self._versions = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        self._chosen.clear()
        if self._settings.login is not None:
            await self._log_in()

    async def _ask_versions(self, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(_SOFTWARE, "1")
        body = encode_request(API_VERSIONS, version, request)
        return cast(
            "ApiVersionsResponse",
            await self._start(API_VERSIONS, version, (body,), None, self._loop.create_future(), hold=False),
        )

    async def _ask(self, request: Struct, newest: int | None = None) -> Any:
        """`call`, also while other requests are held."""
        key = key_of(request)
        version = self.version(key, newest)
        body = encode_request(key, version, request)
        return await self._start(key, version, (body,), None, self._loop.create_future(), hold=False)

    async def _log_in(self) -> None:
        login = self._settings.login
        assert login is not None
        offered: SaslHandshakeResponse = await self._ask(
            SaslHandshakeRequest(login.mechanism), _FRAMED_HANDSHAKE
        )
        if error_code(offered.error_code) is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            there = ", ".join(offered.mechanisms) or "none"
            raise BrokerError(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"The broker at {self.address} does not offer {login.mechanism}; it offers: {there}.",
            )
        if offered.error_code:
            raise refused(offered.error_code, f"SaslHandshake at {self.address}")
        lifetime_ms = 0

        async def ask(message: bytes) -> bytes:
            nonlocal lifetime_ms
            answer: SaslAuthenticateResponse = await self._ask(SaslAuthenticateRequest(message))
            if answer.error_code:
                where = f"The login of {login.username!r} with {login.mechanism} at {self.address}"
                raise refused(answer.error_code, where, answer.error_message)
            lifetime_ms = answer.session_lifetime_ms
            return bytes(answer.auth_bytes)

        await log_in(login, self._clock, ask)
        if lifetime_ms > 0:
            part = _RENEW_AFTER + _RENEW_SPREAD * self._clock.random()
            self._renewal = self._loop.call_later(lifetime_ms / 1000 * part, self._renew)

    def _renew(self) -> None:
        self._renewing = self._loop.create_task(self._log_in_again())

    async def _log_in_again(self) -> None:
        self._held = []
        try:
            await self._log_in()
        except Exception as error:
            self._fail(LinkLost(f"The login at {self.address} could not be renewed: {error}", sent=False))
            return
        held, self._held = self._held, None
        assert self._transport is not None
        for pieces in held:
            self._transport.writelines(pieces)

    # --- the transport -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        why = f": {exc}" if exc else ""
        self._fail(LinkLost(f"The broker at {self.address} closed the connection{why}.", sent=True))

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio."""
        if self._large is not None:
            return memoryview(self._large)[self._large_have :]
        return memoryview(self._buffer)[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio: decode each frame that is whole."""
        if self._large is not None:
            self._large_have += nbytes
            if self._large_have == len(self._large):
                frame, self._large = self._large, None
                self._answer(frame)
            return
        self._have += nbytes
        buffer, have, position = self._buffer, self._have, 0
        while have - position >= _SIZE.size and self.lost is None:
            (size,) = _SIZE.unpack_from(buffer, position)
            if not _SIZE.size <= size <= self._settings.max_frame_bytes:
                self._fail(
                    LinkLost(f"The broker at {self.address} announced a frame of {size} bytes.", sent=True)
                )
                return
            start = position + _SIZE.size
            if have - start >= size:
                position = start + size
                self._answer(bytes(memoryview(buffer)[start:position]))
            elif _SIZE.size + size > len(buffer):
                self._large = bytearray(size)
                self._large_have = have - start
                self._large[: self._large_have] = buffer[start:have]
                self._have = 0
                return
            else:
                break
        if position:
            buffer[: have - position] = buffer[position:have]
        self._have = have - position

    def eof_received(self) -> bool:
        """See asyncio: nothing more comes."""
        return False

    def _answer(self, frame: bytes | bytearray) -> None:
        (correlation,) = _SIZE.unpack_from(frame)
        waiting = self._waiting.pop(correlation, None)
        if waiting is None:
            self._fail(
                LinkLost(f"The broker at {self.address} answered a request that was not sent.", sent=True)
            )
            return
        future, key, version, _, began, size = waiting
        self._counts.requests[key].note(self._clock.monotonic() - began, len(frame), size)
        if future.done():
            return
        try:
            _, position = decode_response_header(key, version, memoryview(frame))
            if key == API_VERSIONS and frame[position : position + 2] == _UNSUPPORTED:
                # This error is answered in the form of version 0, whatever was asked (KIP-511).
                version = 0
            # Some brokers leave bytes at the end; Java's client ignores them as well.
            message = decode_response(key, version, memoryview(frame), position, whole=False)
        except ProtocolError as error:
            self._waiting[correlation] = waiting
            self._fail(
                LinkLost(
                    f"The answer of {self.address} to {APIS[key].name} cannot be read: {error}", sent=True
                )
            )
            return
        if throttled := getattr(message, "throttle_time_ms", 0):
            self._counts.throttled_ms[key] += throttled
        future.set_result(message)

    # --- the end -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection; requests under way fail."""
        self._fail(LinkLost(f"The connection to {self.address} was closed.", sent=True))

    def _fail(self, error: BrokerError) -> None:
        if self.lost is not None:
            return
        self.lost = error
        for timer in (self._timer, self._renewal):
            if timer is not None:
                timer.cancel()
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.future.done():
                self._counts.lost[one.key] += 1
                # An exception of its own for each, or tracebacks would grow.
                sent = getattr(error, "sent", True)
                one.future.set_exception(LinkLost(error.message, sent=sent))
        if self._transport is not None:
            # `close` would wait until a broker that reads nothing has read all.
            self._transport.abort()
        for call in self.closed:
            call(self)
        self.closed.clear()


async def open_link(
    address: Address,
    settings: ClientSettings,
    clock: Clock,
    network: Network,
    counts: ClientCounts | None = None,
) -> Link:
    """Connect, agree on versions and log in; `counts` takes what happens.

    Raises LinkLost if the broker cannot be reached, SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM, and
    ILLEGAL_SASL_STATE from a listener without SASL.
    """
    counts = counts or ClientCounts()
    link = Link(address, settings, clock, counts)
    try:
        async with asyncio.timeout(settings.connect_timeout_ms / 1000):
            await network.connect(lambda: link, address, settings.tls)
            await link.begin()
    except BaseException as error:
        link.close()
        counts.failed_connections += 1
        counts.failed_logins += isinstance(error, BrokerError) and not isinstance(error, LinkLost)
        if isinstance(error, TimeoutError):
            raise LinkLost(f"The broker at {address} did not answer in time.", sent=False) from None
        if isinstance(error, ssl.SSLCertVerificationError):
            why = error.verify_message or error.reason
            raise LinkLost(
                f"The certificate of the broker at {address} is refused: {why}.", sent=False
            ) from None
        if isinstance(error, OSError):
            raise LinkLost(f"No connection to the broker at {address}: {error}.", sent=False) from None
        raise
    counts.connections += 1
    return link
