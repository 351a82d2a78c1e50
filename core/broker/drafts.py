"""Batches of a transaction that are checked before any of them is appended: all records of a request, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from core.batches.chunks import chunks_below
from core.broker.partitions import Partitions
from core.errors import BrokerError
from core.records.batch import build_batch
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.one_shot import Draft
from core.vocabulary.settlements import Fault
from core.vocabulary.topic import TopicInfo
from core.vocabulary.transactions import ProducerIdAndEpoch

ByPartition = Callable[[str, int, Sequence[NewRecord]], Mapping[int, Sequence[int]]]


def draft_topic(
    info: TopicInfo,
    records: Sequence[NewRecord],
    producer: ProducerIdAndEpoch,
    now: int,
    by_partition: ByPartition,
    partitions: Partitions,
    faults: list[Fault],
) -> list[Draft]:
    """Build and check the batches of one topic, as they would be appended now; add what is wrong to `faults`."""
    drafts = []
    for number, indexes in by_partition(info.name, info.partitions, records).items():
        tp = TopicPartition(info.name, number)
        sequence = 0
        for chunk in chunks_below(info.config.max_message_bytes, records, indexes):
            try:
                batch = build_batch(
                    records if len(chunk) == len(records) else [records[index] for index in chunk],
                    now_ms=now,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    base_sequence=sequence,
                    transactional=True,
                )
                drafts.append(Draft(tp, chunk, partitions.check(tp, batch, now), now))
            except BrokerError as error:
                faults += _faults(info.name, chunk, error)
            sequence += len(chunk)
    return drafts


def _faults(topic: str, chunk: Sequence[int], error: BrokerError) -> list[Fault]:
    """Return what is wrong with the records of a batch; all of them are to blame if no single ones are."""
    at_fault = error.details.get("record_errors")
    if isinstance(at_fault, Sequence) and at_fault:
        return [Fault((topic, chunk[position]), BrokerError(error.code, text)) for position, text in at_fault]
    return [Fault((topic, index), error) for index in chunk]
