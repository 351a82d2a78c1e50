"""What a log remembers of idempotent producers, so that a retry appends once (KIP-98).

Each producer numbers its records per partition. The log accepts a batch only if its first number follows the last
number that it has. It remembers the last five batches of each producer, because a producer may have five in flight. A
duplicate of one of them is answered with the offsets of its first append.

Snapshot files are named by the offset up to which they hold everything: `<offset>.snapshot`, Kafka's layout:

    version int16 = 1, CRC-32C uint32 of what follows, number of entries int32, then per entry 46 bytes:
    producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32,
    timestamp int64, coordinator epoch int32, offset of the open transaction's first record int64

Kafka writes one entry per producer, its newest batch. So after a restart it answers a retry of an older one with an
error. Sluice writes one entry per remembered batch, oldest first. Kafka's reader keeps the last entry of a producer,
which is the newest. Sluice's reader gets all five.
"""

from __future__ import annotations

import contextlib
import logging
from bisect import insort
from collections.abc import Container, Iterator, Sequence
from struct import Struct, error
from typing import NamedTuple

import crc32c

from core.errors import BrokerError, ErrorCode
from core.log import files
from core.log.segment import Segment
from core.records.header import BatchHeader
from core.types import ProducerState, TopicPartition

logger = logging.getLogger(__name__)

REMEMBERED_BATCHES = 5
SNAPSHOT_VERSION = 1
INT32_MAX = 2**31 - 1

_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")


