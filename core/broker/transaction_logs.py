"""The logs as transactions need them: what is open in them, their markers, and when those are on the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from uuid import UUID

from core.broker.flusher import Flusher
from core.broker.unclean_start import LeaderEpochs
from core.changes import TopicChanges
from core.errors import BrokerError, ErrorCode
from core.log.log import Log
from core.log.manager import LogManager
from core.purgatory import Purgatory
from core.records.control import EndMarker
from core.transactions.transaction import Part
from core.types import OpenTransaction, TopicPartition

# What says that the topic of a transaction's records is deleted.
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class TransactionLogs:
    """The logs of one broker that holds all partitions, for its transaction coordinator."""

    def __init__(
        self,
        logs: LogManager,
        flusher: Flusher,
        leader_epochs: LeaderEpochs,
        purgatory: Purgatory,
        changes: TopicChanges,
    ) -> None:
        self._logs = logs
        self._flusher = flusher
        self._leader_epochs = leader_epochs
        self._purgatory = purgatory
        self._changes = changes

    def topic_id(self, tp: TopicPartition) -> UUID:
        """Return the id of the topic that a partition belongs to. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        return self._logs.get(tp).topic_id

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """Yield the transactions that are open in the logs that are open: after a crash, in all logs."""
        for tp, log in self._logs.opened():
            yield from open_in(tp, log)

    def watch(self, found: Callable[[OpenTransaction], None]) -> None:
        """Report the transactions that are open in a log whenever one is opened from now on."""

        def opened(tp: TopicPartition, log: Log) -> None:
            for one in list(open_in(tp, log)):
                found(one)

        self._logs.watch_open_transactions(opened)

    def is_open(self, tp: TopicPartition, topic_id: UUID, producer_id: int, first_offset: int) -> bool:
        """Return whether that transaction is open in that partition, and not a later one of the same producer.

        An offset of −1 means any. Raises KAFKA_STORAGE_ERROR.
        """
        first = self.first_offset(tp, topic_id, producer_id)
        return first is not None and first_offset in (-1, first)

    def first_offset(self, tp: TopicPartition, topic_id: UUID, producer_id: int) -> int | None:
        """Return where the open transaction of a producer begins in a partition; None if none is open.

        Raises KAFKA_STORAGE_ERROR.
        """
        log = self._find(tp, topic_id)
        return None if log is None else log.producers.open_since(producer_id)

    def durable(self, tp: TopicPartition, topic_id: UUID) -> asyncio.Future[None] | None:
        """Return a future for the disk, for all that a partition holds now. Raises KAFKA_STORAGE_ERROR."""
        log = self._find(tp, topic_id)
        return None if log is None else self._flusher.durable(log, log.offsets.log_end_offset)

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

        Raises KAFKA_STORAGE_ERROR, INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        log = self._find(tp, topic_id)
        if log is None:
            return -1
        done = log.append_marker(
            producer_id, epoch, marker, leader_epoch=self._leader_epochs.of(log), bumped=raised
        )
        if done is None:
            return -1
        self._purgatory.notify(tp)
        self._changes.touch(tp.topic)
        return done.base_offset

    def located(
        self, parts: Mapping[TopicPartition, Part], producer_id: int
    ) -> Mapping[TopicPartition, Part]:
        """Return the parts as they are: this broker appends all records, so it knows their offsets."""
        return parts

    def last_offset(self, tp: TopicPartition, topic_id: UUID) -> int:
        """Return the offset of the last record of a partition; −1 if it is empty or deleted.

        Raises KAFKA_STORAGE_ERROR.
        """
        log = self._find(tp, topic_id)
        return -1 if log is None else log.offsets.log_end_offset - 1

    def is_durable(self, tp: TopicPartition, topic_id: UUID, offset: int) -> bool:
        """Return whether the batch at this offset is on the disk; true as well if the partition is deleted.

        Raises KAFKA_STORAGE_ERROR.
        """
        log = self._find(tp, topic_id)
        return log is None or log.flushed_offset > offset

    def _find(self, tp: TopicPartition, topic_id: UUID) -> Log | None:
        """Return the log of a partition; None if its topic is deleted, or the topic is another of that name."""
        try:
            log = self._logs.get(tp)
        except BrokerError as error:
            if error.code in _GONE:
                return None
            raise
        return log if log.topic_id == topic_id else None


def open_in(tp: TopicPartition, log: Log) -> Iterator[OpenTransaction]:
    """Yield the transactions that are open in a log."""
    epochs = {state.producer_id: state.producer_epoch for state in log.active_producers()}
    for producer_id, first_offset in log.producers.open_transactions().items():
        yield OpenTransaction(tp, log.topic_id, producer_id, epochs[producer_id], first_offset)
