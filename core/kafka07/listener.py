"""The Kafka 0.7 listener: five requests, byte addresses, and no answer to a PRODUCE.

A producer of 0.7 gets no error codes. If its request is wrong, the broker closes the connection and logs one line, as
Kafka 0.7.2 did. Readers get the error codes of 0.7. Every listener answers in one message format, magic 1 or 0,
because a client of one does not understand the other. Producers may send either.
"""

from __future__ import annotations

import math
from collections.abc import Coroutine, Sequence
from typing import Any

from core.broker.broker import Broker
from core.config import Endpoint
from core.errors import BrokerError, ErrorCode
from core.kafka07.codec import (
    FetchAnswer,
    FetchPart,
    Kafka07Error,
    Kafka07Request,
    OffsetsQuestion,
    ProducePart,
    RequestType,
    decode_request,
    encode_fetch_answer,
    encode_multifetch_answer,
    encode_offsets_answer,
)
from core.kafka07.requests import Kafka07Topics
from core.kafka07.views import Kafka07Views
from core.listeners.connection import Answer, RefusedError
from core.protocol.primitives import ProtocolError
from core.records.message_set import MessageGroup
from core.security.acl import Operation, ResourceType
from core.security.audit import SOURCE, Source
from core.security.principal import ANONYMOUS, Caller, Principal
from core.types import FileSlice
from core.vocabulary.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE

_SOURCE = Source("kafka07")
_CODES = {
    ErrorCode.OFFSET_OUT_OF_RANGE: Kafka07Error.OFFSET_OUT_OF_RANGE,
    ErrorCode.CORRUPT_MESSAGE: Kafka07Error.INVALID_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Kafka07Error.WRONG_PARTITION,
    ErrorCode.INVALID_FETCH_SIZE: Kafka07Error.INVALID_FETCH_SIZE,
}


class Kafka07Listener:
    """What all connections of one 0.7 listener share."""

    def __init__(self, broker: Broker, views: Kafka07Views) -> None:
        self.broker = broker
        self.endpoint = Endpoint("kafka07", "127.0.0.1", 0)
        self._views = views
        self.topics = Kafka07Topics(broker, views, 1)

    def bound(self, endpoint: Endpoint) -> None:
        """See `Listener.bound`."""
        self.endpoint = endpoint
        self.topics = Kafka07Topics(self.broker, self._views, int(endpoint.option("magic")))

    def session(self) -> Kafka07Session:
        """See `Listener.session`."""
        return Kafka07Session(self)


