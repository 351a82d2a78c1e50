"""Produce, as no library would say it: bad bytes, retries on purpose, sequences out of order, old formats."""

from __future__ import annotations

import struct
import time
import uuid

import pytest
from aiokafka.record import MemoryRecords
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from core.errors import ErrorCode
from core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker_process import BrokerProcess
from tests.clients.wire import FETCH, METADATA, NOW, PRODUCE, Wire, batch, fetch_request, produce_request


@pytest.fixture
def topic(wire: Wire) -> str:
    """A topic of this test's own, with one partition."""
    name = f"topic-{uuid.uuid4().hex}"
    wire.create_topic(name)
    return name


def test_offsets_are_dense_over_batches_of_any_size(wire: Wire, topic: str) -> None:
    sizes = [1, 5, 1, 100, 3]
    starts = [wire.produce(topic, batch([b"x"] * size)).base_offset for size in sizes]
    assert starts == [0, 1, 6, 7, 107]
    assert [message.offset for message in wire.read_all(topic)] == list(range(110))


def test_batches_come_back_as_they_were_sent_but_for_their_offset(wire: Wire, topic: str) -> None:
    sent = batch([b"a", None, b""], key=b"k")
    wire.produce(topic, batch())
    wire.produce(topic, sent)
    found = wire.fetch(topic, 1)
    # Base offset and leader epoch stand in front of the CRC and are the broker's to set.
    assert struct.unpack_from(">q", found)[0] == 1
    assert found[8:12] == sent[8:12]
    assert found[16:] == sent[16:]


@pytest.mark.parametrize(
    ("name", "partition"), [("no-such-topic", 0), (None, 1), (None, -1), ("bad name", 0)]
)
def test_an_unknown_topic_or_partition_is_refused(
    wire: Wire, topic: str, name: str | None, partition: int
) -> None:
    code = wire.produce(name or topic, batch(), partition=partition).error_code
    assert code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_unknown_acks_are_refused(wire: Wire, topic: str, acks: int) -> None:
    assert wire.produce(topic, batch(), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert wire.read_all(topic) == []


@pytest.mark.parametrize("at", [17, 21, 25, 30, 40, 57, 62, 67])
def test_a_batch_with_a_flipped_bit_is_corrupt(wire: Wire, topic: str, at: int) -> None:
    damaged = bytearray(batch([b"good data"]))
    damaged[at] ^= 1
    assert wire.produce(topic, bytes(damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert wire.read_all(topic) == []
    assert wire.produce(topic, batch()).base_offset == 0


@pytest.mark.parametrize("records", [b"", b"\0" * 10, b"\0" * 61, batch()[:-1], batch() + b"\0"])
def test_records_that_are_no_whole_batches_are_refused(wire: Wire, topic: str, records: bytes) -> None:
    code = wire.produce(topic, records).error_code
    assert code in (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    )
    assert wire.read_all(topic) == []


def test_a_batch_above_the_limit_of_the_topic_is_too_large(wire: Wire) -> None:
    wire.create_topic("small-messages", max_message_bytes="1000")
    assert wire.produce("small-messages", batch([b"x" * 1000])).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert wire.produce("small-messages", batch([b"x" * 900])).error_code == 0


def test_one_bad_partition_does_not_spoil_the_others(wire: Wire) -> None:
    wire.create_topic("two", partitions=2)
    damaged = bytearray(batch())
    damaged[-1] ^= 1
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="two",
                partition_data=[
                    PartitionProduceData(0, memoryview(batch())),
                    PartitionProduceData(1, memoryview(damaged)),
                ],
            )
        ],
    )
    answers = wire.call(PRODUCE, request).responses[0].partition_responses
    assert {answer.index: answer.error_code for answer in answers} == {0: 0, 1: ErrorCode.CORRUPT_MESSAGE}


def test_a_record_without_a_key_on_a_compacted_topic_is_named(wire: Wire) -> None:
    wire.create_topic("compacted", cleanup_policy="compact")
    answer = wire.produce("compacted", batch([b"a", b"b"]))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [0, 1]
    assert wire.produce("compacted", batch([b"a"], key=b"k")).error_code == 0


def test_a_timestamp_too_far_ahead_is_refused(wire: Wire, topic: str) -> None:
    ahead = batch(now_ms=int(time.time() * 1000) + 7_200_000)
    assert wire.produce(topic, ahead).error_code == ErrorCode.INVALID_TIMESTAMP


