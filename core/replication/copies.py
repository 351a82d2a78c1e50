"""A partition with its log and its role: what following, leading and promoting work on."""

from __future__ import annotations

from uuid import UUID

from core.log.replica_log import ReplicaLog
from core.replication.replica import Replica
from core.types import TopicPartition


class Copy:
    """A partition that this broker holds a copy of."""

    __slots__ = ("joined", "log", "not_before", "replica", "topic_id", "topic_partition")

    def __init__(
        self, topic_partition: TopicPartition, topic_id: UUID, log: ReplicaLog, replica: Replica
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.replica = replica
        # The epoch whose leader's history this log was joined to; −1 before that.
        self.joined = -1
        # After an error it is left alone until then, in monotonic seconds.
        self.not_before = 0.0
