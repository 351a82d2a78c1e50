"""Consumer instances: their life, what they read, and their records.

An instance is a managed consumer of the broker; this surface adds v2's shapes and codes, and keeps the instance's
format, `fetch.min.bytes` and `consumer.request.timeout.ms` among its settings. So an instance lives on through a
restart, and `base_uri` is a convenience: any address of this gateway will do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from urllib.parse import quote

import msgspec

from app.errors import Problem
from app.http.request import Answer, Request, Scope
from app.http.waiting import check_share, while_connected
from app.rest_v2.bodies import (
    decoder_of,
    json_answer,
    no_content,
    number_in,
    query_of,
    read_json,
    read_optional_json,
)
from app.rest_v2.dialect import Dialect
from app.rest_v2.errors import (
    ILLEGAL_STATE,
    INSTANCE_EXISTS,
    INSTANCE_NOT_FOUND,
    KAFKA_BAD_REQUEST,
    ProxyError,
    bad_config,
    illegal_state,
    unprocessable,
)
from app.rest_v2.media import FORMATS, SCHEMA_FORMATS, accept_of
from app.rest_v2.records import Embedder
from app.rest_v2.schemas import (
    ConsumerRecord,
    CreateInstance,
    InstanceCreated,
    Partition,
    Partitions,
    Subscribe,
    Topics,
)
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.facade import Facade
from core.types import TopicPartition
from core.vocabulary.consumers import (
    MIXED_SUBSCRIPTION,
    NOT_ASSIGNED,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Batch,
    ConsumerInfo,
    ConsumerOptions,
)

FORMAT, MIN_BYTES, TIMEOUT = "format", "fetch.min.bytes", "consumer.request.timeout.ms"
DEFAULT_FORMAT = "binary"
# v2's consumer.instance.timeout.ms: an instance without a request is deleted after five minutes.
IDLE_MS = 300_000
MAX_MIN_BYTES = 10_000_000
_RESETS = {
    "earliest": "earliest", "smallest": "earliest", "latest": "latest", "largest": "latest", "none": "none",
}  # fmt: skip
_ISOLATION_LEVELS = (None, READ_COMMITTED, READ_UNCOMMITTED)
_create = decoder_of(CreateInstance)
_subscribe = decoder_of(Subscribe)
_partitions = decoder_of(Partitions)
_encode = msgspec.json.Encoder().encode


class Instances:
    """What all consumer routes share: the broker, the dialect, and the broker's refusals in v2's words."""

    def __init__(self, config: Config, dialect: Dialect, acting: Callable[[Scope], Facade]) -> None:
        self.config = config
        self.dialect = dialect
        self.acting = acting

    def get(self, request: Request, segments: list[str]) -> ConsumerInfo:
        """The instance that a path names. Raises ProxyError 404/40403."""
        with self.refusals():
            return self.acting(request.scope).consumers.get(segments[1], segments[3])

    def wait_ms(self, info: ConsumerInfo) -> int:
        """How long a poll of this instance waits when the request does not say."""
        return min(_setting(info, TIMEOUT, self.dialect.poll_wait_ms), self.config.max_wait_ms)

    def mixed_subscription(self) -> ProxyError:
        """409/40903 for topics, a pattern and assigned partitions, which exclude each other."""
        return ProxyError(409, ILLEGAL_STATE, self.dialect.mixed_subscription)

    @contextlib.contextmanager
    def refusals(self) -> Iterator[None]:
        """Turns refusals of consumers into v2's; all others pass."""
        try:
            yield
        except BrokerError as error:
            refusal = self._refusal(error)
            if refusal is None:
                raise
            raise refusal from None

    def _refusal(self, error: BrokerError) -> ProxyError | None:
        code = error.code
        if code is ErrorCode.RESOURCE_NOT_FOUND:
            return ProxyError(404, INSTANCE_NOT_FOUND, error.message)
        if code is ErrorCode.DUPLICATE_RESOURCE:
            return ProxyError(409, INSTANCE_EXISTS, error.message)
        if code is not ErrorCode.INVALID_RECORD_STATE:
            return None
        reason = error.details.get("reason")
        if reason == MIXED_SUBSCRIPTION:
            return self.mixed_subscription()
        if reason == NOT_ASSIGNED:
            return ProxyError(self.dialect.not_assigned_status, self.dialect.not_assigned_code, error.message)
        return illegal_state(error.message)


