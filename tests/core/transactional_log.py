"""Transactions in a partition of a broker, written without a coordinator, and a model of what readers may see."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from core.broker.broker import Broker
from core.records.batch import build_batch
from core.records.control import EndMarker
from core.records.header import read_header
from core.records.record import NewRecord
from core.types import TopicPartition

Seen = list[tuple[int, bytes]]


class TransactionalLog:
    """One partition. Producers are numbers; 0 writes without transactions."""

    def __init__(self, broker: Broker, tp: TopicPartition, *, codec: int = 0) -> None:
        self.broker = broker
        self.tp = tp
        self.log = broker.partitions.log(tp)
        self._codec = codec
        self._written: list[tuple[int, bytes, int]] = []  # offset, value, transaction
        self._transactions: dict[int, int] = {}  # producer → its open transaction
        self._starts: dict[int, int] = {}  # open transaction → first offset
        self._aborted: set[int] = set()
        self._sequences: dict[int, int] = {}
        self._count = 0

    def write(self, producer: int, *values: str) -> int:
        """Append one batch; return its base offset."""
        sequence = self._sequences.get(producer, 0)
        batch = build_batch(
            [NewRecord(value=value.encode(), timestamp=1000) for value in values],
            now_ms=1000,
            codec=self._codec,
            producer_id=producer or -1,
            producer_epoch=0 if producer else -1,
            base_sequence=sequence if producer else -1,
            transactional=bool(producer),
        )
        epoch = self.broker.leader_epochs.of(self.log)
        base = self.log.append(batch, (read_header(batch),), leader_epoch=epoch).base_offset
        transaction = 0
        if producer:
            self._sequences[producer] = sequence + len(values)
            if producer not in self._transactions:
                self._count += 1
                self._transactions[producer] = self._count
                self._starts[self._count] = base
            transaction = self._transactions[producer]
        self._written += [(base + i, value.encode(), transaction) for i, value in enumerate(values)]
        self._notify()
        return base

    def end(self, producer: int, *, commit: bool) -> None:
        """Append the marker of a producer's transaction."""
        epoch = self.broker.leader_epochs.of(self.log)
        self.log.append_marker(producer, 0, EndMarker(commit, 0), leader_epoch=epoch)
        transaction = self._transactions.pop(producer)
        del self._starts[transaction]
        if not commit:
            self._aborted.add(transaction)
        self._notify()

    def _notify(self) -> None:
        self.broker.purgatory.notify(self.tp)
        self.broker.changes.touch(self.tp.topic)

    # --- the model -----------------------------------------------------------------------------------------

    @property
    def open(self) -> list[int]:
        """Producers that have a transaction open."""
        return list(self._transactions)

    @property
    def end_offset(self) -> int:
        """The offset after the last batch."""
        return self.log.offsets.log_end_offset

    @property
    def stable(self) -> int:
        """The first offset of an open transaction, else the end."""
        return min(self._starts.values(), default=self.end_offset)

    def seen(self, offset: int = 0, *, committed: bool = True) -> Seen:
        """What a reader must get from an offset on: offsets and values."""
        return [
            (at, value)
            for at, value, transaction in self._written
            if at >= offset and (not committed or (at < self.stable and transaction not in self._aborted))
        ]


def a_bit_of_each(log: TransactionalLog) -> None:
    """Write plain, committed, aborted, interleaved and open records; at the end nothing but hidden ones."""
    log.write(0, "plain")
    log.write(1, "c1", "c2")
    log.write(2, "a1")
    log.write(0, "between")
    log.write(1, "c3")
    log.write(2, "a2", "a3")
    log.end(2, commit=False)
    log.end(1, commit=True)
    log.write(2, "second committed")
    log.end(2, commit=True)
    log.write(1, "second aborted")
    log.end(1, commit=False)
    log.write(3, "open")
    log.write(0, "after the open one")
    log.write(4, "aborted after the open one")
    log.end(4, commit=False)


Step = tuple[str, int]
STEPS: st.SearchStrategy[Sequence[Step]] = st.lists(
    st.tuples(st.sampled_from(["write", "write", "commit", "abort"]), st.integers(0, 3)), max_size=30
)


def follow(log: TransactionalLog, steps: Sequence[Step]) -> None:
    """Carry out drawn steps; those that make no sense are left out."""
    for number, (what, producer) in enumerate(steps):
        if what == "write":
            log.write(producer, *(f"{number}.{i}" for i in range(1 + number % 3)))
        elif producer in log.open:
            log.end(producer, commit=what == "commit")
