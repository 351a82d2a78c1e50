"""The plan of a write under an idempotency key: which batches it appends where, decided before the first append.

A plan is stored with its key. The same body and the same plan give the same batches, whenever they are built. The
plan holds the number of partitions and the sticky partition, which decide the partitions of the records; the time of
records without one; and the record count of each batch. Each batch of a partition has a producer id of its own, so
that a refused batch leaves no gap before the next, and each is the newest of its producer in its partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.idempotency.producer_pool import LentProducer
from core.records.header import HEADER, MAGIC, BatchHeader
from core.records.record import NewRecord

EPOCH = 0
# Batches that one request may write to one partition; each borrows a producer id.
MAX_BATCHES = 250


class Place(NamedTuple):
    """Where a batch is: the offset of its first record, and its append time in ms (−1 with CreateTime)."""

    base_offset: int
    append_time: int


class Part(msgspec.Struct, array_like=True, frozen=True):
    """One batch of a plan: its partition, its record count, and the numbers by which the log recognizes it."""

    partition: int
    count: int
    producer_id: int
    base_sequence: int

    @property
    def header(self) -> BatchHeader:
        """The fields of the batch header by which the log recognizes the batch; the others are 0."""
        empty = BatchHeader(*HEADER.unpack(bytes(HEADER.size)))
        return empty._replace(
            magic=MAGIC,
            last_offset_delta=self.count - 1,
            producer_id=self.producer_id,
            producer_epoch=EPOCH,
            base_sequence=self.base_sequence,
            record_count=self.count,
        )


class Plan(msgspec.Struct, array_like=True, frozen=True):
    """All batches, and the values that assign records to them. `now_ms` is the time of records without one.

    `ends` are offsets below which a batch cannot be, one for each part; −1 if none is known. Only plans for another
    cluster have them: there a batch may have to be searched.
    """

    topic_id: bytes
    partitions: int
    sticky: int
    now_ms: int
    parts: tuple[Part, ...]
    ends: tuple[int, ...] = ()


Places = list[Place | None]
_encode = msgspec.msgpack.Encoder().encode
_decode_plan = msgspec.msgpack.Decoder(Plan).decode
_decode_places = msgspec.msgpack.Decoder(list[Place | None]).decode


def encode(value: Plan | Places) -> bytes:
    """Encode a plan, or places, for the store."""
    return _encode(value)


def decode_plan(data: bytes) -> Plan:
    """Decode a stored plan."""
    return _decode_plan(data)


def decode_places(data: bytes, plan: Plan) -> Places:
    """Decode stored places, one for each part; None where the place is not known."""
    return _decode_places(data) if data else [None] * len(plan.parts)


class Draft(NamedTuple):
    """A plan without producers: the partition and the number of records of each batch. `largest` is in bytes."""

    partitions: int
    sticky: int
    now_ms: int
    cuts: list[tuple[int, int]]
    largest: int = 0

    @property
    def producers_needed(self) -> int:
        """The number of batches of the partition with the most."""
        counts: dict[int, int] = {}
        for partition, _ in self.cuts:
            counts[partition] = counts.get(partition, 0) + 1
        return max(counts.values())


def draft(broker: Logs, topic: str, records: Sequence[NewRecord], most: int | None = None) -> Draft:
    """Assign records to batches of at most `most` bytes, and as the topic allows.

    Raises RECORD_LIST_TOO_LARGE, and INVALID_RECORD as a write without a key.
    """
    info = broker.topics.get(topic)
    now, limit = broker.clock.wall_ms(), info.config.max_message_bytes
    limit, largest = min(limit, most or limit), 0
    sticky = broker.records.next_in_turn(topic, info.partitions)
    cuts: list[tuple[int, int]] = []
    for partition, indexes in broker.records.by_partition(
        topic, info.partitions, records, sticky=sticky
    ).items():
        chunks = broker.records.batches_below(limit, records, indexes, now)
        if len(chunks) > MAX_BATCHES:
            raise BrokerError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"These records are {len(chunks)} batches of one partition; with an idempotency key "
                f"{MAX_BATCHES} is the limit.",
                limit=MAX_BATCHES,
                unit="batches",
            )
        cuts += [(partition, len(chunk)) for chunk, _ in chunks]
        largest = max(largest, *(len(batch) for _, batch in chunks))
    return Draft(info.partitions, sticky, now, cuts, largest)


def make_plan(topic_id: UUID, drafted: Draft, producers: Sequence[LentProducer]) -> Plan:
    """Make the plan of a draft: the n-th batch of each partition gets the n-th producer."""
    turn: dict[int, int] = {}
    parts = []
    for partition, count in drafted.cuts:
        number = turn.get(partition, 0)
        turn[partition] = number + 1
        producer = producers[number]
        sequence = producer.sequence(topic_id, partition)
        parts.append(Part(partition, count, producer.producer_id, sequence))
    return Plan(topic_id.bytes, drafted.partitions, drafted.sticky, drafted.now_ms, tuple(parts))


def indexes_of(
    broker: Logs, topic: str, plan: Plan, records: Sequence[NewRecord]
) -> Iterator[tuple[Part, Sequence[int]]]:
    """Yield each part with the indexes of its records. The records must be those that the plan was made for."""
    groups = broker.records.by_partition(topic, plan.partitions, records, sticky=plan.sticky)
    taken: dict[int, int] = {}
    for part in plan.parts:
        start = taken.get(part.partition, 0)
        taken[part.partition] = start + part.count
        yield part, groups[part.partition][start : start + part.count]
