"""An idempotent producer: batches in order, several on their way, none of them stored twice by the broker.

Each batch carries producer id, epoch and sequence. After a lost connection it is not known which of the batches under
way were stored. So all of them are sent again, in order and unchanged. The broker answers duplicates with their first
offsets (KIP-98). That holds for the life of one producer. A task that Spark starts again has a new producer, and may
write again what the first one wrote: see `pipeline.sink.marks`. In a transaction that was begun before, the batches
are a part of it, and Produce says so from the first one on (KIP-890).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import BrokerError, ErrorCode
from core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from core.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from core.records.batch import build_batch
from core.records.record import NewRecord
from pipeline import limits
from pipeline.wire.cluster import Cluster, TopicPartition, UnknownTopicError, may_pass
from pipeline.wire.connection import Connection
from pipeline.wire.errors import KafkaError, WireError, error_code
from pipeline.wire.transactions import INIT_PRODUCER_ID, Transaction

PRODUCE = 0
ALL_REPLICAS = -1
# Sequence numbers begin at 0 again after 2³¹ − 1.
_SEQUENCES = 2**31


@dataclass
class _Batch:
    """A batch that was not acknowledged yet, and the connection that owes its answer."""

    topic: str
    partition: int
    data: bytes
    connection: Connection | None = None


class Producer:
    """Writes batches of records to partitions of a cluster. Not for several threads."""

    def __init__(self, cluster: Cluster, *, codec: int = 0, transaction: Transaction | None = None) -> None:
        self._cluster = cluster
        self._codec = codec
        self._transaction = transaction
        self._unanswered: deque[_Batch] = deque()
        self._sequences: dict[TopicPartition, int] = {}
        if transaction is None:
            answer = cluster.patiently(self._ask_id)
            self._id, self._epoch = answer.producer_id, answer.producer_epoch
        else:
            self._id, self._epoch = transaction.producer_id, transaction.producer_epoch

    def _ask_id(self) -> InitProducerIdResponse:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        answer = self._cluster.any_broker().request(INIT_PRODUCER_ID, request, InitProducerIdResponse)
        if answer.error_code:
            raise KafkaError(answer.error_code, "InitProducerId")
        return answer

    def send(self, topic: str, partition: int, records: Sequence[NewRecord], *, now_ms: int) -> None:
        """Send one batch, and wait for older answers if `limits.PRODUCE_IN_FLIGHT` batches are under way.

        Raises KafkaError for what the broker refuses, naming the partition; WireError when it stays away.
        """
        sequence = self._sequences.get((topic, partition), 0)
        try:
            data = build_batch(
                records,
                now_ms=now_ms,
                codec=self._codec,
                producer_id=self._id,
                producer_epoch=self._epoch,
                base_sequence=sequence,
                transactional=self._transaction is not None,
            )
        except BrokerError as error:
            raise WireError(f"records for topic {topic}, partition {partition}: {error}") from None
        self._sequences[topic, partition] = (sequence + len(records)) % _SEQUENCES
        self._settle(limits.PRODUCE_IN_FLIGHT - 1)
        batch = _Batch(topic, partition, bytes(data))
        self._unanswered.append(batch)
        try:
            self._submit(batch)
        except WireError as error:
            self._again(error)

    def flush(self) -> None:
        """Wait until every batch is acknowledged. Raises as `send` does."""
        self._settle(0)

    def _settle(self, left: int) -> None:
        """Take answers, oldest first, until at most `left` batches wait for theirs."""
        while len(self._unanswered) > left:
            try:
                self._take(self._unanswered[0])
            except WireError as error:
                self._again(error)
            else:
                self._unanswered.popleft()

    def _again(self, error: WireError) -> None:
        """Send all that is unanswered again, one by one, patiently; what cannot pass is raised."""
        if not may_pass(error):
            raise error
        self._cluster.forget()
        while self._unanswered:
            batch = self._unanswered[0]

            def once(batch: _Batch = batch) -> None:
                self._submit(batch)
                self._take(batch)

            self._cluster.patiently(once)
            self._unanswered.popleft()

    def _submit(self, batch: _Batch) -> None:
        batch.connection = None
        connection = self._cluster.leader(batch.topic, batch.partition)
        data = PartitionProduceData(index=batch.partition, records=memoryview(batch.data))
        topic = TopicProduceData(name=batch.topic, partition_data=[data])
        request = ProduceRequest(
            transactional_id=None if self._transaction is None else self._transaction.transactional_id,
            acks=ALL_REPLICAS,
            timeout_ms=int(limits.REQUEST_TIMEOUT_S * 1000),
            topic_data=[topic],
        )
        connection.send(PRODUCE, request)
        batch.connection = connection

    def _take(self, batch: _Batch) -> None:
        assert batch.connection is not None
        answer = batch.connection.receive(ProduceResponse)
        where = f"topic {batch.topic}, partition {batch.partition}"
        _check(_partition(answer, batch, where), where)


def _partition(answer: ProduceResponse, batch: _Batch, where: str) -> PartitionProduceResponse:
    for topic in answer.responses:
        for partition in topic.partition_responses:
            if topic.name == batch.topic and partition.index == batch.partition:
                return partition
    raise WireError(f"the answer to a Produce does not name {where}")


def _check(answer: PartitionProduceResponse, where: str) -> None:
    code = error_code(answer.error_code)
    if answer.error_code == 0 or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        return
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopicError(f"the broker does not know {where}")
    reasons = [f"record {one.batch_index}: {one.batch_index_error_message}" for one in answer.record_errors]
    raise KafkaError(answer.error_code, where, "; ".join(filter(None, [answer.error_message, *reasons[:3]])))
