"""The logs as the transaction coordinator of a cluster needs them: those that its broker leads.

Nothing but the high watermark makes a record or a marker safe here. What another broker leads is refused with
NOT_LEADER_OR_FOLLOWER, with one exception: the copy of a follower that is complete up to where its leader began also
tells that a transaction has ended there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol
from uuid import UUID

from core.broker.topic_table import TopicTable
from core.broker.transaction_logs import TransactionLogs, open_in
from core.changes import TopicChanges
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.log.manager import LogManager
from core.purgatory import Purgatory
from core.records.control import EndMarker
from core.replication.copies import Copy, Flushing
from core.replication.replicas import Replicas
from core.transactions.transaction import Part
from core.types import OpenTransaction, TopicPartition
from core.vocabulary.replicas import METADATA


class MetadataRole(Protocol):
    """Which broker keeps the metadata; `core.replication.metadata_log` knows it."""

    @property
    def epoch(self) -> int:
        """The epoch of the metadata partition that this broker knows."""

    @property
    def leader(self) -> int:
        """The broker that keeps the metadata, as far as known here; −1 if none is known."""


class LedTransactionLogs:
    """The logs that one broker of a cluster leads, for its coordinator.

    `alone` has the partitions with one replica. A coordinator that was deposed appends no marker.
    """

    def __init__(
        self,
        config: Config,
        logs: LogManager,
        alone: TransactionLogs,
        topics: TopicTable,
        replicas: Replicas,
        flusher: Flushing,
        purgatory: Purgatory,
        changes: TopicChanges,
        metadata: MetadataRole,
    ) -> None:
        self._config = config
        self._logs = logs
        self._alone = alone
        self._topics = topics
        self._replicas = replicas
        self._flusher = flusher
        self._purgatory = purgatory
        self._changes = changes
        self._metadata = metadata
        # The epoch of the coordinator that this is for.
        self.epoch = metadata.epoch
        # The epoch of each partition in which the coordinator has looked at it: its log may be cut in each.
        self._seen: dict[TopicPartition, int] = {}

    # --- leaders -------------------------------------------------------------------------------------------

    def topic_id(self, tp: TopicPartition) -> UUID:
        """Return the id of the topic that a partition belongs to. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self._topics.get(tp.topic)
        if not 0 <= tp.partition < topic.partitions:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {tp}.")
        return topic.topic_id

    def coordinates(self) -> bool:
        """Return whether the coordinator that this is for still is the one of the cluster, as far as known here."""
        return self._metadata.epoch == self.epoch and self._metadata.leader == self._config.broker_id

    def changed(self) -> Iterator[tuple[TopicPartition, list[OpenTransaction]]]:
        """Yield the partitions with another leader than when they were asked for; see `look_at`."""
        for copy in self._replicas:
            found = self.look_at(copy.tp)
            if found is not None:
                yield copy.tp, found

    def look_at(self, tp: TopicPartition) -> list[OpenTransaction] | None:
        """Return what is open in a partition if another leader has begun since the last call; None if not.

        Nothing, if the leader is another broker.
        """
        copy = self._replicas.get(tp)
        if copy is None or tp == METADATA or not (copy.replica.leads or _complete(copy)):
            return None
        if self._seen.get(tp) == copy.replica.epoch:
            return None
        self._seen[tp] = copy.replica.epoch
        return list(open_in(tp, copy.log)) if copy.replica.leads else []

    # --- what is open --------------------------------------------------------------------------------------

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """Yield the transactions that are open in the logs that this broker leads."""
        for _, found in self.changed():
            yield from found
        for tp, log in list(self._logs.opened()):
            if self._replicas.get(tp) is None:
                yield from open_in(tp, log)

    def watch(self, found: Callable[[OpenTransaction], None]) -> None:
        """Report the transactions that are open in a log with one replica whenever one is opened from now on."""

        def opened(one: OpenTransaction) -> None:
            topic = self._topics.find(one.tp.topic)
            if topic is not None and len(topic.replicas) < 2 and self.coordinates():
                found(one)

        self._alone.watch(opened)

    def is_open(self, tp: TopicPartition, topic_id: UUID, producer_id: int, first_offset: int) -> bool:
        """Return whether that transaction is open in that partition. See `TransactionLogs.is_open`.

        Raises NOT_LEADER_OR_FOLLOWER if this broker cannot know.
        """
        copy = self._find(tp, topic_id)
        if not isinstance(copy, Copy):
            return copy and self._alone.is_open(tp, topic_id, producer_id, first_offset)
        first = copy.log.producers.open_since(producer_id)
        is_open = first is not None and first_offset in (-1, first)
        if not copy.replica.leads and (is_open or not _complete(copy)):
            raise self._replicas.not_leader(copy)
        return is_open

    def located(
        self, parts: Mapping[TopicPartition, Part], producer_id: int
    ) -> Mapping[TopicPartition, Part]:
        """Return the parts with the offsets of their first records, without those that have none.

        A part that another broker leads stays as it is.
        """
        found = {}
        for tp, part in parts.items():
            first: int | None = part.first_offset
            copy = self._find(tp, part.topic_id)
            if first == -1 and isinstance(copy, Copy) and copy.replica.leads:
                first = copy.log.producers.open_since(producer_id)
            elif first == -1 and copy is True:
                first = self._alone.first_offset(tp, part.topic_id, producer_id)
            if first is not None and copy is not False:
                found[tp] = Part(part.topic_id, first)
        return found

    # --- what is safe --------------------------------------------------------------------------------------

    def durable(self, tp: TopicPartition, topic_id: UUID) -> asyncio.Future[None] | None:
        """Return a future for all that a partition holds now: on the disk and below the high watermark.

        Raises KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER.
        """
        copy = self._find(tp, topic_id)
        if not isinstance(copy, Copy):
            return self._alone.durable(tp, topic_id) if copy else None
        if not copy.replica.leads:
            raise self._replicas.not_leader(copy)
        end = copy.log.offsets.log_end_offset
        flushed = self._flusher.durable(copy.log, end)
        return self._replicas.committed(copy, end, flushed, self._config.replica_ack_timeout_ms / 1000)

    def append_marker(
        self,
        tp: TopicPartition,
        topic_id: UUID,
        producer_id: int,
        epoch: int,
        marker: EndMarker,
        *,
        raised: bool,
    ) -> int:
        """Append a marker and return its offset; −1 if the partition is deleted or has the marker.

        Raises KAFKA_STORAGE_ERROR, INVALID_PRODUCER_EPOCH, NOT_LEADER_OR_FOLLOWER, TRANSACTION_COORDINATOR_FENCED.
        """
        if not self.coordinates():
            raise BrokerError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"The coordinator epoch {marker.coordinator_epoch} is over.",
            )
        copy = self._find(tp, topic_id)
        if not isinstance(copy, Copy):
            if not copy:
                return -1
            return self._alone.append_marker(tp, topic_id, producer_id, epoch, marker, raised=raised)
        leader_epoch = self._replicas.leading(copy, 1)
        done = copy.log.append_marker(producer_id, epoch, marker, leader_epoch=leader_epoch, bumped=raised)
        if done is None:
            return -1
        self._replicas.appended(copy)
        self._purgatory.notify(tp)
        self._changes.touch(tp.topic)
        return done.base_offset

    def last_offset(self, tp: TopicPartition, topic_id: UUID) -> int:
        """Return the offset of the last record of a partition; −1 if it is empty or deleted."""
        copy = self._find(tp, topic_id)
        if not isinstance(copy, Copy):
            return self._alone.last_offset(tp, topic_id) if copy else -1
        return copy.log.offsets.log_end_offset - 1

    def is_durable(self, tp: TopicPartition, topic_id: UUID, offset: int) -> bool:
        """Return whether no failure can take the batch at this offset; true as well if the partition is deleted.

        Raises KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER.
        """
        copy = self._find(tp, topic_id)
        if not isinstance(copy, Copy):
            return not copy or self._alone.is_durable(tp, topic_id, offset)
        if not copy.replica.leads and not _complete(copy):
            raise self._replicas.not_leader(copy)
        if self._seen.get(tp) != copy.replica.epoch:
            # The log may have been cut since the marker was appended; see `changed`.
            return False
        return copy.log.flushed_offset > offset and copy.replica.high_watermark > offset

    def _find(self, tp: TopicPartition, topic_id: UUID) -> Copy | bool:
        """Return the replicated partition; True if it has one replica, here; False if it is deleted.

        Raises NOT_LEADER_OR_FOLLOWER if this broker holds no replica.
        """
        topic = self._topics.find(tp.topic)
        if topic is None or topic.topic_id != topic_id:
            return False
        copy = self._replicas.get(tp)
        if copy is not None:
            return copy
        leader = topic.replicas[0] if topic.replicas else self._config.broker_id
        if leader != self._config.broker_id:
            raise BrokerError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"This broker does not lead {tp}; broker {leader} does.",
                leader=leader,
            )
        return True


def _complete(copy: Copy) -> bool:
    """Return whether a follower has all that its leader began with, and knows it to be committed."""
    replica = copy.replica
    return (
        replica.follows and replica.complete == replica.epoch and 0 <= replica.start <= replica.high_watermark
    )