def test_with_log_append_time_the_broker_sets_the_timestamp(wire: Wire) -> None:
    wire.create_topic("stamped", message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    answer = wire.produce("stamped", batch([b"a", b"b"], now_ms=NOW))
    assert before - 1000 <= answer.log_append_time_ms <= int(time.time() * 1000) + 1000
    assert {message.timestamp for message in wire.read_all("stamped")} == {answer.log_append_time_ms}


# --- idempotent producers ----------------------------------------------------------------------------------


class Idempotent:
    """A producer that counts its sequence numbers and can be told to get them wrong."""

    def __init__(self, wire: Wire, topic: str) -> None:
        self.wire, self.topic = wire, topic
        self.id, self.epoch = wire.producer_id()

    def send(self, sequence: int, count: int = 1, epoch: int | None = None) -> tuple[int, int]:
        """Error code and base offset of a batch that begins with `sequence`."""
        records = batch(
            [b"%d" % (sequence + i) for i in range(count)],
            producer_id=self.id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
        )
        answer = self.wire.produce(self.topic, records)
        return answer.error_code, answer.base_offset


@pytest.fixture
def producer(wire: Wire, topic: str) -> Idempotent:
    """An idempotent producer on this test's topic."""
    return Idempotent(wire, topic)


def test_producer_ids_are_never_given_again(wire: Wire) -> None:
    ids = [wire.producer_id()[0] for _ in range(100)]
    assert len(set(ids)) == 100


def test_a_retry_is_answered_with_the_first_offset_and_appended_once(producer: Idempotent) -> None:
    assert producer.send(0, 3) == (0, 0)
    assert producer.send(3, 2) == (0, 3)
    assert producer.send(0, 3) == (0, 0)
    assert producer.send(3, 2) == (0, 3)
    assert len(producer.wire.read_all(producer.topic)) == 5


def test_the_last_five_batches_are_remembered(producer: Idempotent) -> None:
    for sequence in range(7):
        assert producer.send(sequence) == (0, sequence)
    for sequence in range(2, 7):
        assert producer.send(sequence) == (0, sequence)
    assert producer.send(0)[0] in (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    )
    assert len(producer.wire.read_all(producer.topic)) == 7


def test_a_gap_in_the_sequence_is_out_of_order(producer: Idempotent) -> None:
    assert producer.send(0) == (0, 0)
    assert producer.send(2)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(1) == (0, 1)


def test_a_new_epoch_begins_at_sequence_0_and_fences_the_old_one(producer: Idempotent) -> None:
    assert producer.send(0) == (0, 0)
    assert producer.send(1, epoch=producer.epoch + 1)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(0, epoch=producer.epoch + 1) == (0, 1)
    assert producer.send(1)[0] == ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_survive_a_kill(broker: BrokerProcess) -> None:
    with Wire(broker.kafka_address) as wire:
        wire.create_topic("killed")
        producer = Idempotent(wire, "killed")
        assert [producer.send(sequence) for sequence in range(3)] == [(0, 0), (0, 1), (0, 2)]
    broker.kill()
    broker.start()
    with Wire(broker.kafka_address) as wire:
        producer.wire = wire
        assert producer.send(2) == (0, 2)
        assert producer.send(3) == (0, 3)
        assert producer.send(5)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert wire.producer_id()[0] != producer.id


# --- every version -----------------------------------------------------------------------------------------

MAGIC = {0: 0, 1: 0, 2: 1}


def _message_set_0(magic: int) -> bytes:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=10_000)
    for i in range(3):
        builder.append(i, timestamp=NOW + i, key=b"k%d" % i, value=b"v%d" % i)
    return bytes(builder.build())


def _topic_id(wire: Wire, topic: str) -> object:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    return wire.call(METADATA, asked).topics[0].topic_id


@pytest.mark.parametrize("version", range(14))
def test_every_produce_version_writes_what_every_fetch_version_reads(
    wire: Wire, topic: str, version: int
) -> None:
    magic = MAGIC.get(version, 2)
    records = _message_set_0(magic) if magic < 2 else batch([b"v0", b"v1", b"v2"], key=b"k")
    request = produce_request(topic, records)
    topic_id = _topic_id(wire, topic)
    if version >= 13:
        request.topic_data[0].topic_id = topic_id  # type: ignore[assignment]
    answer = wire.call(PRODUCE, request, version).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (0, 0)
    for fetch_version in range(19):
        asked = fetch_request([(topic, 0, 0)])
        asked.topics[0].topic_id = topic_id  # type: ignore[assignment]
        found = wire.call(FETCH, asked, fetch_version).responses[0].partitions[0]
        data = bytes(found.records)
        # The magic byte is at the same place in all formats.
        assert data[16] == (0 if fetch_version < 2 else 1 if fetch_version < 4 else 2), fetch_version
        assert _values(data) == [(0, b"v0"), (1, b"v1"), (2, b"v2")], fetch_version


def _values(data: bytes) -> list[tuple[int, bytes]]:
    records = MemoryRecords(data)
    found = []
    while (one := records.next_batch()) is not None:
        found += [(record.offset, bytes(record.value)) for record in one]
    return found
