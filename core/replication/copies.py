"""A partition with its log and its role: what following, leading and promoting work on."""

from __future__ import annotations

import asyncio
from typing import Protocol
from uuid import UUID

from core.log.log import Log
from core.replication.replica import Replica
from core.types import TopicPartition


class Flushing(Protocol):
    """What fsyncs logs for the replicas of a broker."""

    def durable(self, log: Log, offset: int) -> asyncio.Future[None] | None:
        """Return a future that is done once everything below `offset` is on the disk; None if it is already.

        The future fails with KAFKA_STORAGE_ERROR.
        """
        ...


class Copy:
    """A partition that this broker holds a copy of."""

    __slots__ = ("backoff", "joined", "log", "replica", "resting", "topic_id", "tp")

    def __init__(self, tp: TopicPartition, topic_id: UUID, log: Log, replica: Replica) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.log = log
        self.replica = replica
        # The epoch whose leader's history this log was joined to; −1 before that.
        self.joined = -1
        # The epoch whose leader is not asked for it for a while, after an error; −1 otherwise.
        self.resting = -1
        # Seconds for which it rested when its leader did not know the topic; 0 once the leader answers.
        self.backoff = 0.0