class RememberedBatch(NamedTuple):
    """One batch of an idempotent producer: its last sequence number and offset, and how many before them."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        """The offset of the first record."""
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        """The sequence number of the first record."""
        return (self.last_sequence - self.offset_delta) & INT32_MAX


class _Producer:
    """One producer: its epoch, its newest batches (oldest first), and the time of its last append."""

    __slots__ = ("batches", "epoch", "seen_ms")

    def __init__(self, epoch: int, seen_ms: int) -> None:
        self.epoch = epoch
        self.seen_ms = seen_ms
        self.batches: list[RememberedBatch] = []


class ProducerStates:
    """The idempotent producers of one log.

    At most `limit` of them. Above it, the producer that has been idle longest is forgotten. Kafka also forgets a
    producer that has been idle for `producer.id.expiration.ms`.
    """

    __slots__ = ("_limit", "_producers", "changed")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # In the order of their last appends: the first has been idle longest.
        self._producers: dict[int, _Producer] = {}
        # Whether something was added since the last snapshot.
        self.changed = False

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> RememberedBatch | None:
        """Return None if the batch may be appended; the remembered batch if it is there already.

        Raises INVALID_PRODUCER_EPOCH for an epoch older than the newest seen, OUT_OF_ORDER_SEQUENCE_NUMBER for
        a gap, a duplicate that is no longer remembered, or a new epoch that does not begin at 0. An unknown producer
        may begin anywhere: its earlier records may have been deleted.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        sequence = header.base_sequence
        if header.producer_epoch == producer.epoch:
            batches = producer.batches
            if not batches or sequence == (batches[-1].last_sequence + 1) & INT32_MAX:
                return None
            last = header.last_sequence
            for batch in batches:
                if batch.last_sequence == last and batch.base_sequence == sequence:
                    return batch
            raise BrokerError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} sent the sequence numbers from {sequence} on, but "
                f"{(batches[-1].last_sequence + 1) & INT32_MAX} comes next.",
                expected_sequence=(batches[-1].last_sequence + 1) & INT32_MAX,
            )
        if header.producer_epoch < producer.epoch:
            raise BrokerError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {header.producer_id} has epoch {producer.epoch} by now; {header.producer_epoch} is over.",
                current_epoch=producer.epoch,
            )
        if sequence != 0:
            raise BrokerError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Epoch {header.producer_epoch} of producer {header.producer_id} must begin with the sequence "
                f"number 0, not {sequence}.",
                expected_sequence=0,
            )
        return None

    def update(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Remember a batch that was appended at `base_offset`, or found there."""
        if header.is_control:
            return
        producer_id = header.producer_id
        producer = self._producers.pop(producer_id, None)
        if producer is None:
            producer = _Producer(header.producer_epoch, now_ms)
            if len(self._producers) >= self._limit:
                del self._producers[next(iter(self._producers))]
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.seen_ms = now_ms
        self._producers[producer_id] = producer
        batches = producer.batches
        if len(batches) == REMEMBERED_BATCHES:
            del batches[0]
        delta = header.last_offset_delta
        batches.append(
            RememberedBatch(header.last_sequence, base_offset + delta, delta, header.max_timestamp)
        )
        self.changed = True

    def expire(self, before_ms: int) -> None:
        """Forget producers whose last append is older than that."""
        while self._producers:
            producer_id, producer = next(iter(self._producers.items()))
            if producer.seen_ms >= before_ms:
                return
            del self._producers[producer_id]
            self.changed = True

    def last_offsets(self) -> dict[int, int]:
        """Producer id → last offset of its newest batch, which compaction must not remove."""
        return {
            producer_id: producer.batches[-1].last_offset
            for producer_id, producer in self._producers.items()
            if producer.batches
        }

    def active(self) -> Iterator[ProducerState]:
        """Yield all producers, the one that has been idle longest first."""
        for producer_id, producer in self._producers.items():
            newest = producer.batches[-1] if producer.batches else None
            yield ProducerState(
                producer_id,
                producer.epoch,
                newest.last_sequence if newest else -1,
                newest.timestamp if newest else -1,
                coordinator_epoch=-1,
                current_txn_start_offset=-1,
            )

    def encode(self) -> bytes:
        """Return a snapshot file."""
        entries = [
            _ENTRY.pack(
                producer_id, producer.epoch, batch.last_sequence, batch.last_offset, batch.offset_delta,
                batch.timestamp, -1, -1,
            )
            for producer_id, producer in self._producers.items()
            for batch in producer.batches
        ]  # fmt: skip
        body = b"".join([_COUNT.pack(len(entries)), *entries])
        return _HEAD.pack(SNAPSHOT_VERSION, crc32c.crc32c(body)) + body

    def decode(self, data: bytes, now_ms: int) -> bool:
        """Take the state that a snapshot file holds. False, and nothing changed, if it is torn or not one.

        Idle times begin now: the file does not have the time for which the broker was stopped.
        """
        try:
            version, crc = _HEAD.unpack_from(data)
            (count,) = _COUNT.unpack_from(data, _HEAD.size)
        except error:
            return False
        start = _HEAD.size + _COUNT.size
        if version != SNAPSHOT_VERSION or len(data) != start + count * _ENTRY.size:
            return False
        if crc32c.crc32c(memoryview(data)[_HEAD.size :]) != crc:
            return False
        producers: dict[int, _Producer] = {}
        for producer_id, epoch, sequence, offset, delta, timestamp, _, _ in _ENTRY.iter_unpack(data[start:]):
            producer = producers.get(producer_id)
            if producer is None or producer.epoch != epoch:
                producer = producers[producer_id] = _Producer(epoch, now_ms)
            if sequence >= 0:
                producer.batches.append(RememberedBatch(sequence, offset, delta, timestamp))
                del producer.batches[:-REMEMBERED_BATCHES]
        self._producers = producers
        self.changed = False
        return True

    def clear(self) -> None:
        """Forget everything."""
        self._producers = {}
        self.changed = False


class Snapshots:
    """The snapshot files of one log, by the offset up to which each holds everything."""

    __slots__ = ("_directory", "_offsets")

    def __init__(self, directory: str, offsets: list[int]) -> None:
        self._directory = directory
        self._offsets = sorted(offsets)

    @property
    def offsets(self) -> list[int]:
        """The offsets of the files that there are, rising."""
        return list(self._offsets)

    def path(self, offset: int) -> str:
        """Return the file that holds everything below `offset`."""
        return f"{self._directory}/{offset:020d}.snapshot"

    def take(self, offset: int, data: bytes) -> None:
        """Write a snapshot. An error of the disk is ignored, because the log holds the same data."""
        try:
            files.write_whole(self.path(offset), data, durable=False)
        except OSError:
            return
        if offset not in self._offsets:
            insort(self._offsets, offset)

    def read(self, offset: int) -> bytes:
        """Return the contents of a snapshot file; empty if it cannot be read."""
        try:
            return files.read_whole(self.path(offset)) or b""
        except OSError:
            return b""

    def prune(self, keep: Container[int]) -> None:
        """Remove all but the newest two and those at the offsets in `keep`, the starts of segments."""
        for offset in self._offsets[:-2]:
            if offset not in keep:
                self.remove(offset)

    def truncate_to(self, offset: int) -> None:
        """Remove the snapshots that hold more than what lies below `offset`."""
        for snapshot in [snapshot for snapshot in self._offsets if snapshot > offset]:
            self.remove(snapshot)

    def remove(self, offset: int) -> None:
        """Try to remove one snapshot file."""
        with contextlib.suppress(OSError):
            files.remove_if_present(self.path(offset))
            self._offsets = [known for known in self._offsets if known != offset]


def replay_producers(
    tp: TopicPartition,
    segments: Sequence[Segment],
    snapshots: Snapshots,
    end: int,
    *,
    limit: int,
    now_ms: int,
) -> ProducerStates:
    """Return the producers of the newest snapshot that can be read, and of the batches after it, up to `end`.

    `limit` bounds how many are remembered; `now_ms` is monotonic. Removes torn snapshots.
    """
    producers = ProducerStates(limit)
    after = 0
    for offset in reversed(snapshots.offsets):
        if producers.decode(snapshots.read(offset), now_ms):
            after = offset
            break
        logger.warning("%s: the producer snapshot at %d is torn", tp, offset)
        snapshots.remove(offset)
    if after >= end:
        return producers
    for i, segment in enumerate(segments):
        if segment.size == 0 or (i + 1 < len(segments) and segments[i + 1].base_offset <= after):
            continue
        with contextlib.suppress(BrokerError):
            for _, header in segment.walk(segment.locate(after) if after > segment.base_offset else 0):
                if header.producer_id >= 0:
                    producers.update(header, header.base_offset, now_ms)
    return producers
