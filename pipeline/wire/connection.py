"""One blocking connection to a broker: frames out, frames in, TLS, versions and a login at its start.

Requests may be sent ahead of their answers (`send`, then `receive` in the same order): so the next fetch travels
while the last one is decoded, without a thread. Every wait has a time limit; after any error the connection is
useless and must be closed.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from struct import Struct
from typing import NamedTuple, TypeVar, cast

import msgspec

from core.errors import ErrorCode
from core.protocol.apis import API_VERSIONS, APIS
from core.protocol.codec import decode_response, encode_request
from core.protocol.header import decode_response_header, encode_request_header
from core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from core.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from core.protocol.primitives import ProtocolError
from pipeline import limits
from pipeline.wire.errors import (
    AuthenticationError,
    ConnectionLostError,
    KafkaError,
    WireError,
    error_code,
    refuse,
)
from pipeline.wire.security import Login, Security, is_refusal, log_in, wrapped

_SIZE = Struct(">i")

# The newest version that is spoken, where that is not the newest the codec knows. From the next one on: Fetch,
# Produce and OffsetCommit name topics by id, OffsetFetch and FindCoordinator ask for many at once, InitProducerId is
# about two-phase commit. None of it is needed here.
_NEWEST = {0: 12, 1: 12, 8: 9, 9: 7, 10: 3, 22: 4}
# Produce and Fetch from record batches with magic 2 on (Kafka 0.11) for what is written; older brokers can be read.
# After SaslHandshake 0 raw frames would follow (Kafka 0.10).
_OLDEST = {0: 3, 17: 1}
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
# The part of a session's life after which the client logs in again, as the Java client does (KIP-368).
_RENEW_AFTER = 0.85

Answer = TypeVar("Answer", bound=msgspec.Struct)


class Timeouts(NamedTuple):
    """Seconds that a connect and an answer may take."""

    connect: float = limits.CONNECT_TIMEOUT_S
    answer: float = limits.REQUEST_TIMEOUT_S


class Connection:
    """A connection that has agreed on versions with its broker, and has logged in if `security` says so.

    Raises ConnectionLostError, AuthenticationError, WireError.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        timeouts: Timeouts | None = None,
        security: Security | None = None,
    ) -> None:
        self.name = f"{host}:{port}"
        self._client_id = client_id
        self._correlation = 0
        self._waiting: deque[tuple[int, int, int]] = deque()
        # Answers that came before a login and were not asked for yet.
        self._kept: deque[bytes] = deque()
        self._login: Login | None = None
        self._renew_at = float("inf")
        timeouts, security = timeouts or Timeouts(), security or Security()
        try:
            self._socket = socket.create_connection((host, port), timeouts.connect)
        except OSError as error:
            raise ConnectionLostError(f"no connection to the broker at {self.name}: {error}") from None
        self._buffer = bytearray(64 * 1024)
        self._versions: dict[int, tuple[int, int]] = {API_VERSIONS: (0, 0)}
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.tls is not None:
                self._socket = wrapped(self._socket, security.tls, host, self.name)
            self._socket.settimeout(timeouts.answer)
            self._versions = self._ask_versions()
            if security.login is not None:
                self._log_in(security.login)
                self._login = security.login
        except BaseException:
            self.close()
            raise

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        """What the broker serves. Version 0 of the question is understood by every broker that knows it."""
        answer = self.request(API_VERSIONS, ApiVersionsRequest(), ApiVersionsResponse)
        if answer.error_code:
            raise KafkaError(answer.error_code, f"ApiVersions at {self.name}")
        return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}

    def _log_in(self, login: Login) -> None:
        """Log in by SaslHandshake 1 and SaslAuthenticate (KIP-152); again before the session ends (KIP-368)."""
        offered = self.request(SASL_HANDSHAKE, SaslHandshakeRequest(login.mechanism), SaslHandshakeResponse)
        if error_code(offered.error_code) is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            there = ", ".join(offered.mechanisms) or "none"
            raise AuthenticationError(
                f"the broker at {self.name} does not offer {login.mechanism}; it offers: {there}"
            )
        # For instance ILLEGAL_SASL_STATE from a listener that does not ask clients to log in.
        refuse(offered.error_code, f"SaslHandshake at {self.name}")
        lifetime_ms = 0

        def ask(message: bytes) -> bytes:
            nonlocal lifetime_ms
            answer = self.request(
                SASL_AUTHENTICATE, SaslAuthenticateRequest(message), SaslAuthenticateResponse
            )
            if answer.error_code:
                refused = KafkaError(answer.error_code, "SaslAuthenticate", answer.error_message)
                raise AuthenticationError(str(refused))
            lifetime_ms = answer.session_lifetime_ms
            return bytes(answer.auth_bytes)

        try:
            log_in(login, ask)
        except AuthenticationError as error:
            raise AuthenticationError(
                f"no login of user {login.username!r} with {login.mechanism} at {self.name}: {error}"
            ) from None
        self._renew_at = time.monotonic() + lifetime_ms / 1000 * _RENEW_AFTER if lifetime_ms else float("inf")

    def _renew(self) -> None:
        """Log in again. Answers that are under way come first: they are kept for `receive`."""
        assert self._login is not None
        waiting, self._waiting = self._waiting, deque()
        self._renew_at = float("inf")
        # The caller may still decode records of the last answer, which are views of the old buffer.
        self._buffer = bytearray(64 * 1024)
        try:
            for key, _, _ in list(waiting)[len(self._kept) :]:
                self._kept.append(bytes(self._frame(APIS[key].name)))
            kept, self._kept = self._kept, deque()
            self._log_in(self._login)
        except BaseException:
            self.close()
            raise
        self._waiting, self._kept = waiting, kept

    def version(self, key: int) -> int:
        """The newest version of an API that both sides speak. Raises WireError when there is none."""
        lowest, highest = self._versions.get(key, (0, -1))
        api = APIS[key]
        newest = min(highest, api.max_version, _NEWEST.get(key, api.max_version))
        if newest < max(lowest, _OLDEST.get(key, 0)):
            raise WireError(f"the broker at {self.name} serves no version of {api.name} that is spoken here")
        return newest

    def serves(self, key: int) -> bool:
        """Whether the broker serves this API at all."""
        return key in self._versions

    def send(self, key: int, message: msgspec.Struct) -> None:
        """Send a request; `receive` returns the answers in the order of the requests."""
        if self._login is not None and time.monotonic() >= self._renew_at:
            self._renew()
        version = self.version(key)
        self._correlation += 1
        header = encode_request_header(key, version, self._correlation, self._client_id)
        body = encode_request(key, version, message)
        try:
            self._socket.sendall(b"".join((_SIZE.pack(len(header) + len(body)), header, body)))
        except OSError as error:
            raise self._lost(f"while sending {APIS[key].name}", error) from None
        self._waiting.append((key, version, self._correlation))

    def receive(self, answer: type[Answer]) -> Answer:
        """Return the next answer. Its record bytes are valid until the next call."""
        key, version, correlation = self._waiting.popleft()
        name = APIS[key].name
        frame = memoryview(self._kept.popleft()) if self._kept else self._frame(name)
        try:
            found, position = decode_response_header(key, version, frame)
            if found != correlation:
                raise WireError(f"{self.name} answered request {found} where {correlation} was asked")
            # librdkafka's mock cluster sends a byte after Metadata v13; Java's client ignores it as well.
            return cast("Answer", decode_response(key, version, frame, position, whole=False))
        except ProtocolError as error:
            raise WireError(f"the answer of {self.name} to {name} cannot be read: {error}") from None

    def request(self, key: int, message: msgspec.Struct, answer: type[Answer]) -> Answer:
        """Send a request and wait for its answer."""
        self.send(key, message)
        return self.receive(answer)

    def _frame(self, name: str) -> memoryview:
        try:
            self._fill(memoryview(self._buffer)[: _SIZE.size])
            (size,) = _SIZE.unpack_from(self._buffer)
            if not 0 <= size <= limits.MAX_FRAME_BYTES:
                raise WireError(f"{self.name} says its answer to {name} has {size} bytes")
            if size > len(self._buffer):
                # A new one: views of the old one may be about.
                self._buffer = bytearray(size)
            view = memoryview(self._buffer)[:size]
            self._fill(view)
        except OSError as error:
            raise self._lost(f"while waiting for the answer to {name}", error) from None
        return view

    def _fill(self, view: memoryview) -> None:
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            view = view[count:]

    def _lost(self, when: str, error: OSError) -> WireError:
        self.close()
        if is_refusal(error):
            # With TLS 1.3 a client learns only here that the broker refuses its certificate.
            return AuthenticationError(f"the broker at {self.name} ends TLS {when}: {error}")
        reason = "no answer in time" if isinstance(error, TimeoutError) else error
        return ConnectionLostError(f"the connection to the broker at {self.name} was lost {when}: {reason}")

    def close(self) -> None:
        """Close the socket; safe to call twice."""
        self._socket.close()
