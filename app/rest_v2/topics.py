"""Metadata: brokers, topics, partitions and their offsets."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from app.http.request import Answer, Request, Scope
from app.rest_v2.bodies import json_answer
from app.rest_v2.errors import INSTANCE_NOT_FOUND, ProxyError, topic_not_found
from app.rest_v2.schemas import (
    BrokerIds,
    Health,
    PartitionMetadata,
    PartitionOffsets,
    Replica,
    TopicMetadata,
)
from app.version import VERSION
from core.clock import Clock
from core.config import Config
from core.errors import BrokerError
from core.facade import Facade
from core.security.authorizer import is_denial
from core.types import TopicPartition
from core.vocabulary.partition import PartitionInfo

_encode = msgspec.json.Encoder().encode
_NUMBER = re.compile(r"-?[0-9]{1,10}")


def partition_number(text: str) -> int:
    """A partition in a path. What is no number names nothing: 404, as for any path that is not there."""
    if not _NUMBER.fullmatch(text):
        raise ProxyError(404, 404, f"HTTP 404 Not Found: {text[:60]!r} is no partition.", partition=text[:60])
    return int(text)


class TopicRoutes:
    """The handlers, over one broker."""

    def __init__(self, config: Config, clock: Clock, acting: Callable[[Scope], Facade]) -> None:
        self._config = config
        self._clock = clock
        self._acting = acting
        self._started = clock.monotonic()

    async def root(self, request: Request, segments: list[str]) -> Answer:
        """Return an empty object. Clients see by it that a proxy is there."""
        return json_answer(request, {})

    async def health(self, request: Request, segments: list[str]) -> Answer:
        """Return the uptime in seconds and the version, under Karapace's names; 503 while the broker is not ready."""
        broker = self._acting(request.scope)
        uptime = int(self._clock.monotonic() - self._started)
        body = _encode(Health(process_uptime_sec=uptime, karapace_version=VERSION))
        return Answer(200 if broker.ready else 503, body)

    async def brokers(self, request: Request, segments: list[str]) -> Answer:
        """Return the ids of the brokers."""
        return json_answer(request, BrokerIds([self._config.broker_id]))

    async def topics(self, request: Request, segments: list[str]) -> Answer:
        """Return the names of the topics."""
        return json_answer(request, [topic.name for topic in self._acting(request.scope).topics.list()])

    async def topic(self, request: Request, segments: list[str]) -> Answer:
        """Return the settings and the partitions of a topic. An unknown topic is 40403 here."""
        broker = self._acting(request.scope)
        try:
            info = broker.topics.get(segments[1])
        except BrokerError as error:
            if is_denial(error):
                raise
            raise topic_not_found(segments[1], INSTANCE_NOT_FOUND) from None
        configs = {one.name: one.value or "" for one in broker.topics.effective_configs(info)}
        return json_answer(request, TopicMetadata(info.name, configs, self._partitions(info.partitions)))

    async def partitions(self, request: Request, segments: list[str]) -> Answer:
        """Return the partitions of a topic."""
        return json_answer(
            request, self._partitions(self._acting(request.scope).topics.get(segments[1]).partitions)
        )

    async def partition(self, request: Request, segments: list[str]) -> Answer:
        """Return one partition."""
        number = self._existing(request, segments).tp.partition
        return json_answer(request, self._partition(number))

    async def offsets(self, request: Request, segments: list[str]) -> Answer:
        """Return the first offset of a partition, and the offset up to which committed records can be read."""
        bounds = self._existing(request, segments).offsets
        return json_answer(request, PartitionOffsets(bounds.log_start_offset, bounds.last_stable_offset))

    def _existing(self, request: Request, segments: list[str]) -> PartitionInfo:
        tp = TopicPartition(segments[1], partition_number(segments[3]))
        return self._acting(request.scope).partitions.info(tp)

    def _partitions(self, count: int) -> list[PartitionMetadata]:
        return [self._partition(number) for number in range(count)]

    def _partition(self, number: int) -> PartitionMetadata:
        broker_id = self._config.broker_id
        return PartitionMetadata(number, broker_id, [Replica(broker_id, leader=True, in_sync=True)])
