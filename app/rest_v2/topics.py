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
from core.vocabulary.topic import TopicInfo

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
        return json_answer(request, BrokerIds(self._acting(request.scope).roles.broker_ids()))

    async def topics(self, request: Request, segments: list[str]) -> Answer:
        """Return the names of the topics."""
        broker = self._acting(request.scope)
        await broker.look(None)
        return json_answer(request, [topic.name for topic in broker.topics.list()])

    async def topic(self, request: Request, segments: list[str]) -> Answer:
        """Return the settings and the partitions of a topic. An unknown topic is 40403 here."""
        broker = self._acting(request.scope)
        await broker.look((segments[1],), configs=True)
        try:
            info = broker.topics.get(segments[1])
        except BrokerError as error:
            if is_denial(error):
                raise
            raise topic_not_found(segments[1], INSTANCE_NOT_FOUND) from None
        configs = {one.name: one.value or "" for one in broker.topics.effective_configs(info)}
        return json_answer(request, TopicMetadata(info.name, configs, _partitions(broker, info)))

    async def partitions(self, request: Request, segments: list[str]) -> Answer:
        """Return the partitions of a topic."""
        broker = self._acting(request.scope)
        await broker.look((segments[1],))
        return json_answer(request, _partitions(broker, broker.topics.get(segments[1])))

    async def partition(self, request: Request, segments: list[str]) -> Answer:
        """Return one partition."""
        broker = self._acting(request.scope)
        tp = (await self._existing(request, segments)).tp
        return json_answer(request, _partition(broker, broker.topics.get(tp.topic), tp.partition))

    async def offsets(self, request: Request, segments: list[str]) -> Answer:
        """Return the first offset of a partition, and the offset up to which committed records can be read."""
        bounds = (await self._existing(request, segments)).offsets
        return json_answer(request, PartitionOffsets(bounds.log_start_offset, bounds.last_stable_offset))

    async def _existing(self, request: Request, segments: list[str]) -> PartitionInfo:
        tp = TopicPartition(segments[1], partition_number(segments[3]))
        broker = self._acting(request.scope)
        await broker.look(partitions=(tp,))
        return broker.partitions.info(tp)


def _partitions(broker: Facade, topic: TopicInfo) -> list[PartitionMetadata]:
    return [_partition(broker, topic, number) for number in range(topic.partitions)]


def _partition(broker: Facade, topic: TopicInfo, number: int) -> PartitionMetadata:
    placed = broker.roles.placed(topic, number)
    replicas = [
        Replica(one, leader=one == placed.leader, in_sync=one in placed.isr) for one in placed.replicas
    ]
    return PartitionMetadata(number, placed.leader, replicas)