class Kafka07Session:
    """One connection. It keeps no state from one request to the next."""

    def __init__(self, listener: Kafka07Listener) -> None:
        self._topics = listener.topics
        self._guards = listener.broker.guards
        self._acting = self._guards.of(Caller(ANONYMOUS))
        self._quotas = listener.broker.quota_table
        self._user = ANONYMOUS.name
        self._fetch_limit = listener.broker.config.legacy_fetch_max_bytes
        self._counters = listener.broker.counters
        self._now = listener.broker.clock.monotonic
        # See `Session.mute_ms`.
        self.mute_ms = 0

    def connected(self, peer_host: str, local_host: str, principal: Principal = ANONYMOUS) -> None:
        """See `Session.connected`. Clients of 0.7 know no login; the principal is that of a certificate."""
        self._acting = self._guards.of(Caller(principal, peer_host))
        self._user = principal.name

    def close(self) -> None:
        """See `Session.close`."""

    def handle(self, frame: memoryview) -> Answer | Coroutine[Any, Any, Answer]:
        """See `Session.handle`."""
        SOURCE.set(_SOURCE)
        started, received = self._now(), len(frame) + 4
        try:
            request = decode_request(frame)
        except ProtocolError as error:
            raise RefusedError(f"malformed request: {error}") from None
        if request.offsets is not None:
            later = self._offsets(request.offsets)
        elif request.fetches or request.type is RequestType.MULTIFETCH:
            later = self._fetch(request)
        else:
            self._throttle(PRODUCER_BYTE_RATE, received)
            unfinished = self._produce(request.produces)
            if unfinished is None:
                self._counters.kafka07[request.type.name].note(self._now() - started, received)
                return None
            later = unfinished
        return self._counted(request.type.name, started, received, later)

    async def _counted(
        self, name: str, started: float, received: int, later: Coroutine[Any, Any, Answer]
    ) -> Answer:
        answer = await later
        sent = sum(len(piece) for piece in answer or () if not isinstance(piece, FileSlice))
        in_files = sum(piece.length for piece in answer or () if isinstance(piece, FileSlice))
        self._throttle(CONSUMER_BYTE_RATE, sent + in_files)
        self._counters.kafka07[name].note(self._now() - started, received, sent)
        return answer

    def _throttle(self, key: str, size: int) -> None:
        """Count bytes under a quota. Clients of 0.7 know no error for it: nothing is read from them for the time."""
        now = self._now()
        if size and self._quotas and (bucket := self._quotas.bucket(key, self._user, "", now)) is not None:
            self.mute_ms = math.ceil(bucket.record(size, now) * 1000)

    def _code(self, error: BrokerError, request: RequestType) -> Kafka07Error:
        code = _CODES.get(error.code, Kafka07Error.UNKNOWN)
        self._counters.kafka07_errors[request.name, code.name] += 1
        return code

    # --- produce -------------------------------------------------------------------------------------------

    def _produce(self, parts: Sequence[ProducePart]) -> Coroutine[Any, Any, Answer] | None:
        """Append every part, if all of them are whole. Return a coroutine if something must be waited for."""
        topics = self._topics
        try:
            for part in parts:
                self._acting.require_write(part.topic)
            targets = [topics.target(part.topic, part.partition) for part in parts]
            groups = [topics.parse(part.messages) for part in parts]
            if None in targets or None in groups:
                copies = [part._replace(messages=memoryview(bytes(part.messages))) for part in parts]
                return self._produce_later(copies, groups)
            for part, target, group in zip(parts, targets, groups, strict=True):
                assert target is not None and group is not None
                topics.append(target, group, len(part.messages))
        except BrokerError as error:
            raise RefusedError(f"a produce request failed: {error.message}") from None
        return None

    async def _produce_later(
        self, parts: Sequence[ProducePart], parsed: Sequence[list[MessageGroup] | None]
    ) -> Answer:
        try:
            await self._topics.to_the_end(self._append_later(parts, parsed))
        except BrokerError as error:
            raise RefusedError(f"a produce request failed: {error.message}") from None
        return None

    async def _append_later(
        self, parts: Sequence[ProducePart], parsed: Sequence[list[MessageGroup] | None]
    ) -> None:
        topics = self._topics
        groups = [
            await topics.parse_later(part.messages) if group is None else group
            for part, group in zip(parts, parsed, strict=True)
        ]
        for part, group in zip(parts, groups, strict=True):
            if not group:
                continue
            target = topics.target(part.topic, part.partition)
            if target is None:
                await topics.create(part.topic)
                target = topics.target(part.topic, part.partition)
            assert target is not None
            await topics.append_later(target, group, len(part.messages))

    # --- fetch and offsets ---------------------------------------------------------------------------------

    async def _fetch(self, request: Kafka07Request) -> Answer:
        if request.type is RequestType.FETCH:
            one = await self._part(request.type, request.fetches[0], self._fetch_limit)
            return list(encode_fetch_answer(one))
        answers = []
        left = self._fetch_limit
        for part in request.fetches:
            # Beyond the limit parts are empty, as at the end of a log: the client fetches them again.
            answer = await self._part(request.type, part, left) if left else FetchAnswer(Kafka07Error.NONE)
            answers.append(answer)
            left = max(left - len(answer.messages), 0)
        return list(encode_multifetch_answer(answers))

    async def _part(self, kind: RequestType, part: FetchPart, limit: int) -> FetchAnswer:
        try:
            self._acting.rights.require(Operation.READ, ResourceType.TOPIC, part.topic)
            return FetchAnswer(Kafka07Error.NONE, await self._topics.fetch(*part, limit))
        except BrokerError as error:
            return FetchAnswer(self._code(error, kind))

    async def _offsets(self, question: OffsetsQuestion) -> Answer:
        try:
            self._acting.rights.require(Operation.DESCRIBE, ResourceType.TOPIC, question.topic)
            return list(encode_offsets_answer(Kafka07Error.NONE, await self._topics.offsets(*question)))
        except BrokerError as error:
            return list(encode_offsets_answer(self._code(error, RequestType.OFFSETS), ()))
