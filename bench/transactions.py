"""Transactions over the Kafka listener: how long a commit takes, and the memory of those that are open."""

from __future__ import annotations

import statistics
import time

from bench.case import Figure, case, median_of
from bench.clients import fdatasync_us
from bench.load import NOW, PRODUCE, Connection
from bench.server import broker, resident_bytes
from core.protocol.messages.end_txn import EndTxnRequest
from core.protocol.messages.init_producer_id import InitProducerIdRequest
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from core.records.batch import build_batch
from core.records.record import NewRecord

INIT_PRODUCER_ID, END_TXN = 22, 26
# The second kind of transactions (KIP-890).
INIT_VERSION, END_VERSION, PRODUCE_VERSION = 5, 5, 12
TIMEOUT_MS = 600_000
OPEN, LATER = 1000, 4
# In MiB, of all that are open; in µs, beyond two writes to the disk.
MOST_MEMORY, MOST_BEYOND = 2.0, 1000.0
_MIB = 1024 * 1024
_VALUE = b"x" * 100


class Producer:
    """One transactional id, over a connection that it shares: each transaction has some records in each partition."""

    def __init__(self, connection: Connection, name: str, partitions: int = 2) -> None:
        self._connection = connection
        self._name = name
        self._partitions = partitions
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
        self._take(connection.call(INIT_PRODUCER_ID, INIT_VERSION, request))

    def _take(self, answer: object) -> None:
        error, self._id, self._epoch = (
            getattr(answer, name) for name in ("error_code", "producer_id", "producer_epoch")
        )
        if error:
            raise RuntimeError(f"{self._name}: error {error}")

    def write(self, records: int) -> None:
        """Write to all partitions by one request; the first one of a transaction opens it."""
        batch = build_batch(
            [NewRecord(value=_VALUE)] * records,
            now_ms=NOW,
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=0,
            transactional=True,
        )
        data = [PartitionProduceData(number, memoryview(batch)) for number in range(self._partitions)]
        topic = TopicProduceData(name="bench", partition_data=data)
        request = ProduceRequest(transactional_id=self._name, acks=-1, timeout_ms=30_000, topic_data=[topic])
        answer = self._connection.call(PRODUCE, PRODUCE_VERSION, request)
        for partition in answer.responses[0].partition_responses:
            if partition.error_code:
                raise RuntimeError(f"{self._name}: error {partition.error_code}")

    def commit(self) -> float:
        """Commit; the time in µs until the answer."""
        request = EndTxnRequest(self._name, self._id, self._epoch, True)
        start = time.perf_counter_ns()
        answer = self._connection.call(END_TXN, END_VERSION, request)
        took = (time.perf_counter_ns() - start) / 1000
        self._take(answer)
        return took


@case
def commit_transaction(repeats: int) -> list[Figure]:
    """EndTxn after 10 records in 2 partitions: p50, and what it takes beyond two fdatasyncs, turn by turn."""
    count = 200
    took, beyond = [], []
    with broker() as server:
        connection = Connection(server.kafka_address)
        connection.create_topic("bench", 2)
        producer = Producer(connection, "bench")
        for _ in range(repeats):
            commits = []
            for _ in range(count):
                producer.write(5)
                commits.append(producer.commit())
            took.append(statistics.median(commits))
            beyond.append(took[-1] - 2 * fdatasync_us(str(server.data_dir), count))
        connection.close()
    return [
        median_of("commit of a transaction, 10 records in 2 partitions, p50", took, "µs"),
        median_of("  beyond two fdatasyncs", beyond, "µs", MOST_BEYOND),
    ]


@case
def open_transactions(repeats: int) -> list[Figure]:
    """Resident memory of 1,000 open transactions, one record in each of two partitions: the first, and later ones."""
    first, later = [], []
    for _ in range(min(repeats, 3)):
        with broker() as server:
            connection = Connection(server.kafka_address)
            connection.create_topic("bench", 2)
            for number in range(100):
                producer = Producer(connection, f"first-{number}")
                producer.write(1)
                producer.commit()
            steps = [_resident(server.pid)]
            for number in range(LATER * OPEN):
                Producer(connection, f"open-{number}").write(1)
                if (number + 1) % OPEN == 0:
                    steps.append(_resident(server.pid))
            first.append(steps[1] - steps[0])
            later.append((steps[-1] - steps[1]) / (LATER - 1))
            connection.close()
    return [
        median_of("1,000 open transactions, the first", first, "MiB", MOST_MEMORY),
        median_of("  each 1,000 more", later, "MiB", MOST_MEMORY),
    ]


def _resident(pid: int) -> float:
    time.sleep(1)
    return resident_bytes(pid) / _MIB
