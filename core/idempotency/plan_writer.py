"""Carry out a plan: append its batches that no log has yet, and find those that a log has.

`Writer` is what keys need; `PlanWriter` writes to the logs of this broker.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.idempotency.plan import EPOCH, Part, Place, Places, Plan, indexes_of
from core.log.log import Log
from core.records.batch import build_batch
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.records import UNDONE, ProduceResult, refuse_batch

# Errors that may pass: the key stays bound, so that the same request can continue where it was stopped.
_PASSING = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class Run(NamedTuple):
    """The results of one run of a plan, and whether anything was appended in it.

    `settled`: a further run cannot change the results. `undurable`: records that were taken are on disk once these
    are done; the client does not wait for them. `spent` are producer ids that cannot append any more.
    """

    results: list[ProduceResult]
    appended: bool
    settled: bool
    undurable: Sequence[asyncio.Future[None]] = ()
    spent: Collection[int] = ()


class Writer(Protocol):
    """Appends the batches of plans, and finds them again."""

    async def prepare(self, topic: str, plan: Plan) -> Plan:
        """Return a plan that is about to be stored, with what finding its batches later will need."""
        ...

    async def append(
        self, topic: str, records: Sequence[NewRecord], acks: int, plan: Plan, places: Places
    ) -> Run:
        """Append the batches that have no place yet, and note their places; wait as the acks ask."""
        ...

    async def find(self, topic: str, plan: Plan, places: Places) -> None:
        """Note the places of batches that are in their logs, as far as `append` would not recognize them itself.

        Raises BrokerError if that cannot be told.
        """

    async def find_after_crash(self, plan: Plan, places: Places) -> None:
        """Note what a start can find of the batches of a write that the last run did not finish."""


class PlanWriter:
    """Writes the batches of plans to the logs."""

    def __init__(self, broker: Logs, log: Callable[[TopicPartition], Log]) -> None:
        self._broker = broker
        self._log = log

    async def prepare(self, topic: str, plan: Plan) -> Plan:
        """See `Writer`: the log itself is at hand."""
        return plan

    async def append(
        self, topic: str, records: Sequence[NewRecord], acks: int, plan: Plan, places: Places
    ) -> Run:
        """Append the batches that have no place yet, and note their places; wait as the acks ask."""
        broker = self._broker
        results: list[ProduceResult] = [UNDONE] * len(records)
        waits: list[tuple[asyncio.Future[None], int, Sequence[int]]] = []
        undurable: list[asyncio.Future[None]] = []
        appended, settled = False, True
        for number, (part, indexes) in enumerate(indexes_of(broker, topic, plan, records)):
            tp = TopicPartition(topic, part.partition)
            try:
                place = places[number]
                if place is None:
                    place = self._append_part(tp, plan, part, [records[index] for index in indexes], acks)
                    places[number] = place
                    appended = True
                waiting = broker.partitions.durable(tp, acks)
            except BrokerError as error:
                refuse_batch(results, indexes, part.partition, error)
                settled = settled and error.code not in _PASSING
                continue
            fill_results(results, part, place, plan.now_ms, records, indexes)
            if waiting is not None:
                waits.append((waiting, number, indexes))
            elif acks != -1 and (later := broker.partitions.durable(tp, -1)) is not None:
                undurable.append(later)
        for waiting, number, indexes in waits:
            try:
                await waiting
            except BrokerError as error:
                # The log may have the batch or not. Only a restart, which reads the disk, can tell.
                refuse_batch(results, indexes, plan.parts[number].partition, error)
                places[number] = None
                settled = False
        return Run(results, appended, settled, undurable)

    async def find(self, topic: str, plan: Plan, places: Places) -> None:
        """Note the places of batches that the logs have."""
        self._find(topic, plan, places)

    def _find(self, topic: str, plan: Plan, places: Places) -> set[int]:
        """Note the places of batches that the logs have; return the partitions in which any was found."""
        found = set()
        for number, part in enumerate(plan.parts):
            if places[number] is not None:
                continue
            try:
                log = self._log(TopicPartition(topic, part.partition))
                known = log.producers.check(part.header)
            except BrokerError:
                continue
            if known is not None:
                by_broker = log.config.message_timestamp_type == "LogAppendTime"
                places[number] = Place(known.base_offset, known.timestamp if by_broker else -1)
                found.add(part.partition)
        return found

    async def find_after_crash(self, plan: Plan, places: Places) -> None:
        """Note the places of batches that the logs have, once these are on disk; forget those beyond the log's end.

        If this broker does not hold a log, nothing is found, and known places stay.
        """
        try:
            topic = self._broker.topics.name_of(UUID(bytes=plan.topic_id))
        except BrokerError:
            return
        self._forget_lost(topic, plan, places)
        for partition in self._find(topic, plan, places):
            try:
                if (
                    waiting := self._broker.partitions.durable(TopicPartition(topic, partition), -1)
                ) is not None:
                    await waiting
            except BrokerError:
                for number, part in enumerate(plan.parts):
                    if part.partition == partition:
                        places[number] = None

    def _append_part(
        self, tp: TopicPartition, plan: Plan, part: Part, records: Sequence[NewRecord], acks: int
    ) -> Place:
        batch = build_batch(
            records,
            now_ms=plan.now_ms,
            producer_id=part.producer_id,
            producer_epoch=EPOCH,
            base_sequence=part.base_sequence,
        )
        done = self._broker.partitions.append(tp, memoryview(batch), acks=acks)
        return Place(done.base_offset, done.log_append_time)

    def _forget_lost(self, topic: str, plan: Plan, places: Places) -> None:
        """Forget the places of batches that a power loss has taken from the end of a log."""
        for number, part in enumerate(plan.parts):
            place = places[number]
            if place is None:
                continue
            with contextlib.suppress(BrokerError):
                end = self._log(TopicPartition(topic, part.partition)).offsets.log_end_offset
                if place.base_offset + part.count > end:
                    places[number] = None


def fill_results(
    results: list[ProduceResult],
    part: Part,
    place: Place,
    now_ms: int,
    records: Sequence[NewRecord],
    indexes: Sequence[int],
) -> None:
    """Set the results of the records of one batch from its place."""
    offset, append_time = place
    for index in indexes:
        timestamp = append_time
        if append_time < 0:
            own = records[index].timestamp
            timestamp = now_ms if own is None else own
        results[index] = ProduceResult(part.partition, offset, timestamp)
        offset += 1
