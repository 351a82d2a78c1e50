"""The Kafka listener: one session per connection, one path for every request.

    frame → header → handler → codec → the broker → codec → pieces

An API or version that is not served gets the correlation id and nothing else, as the KIP-35 draft requires. An
unsupported version of ApiVersions gets version 0 with error 35 and the table (KIP-511). The draft's own request is
served under the API key of a setting.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine, Mapping, Sequence
from itertools import count
from struct import Struct
from types import CoroutineType
from typing import Any

from core.broker.broker import Broker
from core.config import Endpoint
from core.errors import BrokerError
from core.listeners.connection import Answer, Deferred, Last, Limits, Piece, RefusedError
from core.listeners.kafka.answer_errors import error_codes
from core.listeners.kafka.fetch_session import FetchSessions
from core.listeners.kafka.handler import Handler, NoAnswer, WhenDurable, protocol_versions
from core.listeners.kafka.produce_conversion import Conversions
from core.listeners.kafka.sasl import Authentication
from core.protocol.apis import ALTER_USER_SCRAM_CREDENTIALS, API_VERSIONS, EXCHANGE_KEY
from core.protocol.codec import decode_request, encode_response
from core.protocol.header import RequestHeader, decode_request_header, encode_response_header
from core.protocol.messages.produce import ProduceResponse
from core.protocol.primitives import ProtocolError
from core.protocol.protocol_versions import VERSIONS
from core.protocol.protocol_versions import encode_response as encode_protocol_versions
from core.security.audit import SOURCE, Source
from core.security.passwords import Identity
from core.security.peers import peer_of
from core.security.principal import ANONYMOUS, Caller, Principal
from core.security.quotas import Bucket
from core.security.scopes import Scope
from core.types import FileSlice
from core.vocabulary.quotas import REQUEST_PERCENTAGE

log = logging.getLogger(__name__)

_SIZE = Struct(">i")
_HEADER_ONLY = Struct(">ii")
# Encoded answers to repeated requests, mostly Metadata: the number of entries, and the bytes of one.
_MAX_CACHED = 256
_MAX_CACHED_BYTES = 4 * 1024 * 1024
# The counter of requests of an API or version that is not served. Their keys are not counted one by one, because a
# client can send any key.
UNKNOWN_API = -1
CERTIFICATE = Source("kafka", "SSL")
_WILDCARDS = ("0.0.0.0", "::", "")


class KafkaListener:
    """Keep what all connections of one listener share. `handlers` are the APIs served, by key.

    A listener `of_peers` takes the other brokers of the cluster alone: each has the certificate of its number.
    """

    def __init__(self, broker: Broker, handlers: Mapping[int, Handler], *, of_peers: bool = False) -> None:
        self.broker = broker
        self.of_peers = of_peers
        self.handlers = handlers
        self.endpoint = Endpoint("kafka", "127.0.0.1", 0)
        self.advertised = broker.config.advertised
        self.fetch_sessions = FetchSessions(broker.config.max_fetch_sessions, broker.clock)
        self._cached: dict[tuple[object, ...], list[Piece]] = {}
        self._cached_version = -1
        # Work that continues after its client got an answer or disconnected: create topics, convert message sets.
        self.tasks: set[asyncio.Task[Any]] = set()
        self.conversions = Conversions(broker.config.convert_threads)
        self.counters = broker.counters
        self.requests = broker.counters.requests
        self.now = broker.clock.monotonic

    def bound(self, endpoint: Endpoint) -> None:
        """See `Listener.bound`."""
        self.endpoint = endpoint
        self.advertised = endpoint.advertised or self.broker.config.advertised

    def session(self) -> KafkaSession:
        """See `Listener.session`."""
        return KafkaSession(self)

    def cached(self, question: tuple[object, ...]) -> list[Piece] | None:
        """Return the kept answer to the same request, if no topic has changed since; otherwise None."""
        if self._cached_version != self.broker.changes.version:
            self._cached.clear()
            self._cached_version = self.broker.changes.version
        return self._cached.get(question)

    def remember(self, question: tuple[object, ...], answer: list[Piece]) -> None:
        """Keep an answer until the topics change. If there are too many, all are dropped."""
        if sum(len(p) for p in answer if not isinstance(p, FileSlice)) > _MAX_CACHED_BYTES:
            return
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        self._cached[question] = answer

    def count_errors(self, api_key: int, codes: Sequence[int]) -> None:
        """Count the error codes of an answer."""
        for code in codes:
            self.counters.errors[api_key, code] += 1


_NUMBERS = count()


class KafkaSession:
    """One connection and its request in progress; there is only one at a time."""

    def __init__(self, listener: KafkaListener) -> None:
        self.listener = listener
        self.api_key = -1
        self.version = 0
        # Rises with each connection that the process accepts.
        self.number = next(_NUMBERS)
        self.client_id: str | None = None
        self.client_software = ""
        self.peer_host = ""
        self.local_host = ""
        # The broker at the other end, once it is proven.
        self._peer_id: int | None = None
        self.act_as(ANONYMOUS)
        # Whether the answer may be kept. A handler sets it if the answer has no error and depends on topics only.
        self.cacheable = False
        self.source = Source("kafka")
        self.authentication = Authentication(
            listener.broker, listener.endpoint.authentication, self._logged_in
        )
        # Of the request in progress: when it arrived, and its size in bytes.
        self._started = 0.0
        self._received = 0
        # See `Session.mute_ms`.
        self.mute_ms = 0

    def connected(self, peer_host: str, local_host: str, principal: Principal = ANONYMOUS) -> Limits | None:
        """See `Session.connected`. The user of a SASL login takes the place of the certificate's principal."""
        self.peer_host, self.local_host = peer_host, local_host
        if self.listener.of_peers:
            self._peer_id = peer_of(self.listener.broker.config, principal)
        self.act_as(principal)
        if principal != ANONYMOUS:
            self.source = CERTIFICATE
            SOURCE.set(self.source)
            self.listener.broker.audit.login(str(principal), self.source.mechanism, peer_host)
        return self.authentication.connected(peer_host)

    def _logged_in(self, identity: Identity, mechanism: str) -> None:
        self.source = Source("kafka", mechanism)
        self.act_as(identity.principal, identity.scope)

    def act_as(self, principal: Principal, scope: Scope | None = None) -> None:
        """Let a principal be the caller of the requests that follow, with the scope of its token.

        `broker` is the broker with the rights of the caller; `listener.broker` is without a check.
        """
        self.caller = Caller(principal, self.peer_host, scope=scope)
        guards = self.listener.broker.guards
        peer = self._peer_id
        self.broker = (
            guards.of(self.caller, mutes=True) if peer is None else guards.of_peer(self.caller, peer)
        )
        self.rights = self.broker.rights

    @property
    def received(self) -> int:
        """The size of the request in progress in bytes, without the four of its size."""
        return self._received - 4

    def quota(self, key: str) -> Bucket | None:
        """Return what counts for the client of the request under a quota; None if it has none."""
        table = self.listener.broker.quota_table
        if not table:
            return None
        return table.bucket(key, self.caller.principal.name, self.client_id or "", self.listener.now())

    def throttle(self, wait: float) -> int:
        """Have the connection muted for `wait` seconds after the request. Return them in milliseconds."""
        milliseconds = math.ceil(wait * 1000)
        self.mute_ms = max(self.mute_ms, milliseconds)
        return milliseconds

    @property
    def principal(self) -> Principal:
        """The user of the connection, or `User:ANONYMOUS`."""
        return self.caller.principal

    @property
    def advertised(self) -> Endpoint:
        """The address that this client should use, never a wildcard.

        It is the listener's own option, else the setting for all of them, else the listener's address.
        """
        endpoint, advertised = self.listener.endpoint, self.listener.advertised
        if advertised is not None:
            return advertised
        if endpoint.host in _WILDCARDS:
            return Endpoint(endpoint.scheme, self.local_host, endpoint.port)
        return endpoint

    def brokers(self) -> list[tuple[int, str, int]]:
        """(id, host, port) of all brokers of the cluster, as this client should use them."""
        own = self.advertised
        found = [(self.broker.config.broker_id, own.host, own.port)]
        found += [(peer, address.host, address.port) for peer, address in self.broker.roles.peers()]
        return sorted(found)

    def handle(self, frame: memoryview) -> Answer | Deferred | Coroutine[Any, Any, Answer]:
        """See `Session.handle`."""
        self._received = len(frame) + 4
        self._started = self.listener.now()
        SOURCE.set(self.source)
        free = self._started < self.authentication.valid_until
        if not free and self.authentication.takes_raw:
            return self.authentication.raw(bytes(frame))
        try:
            header, position = decode_request_header(frame)
            if not free:
                self.authentication.admit(header.api_key)
            handler = self.listener.handlers.get(header.api_key)
            if handler is None and header.api_key == EXCHANGE_KEY and self.broker.config.peers:
                return self._exchange(header, bytes(frame[position:]))
            if handler is None or not handler.serves(header.api_version):
                return self._unserved(header)
            self.api_key, self.version, self.client_id = header.api_key, header.api_version, header.client_id
            question: tuple[object, ...] | None = None
            if handler.cached:
                # Two callers that see different topics get different answers.
                view = self.rights.view
                question = (
                    header.api_key, header.api_version, view, self.advertised, bytes(frame[position:]),
                )  # fmt: skip
                known = self.listener.cached(question)
                if known is not None:
                    return self._pack(header, known, self._started, self._received)
            request = decode_request(header.api_key, header.api_version, frame, position)
        except ProtocolError as error:
            raise RefusedError(f"malformed request: {error}") from None
        self.cacheable = False
        answer = handler.function(self, request)
        if self.listener.broker.quota_table and free:
            self._count_time()
        if type(answer) is CoroutineType:
            return self._later(header, answer)
        if isinstance(answer, WhenDurable):
            return self._defer(header, answer)
        return self._encode(header, answer, question, self._started, self._received)

    def close(self) -> None:
        """See `Session.close`. What the members of share groups on the connection have acquired becomes available."""
        self.authentication.close()
        broker = self.listener.broker
        for sharer in broker.share_sessions.disconnected(self.number):
            releasing = asyncio.ensure_future(broker.queues.release_member(*sharer))
            self.listener.tasks.add(releasing)
            releasing.add_done_callback(self._released)

    def _released(self, releasing: asyncio.Task[None]) -> None:
        self.listener.tasks.discard(releasing)
        if not releasing.cancelled() and (error := releasing.exception()) is not None:
            # The locks run out by themselves.
            log.warning("records of a share consumer stay locked until their time is over: %s", error)

    def _count_time(self) -> None:
        """Count the time on the event loop. It is not in `throttle_time_ms`; the connection is muted all the same.

        100 is the whole of the one event loop, as it is of one thread in Kafka (KIP-124).
        """
        bucket = self.quota(REQUEST_PERCENTAGE)
        if bucket is not None:
            now = self.listener.now()
            self.throttle(bucket.record((now - self._started) * 100, now))

    async def _later(self, header: RequestHeader, answer: Coroutine[Any, Any, Any]) -> Answer:
        response = await answer
        if self.authentication.ended and header.api_key != ALTER_USER_SCRAM_CREDENTIALS:
            # A long poll would bring records. Only a user that has deleted itself gets an answer.
            raise RefusedError("its user or its token was deleted")
        encoded = self._encode(header, response, None, self._started, self._received)
        return Last(encoded or []) if self.authentication.closing else encoded

    def _defer(self, header: RequestHeader, answer: WhenDurable) -> Deferred:
        deferred = Deferred()
        started, received = self._started, self._received

        def complete(response: ProduceResponse) -> None:
            try:
                deferred.finish(self._encode(header, response, None, started, received))
            except Exception as error:
                deferred.fail(error)

        answer.then(complete)
        return deferred

    def _encode(
        self,
        header: RequestHeader,
        answer: Any,
        question: tuple[object, ...] | None,
        started: float,
        received: int,
    ) -> Answer:
        if answer is NoAnswer:
            self._count(header.api_key, 0)
            return None
        body = encode_response(header.api_key, header.api_version, answer)
        listener = self.listener
        if codes := error_codes(header.api_key, answer):
            listener.count_errors(header.api_key, codes)
        if question is not None and self.cacheable:
            listener.remember(question, body)
        return self._pack(header, body, started, received)

    def _pack(self, header: RequestHeader, body: list[Piece], started: float, received: int) -> list[Piece]:
        start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
        size = len(start)
        for piece in body:
            size += piece.length if isinstance(piece, FileSlice) else len(piece)
        listener = self.listener
        listener.requests[header.api_key].note(listener.now() - started, received, size + 4)
        return [_SIZE.pack(size) + start, *body]

    async def _exchange(self, header: RequestHeader, data: bytes) -> Answer:
        """Answer another broker of the cluster."""
        try:
            answer = await self.broker.roles.exchange(data)
        except ValueError as error:
            raise RefusedError(f"malformed request of a broker: {error}") from None
        except BrokerError as error:
            raise RefusedError(f"request of a broker: {error.message}") from None
        self._count(UNKNOWN_API, len(answer) + 8)
        return [_HEADER_ONLY.pack(4 + len(answer), header.correlation_id), answer]

    def _unserved(self, header: RequestHeader) -> Answer:
        if header.api_key == API_VERSIONS:
            self.version = 0
            answer = self.listener.handlers[API_VERSIONS].function(self, None)
            if type(answer) is CoroutineType:
                answer.close()
                raise RefusedError("ApiVersions in the midst of its authentication")
            body = encode_response(API_VERSIONS, 0, answer)
            return self._pack(header, body, self._started, self._received)
        own_key = self.broker.config.protocol_version_api_key
        if own_key and header.api_key == own_key and header.api_version in VERSIONS:
            table = encode_protocol_versions(protocol_versions(self.listener.handlers, own_key))
            self._count(UNKNOWN_API, len(table) + 8)
            return [_HEADER_ONLY.pack(len(table) + 4, header.correlation_id) + table]
        self._count(UNKNOWN_API, 8)
        return [_HEADER_ONLY.pack(4, header.correlation_id)]

    def _count(self, api_key: int, bytes_out: int) -> None:
        """Count the request in progress, answered or without an answer."""
        listener = self.listener
        listener.requests[api_key].note(listener.now() - self._started, self._received, bytes_out)