class ConsumerRoutes:
    """The handlers of instances, subscriptions, assignments and records."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        self._embedder = Embedder(instances.config, instances.dialect)

    # --- life ----------------------------------------------------------------------------------------------

    async def create(self, request: Request, segments: list[str]) -> Answer:
        """Make a consumer instance.

        It lives through restarts, and is deleted after five minutes without a request. The format is json, binary or
        text; avro, jsonschema and protobuf are taken as well, but without a schema registry a read refuses every
        value but null (42203).
        """
        group = segments[1]
        if group in (".", ".."):
            raise unprocessable(
                "A group of that name has no path: '.' and '..' lead elsewhere.", KAFKA_BAD_REQUEST
            )
        try:
            wanted = await read_optional_json(request, _create) or CreateInstance()
        except Problem as problem:
            if problem.kind != "invalid-request":
                raise
            raise bad_config(problem.detail) from None
        # `id` is an old name for `name`, and wins.
        name = (wanted.id if wanted.id is not None else wanted.name) or None
        options = self._options(wanted)
        with self._instances.refusals():
            try:
                made = await self._instances.acting(request.scope).consumers.create(
                    group, name, options=options
                )
            except BrokerError as error:
                if error.code is ErrorCode.INVALID_REQUEST:
                    raise bad_config(error.message) from None
                raise
        return json_answer(request, InstanceCreated(made.name, _base_uri(request, group, made.name)))

    def _options(self, wanted: CreateInstance) -> ConsumerOptions:
        dialect = self._instances.dialect
        reset = _RESETS.get((wanted.auto_offset_reset or dialect.offset_reset).lower())
        if reset is None:
            raise bad_config(
                f"auto.offset.reset must be earliest, latest or none, not {wanted.auto_offset_reset!r:.60}."
            )
        if wanted.isolation_level not in _ISOLATION_LEVELS:
            raise bad_config("isolation.level must be read_committed or read_uncommitted.")
        min_bytes = _first(wanted.fetch_min_bytes, wanted.response_min_bytes, -1)
        if not -1 <= min_bytes <= MAX_MIN_BYTES:
            raise bad_config(f"fetch.min.bytes must lie between -1 and {MAX_MIN_BYTES}, not {min_bytes}.")
        timeout = _first(wanted.consumer_request_timeout_ms, wanted.request_wait_ms, dialect.poll_wait_ms)
        if timeout < 0:
            raise bad_config(f"consumer.request.timeout.ms must not be negative; it is {timeout}.")
        auto_commit = wanted.auto_commit_enable
        return ConsumerOptions(
            start=reset,
            ttl_ms=IDLE_MS,
            auto_commit=dialect.auto_commit if auto_commit is None else auto_commit,
            settings={
                FORMAT: _format_name(wanted.format),
                MIN_BYTES: str(max(min_bytes, 1)),
                TIMEOUT: str(timeout),
            },
            isolation_level=wanted.isolation_level or READ_COMMITTED,
        )

    async def delete(self, request: Request, segments: list[str]) -> Answer:
        """Delete an instance."""
        with self._instances.refusals():
            await self._instances.acting(request.scope).consumers.delete(segments[1], segments[3])
        return no_content()

    # --- subscription --------------------------------------------------------------------------------------

    async def subscribe(self, request: Request, segments: list[str]) -> Answer:
        """Subscribe to topics, or to a pattern."""
        self._instances.get(request, segments)
        wanted = await read_json(request, _subscribe)
        if wanted.topics is not None and wanted.topic_pattern is not None:
            raise self._instances.mixed_subscription()
        consumers = self._instances.acting(request.scope).consumers
        with self._instances.refusals():
            if wanted.topics:
                await consumers.subscribe(segments[1], segments[3], topics=wanted.topics)
            elif wanted.topic_pattern:
                await consumers.subscribe(segments[1], segments[3], pattern=wanted.topic_pattern)
            elif wanted.topics is not None:
                # As the Kafka consumer has it: to subscribe to nothing is to unsubscribe.
                await consumers.unsubscribe(segments[1], segments[3])
            else:
                raise unprocessable("The subscription needs topics or a topic_pattern.")
        return no_content()

    async def subscription(self, request: Request, segments: list[str]) -> Answer:
        """Return the topics of the subscription; for a pattern, the topics that match now."""
        with self._instances.refusals():
            topics = self._instances.acting(request.scope).consumers.subscribed_topics(
                segments[1], segments[3]
            )
        return json_answer(request, Topics(list(topics)))

    async def unsubscribe(self, request: Request, segments: list[str]) -> Answer:
        """Unsubscribe."""
        with self._instances.refusals():
            await self._instances.acting(request.scope).consumers.unsubscribe(segments[1], segments[3])
        return no_content()

    async def assign(self, request: Request, segments: list[str]) -> Answer:
        """Read these partitions, without the group."""
        self._instances.get(request, segments)
        wanted = await read_json(request, _partitions)
        partitions = [TopicPartition(one.topic, one.partition) for one in wanted.partitions]
        with self._instances.refusals():
            await self._instances.acting(request.scope).consumers.assign(segments[1], segments[3], partitions)
        return no_content()

    async def assignments(self, request: Request, segments: list[str]) -> Answer:
        """Return the partitions that are assigned."""
        info = self._instances.get(request, segments)
        return json_answer(
            request, Partitions([Partition(one.topic, one.partition) for one in info.partitions])
        )

    # --- records -------------------------------------------------------------------------------------------

    async def records(self, request: Request, segments: list[str]) -> Answer:
        """Read the next records.

        Answered on first data, at the latest after `timeout`; the first call waits for the group as well.
        """
        info = self._instances.get(request, segments)
        format_name = info.options.settings.get(FORMAT, DEFAULT_FORMAT)
        media_type = accept_of(request.headers.get(b"accept", b"")).records(format_name)
        config, query = self._instances.config, query_of(request)
        poll = _Poll(
            self._instances,
            request,
            info,
            max_bytes=number_in(
                query, "max_bytes", config.http_default_read_bytes, config.http_max_read_bytes
            ),
            wait_ms=number_in(query, "timeout", self._instances.wait_ms(info), config.max_wait_ms),
        )
        with self._instances.refusals():
            batch = await poll.next(request, config.http_max_limit)
        while True:
            shown, refusal = self._show(batch, format_name)
            if refusal is None:
                return Answer(200, _encode(shown), media_type)
            # The record that cannot be shown was not delivered, nor any record after it.
            poll.take_back(batch)
            if not shown:
                raise refusal
            with self._instances.refusals():
                batch = await poll.again(len(shown))

    def _show(self, batch: Batch, format_name: str) -> tuple[list[ConsumerRecord], ProxyError | None]:
        found = ((*tp, record) for tp, records in batch.records for record in records)
        return self._embedder.records(found, format_name)


class _Poll:
    """The polls of one request."""

    def __init__(
        self, instances: Instances, request: Request, info: ConsumerInfo, *, max_bytes: int, wait_ms: int
    ) -> None:
        self._consumers = instances.acting(request.scope).consumers
        self._address = (info.group_id, info.name)
        self._min_bytes = _setting(info, MIN_BYTES, 1)
        self._max_bytes = max_bytes
        self._wait_ms = wait_ms

    async def next(self, request: Request, limit: int) -> Batch:
        """Return the next batch; wait for one if none is there. Raises ClientGoneError if the client disconnects."""
        if self._min_bytes <= 1:
            # A batch that is there needs no watch over the connection.
            batch = await self._poll(limit, 0)
            if batch.records or not self._wait_ms:
                return batch
        check_share(request.scope)
        return await while_connected(request, self._poll(limit, self._wait_ms), undelivered=self.take_back)

    async def again(self, limit: int) -> Batch:
        """Poll once more for records that were taken back: they are there, so this does not wait."""
        return await self._poll(limit, 0)

    async def _poll(self, limit: int, wait_ms: int) -> Batch:
        return await self._consumers.poll(
            *self._address,
            limit=limit,
            max_bytes=self._max_bytes,
            wait_ms=wait_ms,
            min_bytes=self._min_bytes,
            advance=True,
        )

    def take_back(self, batch: Batch) -> None:
        """The batch did not reach the client."""
        self._consumers.take_back(*self._address, batch.token)


def _first(*numbers: int | None) -> int:
    return next(number for number in numbers if number is not None)


def _setting(info: ConsumerInfo, name: str, default: int) -> int:
    return int(info.options.settings.get(name, default))


def _format_name(text: str | None) -> str:
    name = (text or DEFAULT_FORMAT).lower()
    if name not in FORMATS + SCHEMA_FORMATS:
        raise bad_config(
            f"The format must be one of {', '.join(FORMATS + SCHEMA_FORMATS)}, not {name[:40]!r}."
        )
    return name


def _base_uri(request: Request, group: str, name: str) -> str:
    """Where the instance is reached: at the address that the client has used."""
    host = request.headers.get(b"host", b"").decode("latin-1")
    scheme = request.scope.get("scheme", "http")
    origin = f"{scheme}://{host}" if host else ""
    return f"{origin}/consumers/{quote(group, safe='')}/instances/{quote(name, safe='')}"
