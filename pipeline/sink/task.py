"""What one task writes: rows into batches, one for each partition, sent when they are full."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pyarrow as pa

from core.records.partitioner import partition_for_key
from core.records.record import NewRecord
from pipeline import limits
from pipeline.sink.marks import HEADER, Writer
from pipeline.sink.options import WriteOptions
from pipeline.sink.pace import Pace
from pipeline.sink.rows import Row, rows
from pipeline.source.options import OptionError
from pipeline.wire.cluster import Cluster, TopicPartition
from pipeline.wire.producer import Producer
from pipeline.wire.transactions import Transaction

# What a record takes beside its key, value and headers.
_RECORD_OVERHEAD = 24


class TaskWriter:
    """Sends the rows of one task, if wanted in a transaction. `close` waits until all are acknowledged."""

    def __init__(
        self,
        cluster: Cluster,
        options: WriteOptions,
        writer: Writer,
        transaction: Transaction | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._writer = writer
        self._producer = Producer(cluster, codec=options.codec, transaction=transaction)
        self._pace = None if options.rate is None else Pace(options.rate)
        self._partitions: dict[str, int] = {}
        # Records without a key go to one partition until its batch is full, then to the next.
        self._turns: dict[str, int] = {}
        self._full: dict[TopicPartition, list[NewRecord]] = {}
        self._sizes: dict[TopicPartition, int] = {}
        self._waiting = 0
        self.written: dict[TopicPartition, int] = {}
        self._sequence = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take all rows. Raises OptionError for a row that can go nowhere, and what `Producer.send` raises."""
        for batch in batches:
            for row in rows(batch):
                if self._pace is not None:
                    self._pace.keep(self._send_all)
                self._add(row)

    def _add(self, row: Row) -> None:
        topic = self._options.topic or row.topic
        if topic is None:
            raise OptionError("a row has null in column 'topic', and there is no option 'topic'")
        record = row.record
        if self._options.marks:
            record.headers = (*record.headers, (HEADER, self._writer.mark(self._sequence)))
        self._sequence += 1
        tp = (topic, self._choose(topic, row))
        size = _size(record)
        if self._sizes.get(tp, 0) + size > limits.PRODUCE_BATCH_BYTES:
            self._send(tp)
        self._full.setdefault(tp, []).append(record)
        self._sizes[tp] = self._sizes.get(tp, 0) + size
        self._waiting += size
        if self._waiting > limits.PRODUCE_BUFFER_BYTES:
            self._send(max(self._sizes, key=self._sizes.__getitem__))

    def _choose(self, topic: str, row: Row) -> int:
        count = self._partitions.get(topic)
        if count is None:
            count = self._partitions[topic] = len(self._cluster.topics((topic,))[topic])
        if row.partition is not None:
            if not 0 <= row.partition < count:
                raise OptionError(f"topic {topic} has {count} partitions; a row asks for {row.partition}")
            return row.partition
        if row.record.key is not None:
            return partition_for_key(row.record.key, count)
        return self._turns.setdefault(topic, self._writer.task) % count

    def _send(self, tp: TopicPartition) -> None:
        records = self._full.pop(tp, None)
        self._waiting -= self._sizes.pop(tp, 0)
        if not records:
            return
        topic, partition = tp
        self._producer.send(topic, partition, records, now_ms=time.time_ns() // 1_000_000)
        self.written[tp] = self.written.get(tp, 0) + len(records)
        turn = self._turns.get(topic)
        if turn is not None and turn % self._partitions[topic] == partition:
            self._turns[topic] = turn + 1

    def close(self) -> dict[TopicPartition, int]:
        """Send what is left and wait for every acknowledgement; answers the records of each partition."""
        self._send_all()
        return self.written

    def _send_all(self) -> None:
        """Send what waits, and wait for every acknowledgement."""
        for tp in list(self._full):
            self._send(tp)
        self._producer.flush()


def _size(record: NewRecord) -> int:
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"") + 4
    return size
