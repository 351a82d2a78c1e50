"""What a log remembers of idempotent producers, so that a retry appends once, and of their transactions (KIP-98).

Each producer numbers its records per partition. The log accepts a batch only if its first number follows the last
number that it has. It remembers the last five batches of each producer, because a producer may have five in flight. A
duplicate of one of them is answered with the offsets of its first append.

Snapshot files are named by the offset up to which they hold everything: `<offset>.snapshot`, Kafka's layout:

    version int16 = 1, CRC-32C uint32 of what follows, number of entries int32, then per entry 46 bytes:
    producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32,
    timestamp int64, coordinator epoch int32, offset of the open transaction's first record int64

Kafka writes one entry per producer, its newest batch. So after a restart it answers a retry of an older one with an
error. Sluice writes one entry per remembered batch, oldest first. Kafka's reader keeps the last entry of a producer,
which is the newest. Sluice's reader gets all five. A producer of which a marker alone is remembered has one entry,
with the sequence −1, because its epoch must not be forgotten.

A transaction is open in a log from the first transactional batch of a producer until its marker. Nothing from the
first record of the oldest one on is stable: the last stable offset is there.
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
from core.log.aborted import AbortedTransactions
from core.log.segment import Segment
from core.records.control import read_marker
from core.records.header import BatchHeader
from core.types import AbortedTransaction, ProducerState, TopicPartition

logger = logging.getLogger(__name__)

REMEMBERED_BATCHES = 5
SNAPSHOT_VERSION = 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

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


class EndedTransaction(NamedTuple):
    """A transaction that a marker has ended in one log; offsets of its first record and of the marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class _Producer:
    """One producer: its epoch, its newest batches (oldest first), the time of its last append, its transaction."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "marked_ms", "seen_ms", "txn_start")

    def __init__(self, epoch: int, seen_ms: int) -> None:
        self.epoch = epoch
        self.seen_ms = seen_ms
        # A tuple, because there is one for each open transaction in a log, and a list takes twice as much.
        self.batches: tuple[RememberedBatch, ...] = ()
        # The newest marker's: the epoch of its coordinator, and its time. −1 before the first one.
        self.coordinator_epoch = -1
        self.marked_ms = -1
        # The offset of the first record of the open transaction; −1 if none is open.
        self.txn_start = -1


class ProducerStates:
    """The idempotent producers of one log.

    At most `limit` of them. Above it, the producer that has been idle longest is forgotten. Kafka also forgets a
    producer that has been idle for `producer.id.expiration.ms`. A producer with an open transaction is not forgotten.
    """

    __slots__ = ("_limit", "_open", "_producers", "changed")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # In the order of their last appends: the first has been idle longest.
        self._producers: dict[int, _Producer] = {}
        # Producer id → first offset of its open transaction; the oldest transaction is the first.
        self._open: dict[int, int] = {}
        # Whether something was added since the last snapshot.
        self.changed = False

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def first_unstable(self) -> int | None:
        """The offset of the first record of the oldest open transaction; None if none is open."""
        for offset in self._open.values():
            return offset
        return None

    def open_transactions(self) -> dict[int, int]:
        """Return producer id → offset of the first record of its open transaction, the oldest first."""
        return dict(self._open)

    def open_since(self, producer_id: int) -> int | None:
        """Return the offset of the first record of a producer's open transaction; None if none is open."""
        return self._open.get(producer_id)

    def knows(self, producer_id: int) -> bool:
        """Return whether a batch or a marker of this producer is remembered."""
        return producer_id in self._producers

    def check(self, header: BatchHeader) -> RememberedBatch | None:
        """Return None if the batch may be appended; the remembered batch if it is there already.

        Raises INVALID_TXN_STATE for a batch outside of a transaction while the producer has one open,
        INVALID_PRODUCER_EPOCH for an epoch older than the newest seen, OUT_OF_ORDER_SEQUENCE_NUMBER for
        a gap, a duplicate that is no longer remembered, or a new epoch that does not begin at 0. An unknown producer
        may begin anywhere: its earlier records may have been deleted.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        sequence = header.base_sequence
        if header.producer_epoch == producer.epoch:
            if producer.txn_start >= 0 and not header.is_transactional:
                raise BrokerError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"Producer {header.producer_id} has a transaction open; this batch belongs to none.",
                )
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
        """Remember a batch of records that was appended at `base_offset`, or found there."""
        producer = self._seen(header.producer_id, header.producer_epoch, now_ms)
        delta = header.last_offset_delta
        # The same object for a single record: a number takes 32 bytes.
        last = base_offset + delta if delta else base_offset
        batch = RememberedBatch(header.last_sequence, last, delta, header.max_timestamp)
        producer.batches = (*producer.batches[1 - REMEMBERED_BATCHES :], batch)
        if header.is_transactional and producer.txn_start < 0:
            producer.txn_start = self._open[header.producer_id] = base_offset

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, *, bumped: bool) -> bool:
        """Return whether a marker must be appended; False if it is there already.

        `bumped` says that the marker carries the epoch of the next transaction (KIP-890). Raises
        TRANSACTION_COORDINATOR_FENCED for an older coordinator than the newest marker's, INVALID_PRODUCER_EPOCH for
        an epoch that is over.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return True
        if coordinator_epoch < producer.coordinator_epoch:
            raise BrokerError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"The coordinator epoch {coordinator_epoch} is over; now it is {producer.coordinator_epoch}.",
                current_epoch=producer.coordinator_epoch,
            )
        if bumped and epoch == producer.epoch and producer.txn_start < 0:
            return False
        if epoch < producer.epoch or (bumped and epoch == producer.epoch):
            raise BrokerError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {producer_id} has epoch {producer.epoch} by now; a marker has {epoch}.",
                current_epoch=producer.epoch,
            )
        return True

    def end(
        self, header: BatchHeader, coordinator_epoch: int, base_offset: int, now_ms: int
    ) -> EndedTransaction | None:
        """Take a marker that was appended at `base_offset`, or found there. Return the transaction that it ends.

        None if no transaction of this producer is open in the log.
        """
        producer = self._seen(header.producer_id, header.producer_epoch, now_ms)
        producer.coordinator_epoch, producer.marked_ms = coordinator_epoch, header.max_timestamp
        first, producer.txn_start = producer.txn_start, -1
        if first < 0:
            return None
        self._open.pop(header.producer_id, None)
        return EndedTransaction(header.producer_id, first, base_offset)

    def _seen(self, producer_id: int, epoch: int, now_ms: int) -> _Producer:
        """Return the producer of a batch that comes now, as the last of all. A new epoch begins without batches."""
        producer = self._producers.pop(producer_id, None)
        if producer is None:
            producer = _Producer(epoch, now_ms)
            if len(self._producers) >= self._limit:
                self._forget_idle()
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches = ()
        producer.seen_ms = now_ms
        self._producers[producer_id] = producer
        self.changed = True
        return producer

    def _forget_idle(self) -> None:
        """Forget the producer that has been idle longest and has no transaction open."""
        idle = next((known for known, producer in self._producers.items() if producer.txn_start < 0), None)
        if idle is not None:
            del self._producers[idle]

    def expire(self, before_ms: int) -> None:
        """Forget producers whose last append is older than that."""
        idle: list[int] = []
        for producer_id, producer in self._producers.items():
            if producer.seen_ms >= before_ms:
                break
            if producer.txn_start < 0:
                idle.append(producer_id)
        for producer_id in idle:
            del self._producers[producer_id]
            self.changed = True

    def last_offsets(self) -> dict[int, int]:
        """Producer id → last offset of its newest batch, which compaction must not remove."""
        return {
            producer_id: producer.batches[-1].last_offset
            for producer_id, producer in self._producers.items()
            if producer.batches
        }

    def marked_epochs(self) -> dict[int, int]:
        """Producer id → epoch, of the producers of which a marker alone is remembered."""
        return {
            producer_id: producer.epoch
            for producer_id, producer in self._producers.items()
            if not producer.batches
        }

    def active(self) -> Iterator[ProducerState]:
        """Yield all producers, the one that has been idle longest first."""
        for producer_id, producer in self._producers.items():
            newest = producer.batches[-1] if producer.batches else None
            yield ProducerState(
                producer_id,
                producer.epoch,
                newest.last_sequence if newest else -1,
                newest.timestamp if newest else producer.marked_ms,
                producer.coordinator_epoch,
                producer.txn_start,
            )

    def encode(self) -> bytes:
        """Return a snapshot file."""
        entries = [
            _ENTRY.pack(
                producer_id, producer.epoch, batch.last_sequence, batch.last_offset, batch.offset_delta,
                batch.timestamp, producer.coordinator_epoch, producer.txn_start,
            )
            for producer_id, producer in self._producers.items()
            for batch in producer.batches or (RememberedBatch(-1, -1, 0, producer.marked_ms),)
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
        for entry in _ENTRY.iter_unpack(data[start:]):
            producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_start = entry
            producer = producers.get(producer_id)
            if producer is None or producer.epoch != epoch:
                producer = producers[producer_id] = _Producer(epoch, now_ms)
            producer.coordinator_epoch, producer.txn_start = coordinator_epoch, txn_start
            if sequence >= 0:
                batch = RememberedBatch(sequence, offset, delta, timestamp)
                producer.batches = (*producer.batches[1 - REMEMBERED_BATCHES :], batch)
            else:
                producer.marked_ms = timestamp
        self._producers = producers
        started = [(known.txn_start, producer_id) for producer_id, known in producers.items()]
        self._open = {producer_id: first for first, producer_id in sorted(started) if first >= 0}
        self.changed = False
        return True

    def clear(self) -> None:
        """Forget everything."""
        self._producers = {}
        self._open = {}
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

    @property
    def newest(self) -> int:
        """The largest of them; 0 without files."""
        return self._offsets[-1] if self._offsets else 0

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
    aborted: AbortedTransactions | None = None,
    aborted_from: int = INT64_MAX,
) -> ProducerStates:
    """Return the producers of the newest snapshot that can be read, and of the batches after it, up to `end`.

    `limit` bounds how many are remembered; `now_ms` is monotonic. Aborted transactions whose marker is at
    `aborted_from` or after it are added to `aborted`. Removes torn snapshots.
    """
    producers = ProducerStates(limit)
    after = 0
    if segments:
        # The snapshot at the first segment has what no batch tells any more: what began before it and is still open.
        aborted_from = max(aborted_from, segments[0].base_offset)
    for offset in reversed(snapshots.offsets):
        if offset > aborted_from:
            continue
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
        found: list[AbortedTransaction] = []
        with contextlib.suppress(BrokerError):
            for position, header in segment.walk(segment.locate(after) if after > segment.base_offset else 0):
                if header.is_control:
                    ended = _replay_marker(segment, position, header, producers, now_ms)
                    if ended is not None and ended.last_offset >= aborted_from:
                        found.append(aborted_entry(ended, producers))
                elif header.producer_id >= 0:
                    producers.update(header, header.base_offset, now_ms)
        if found and aborted is not None:
            aborted.add(segment.base_offset, *found)
    return producers


def aborted_entry(ended: EndedTransaction, producers: ProducerStates) -> AbortedTransaction:
    """Return the index entry of a transaction that its marker has aborted just now."""
    first = producers.first_unstable
    stable = ended.last_offset + 1 if first is None else first
    return AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, stable)


def _replay_marker(
    segment: Segment, position: int, header: BatchHeader, producers: ProducerStates, now_ms: int
) -> EndedTransaction | None:
    """Take the marker of a control batch. Return the transaction that it aborts, if there is one."""
    marker = read_marker(segment.read_batch(position, header), header)
    if marker is None:
        return None
    ended = producers.end(header, marker.coordinator_epoch, header.base_offset, now_ms)
    return None if marker.commit else ended
