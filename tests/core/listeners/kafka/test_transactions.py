"""The APIs of transactions in every version: refusals as Kafka has them, and what administrators see."""

from __future__ import annotations

from typing import Any

import pytest

from core.broker.broker import Broker
from core.errors import ErrorCode
from core.listeners.connection import RefusedError
from core.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from core.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from core.protocol.messages.api_versions import ApiVersionsRequest
from core.protocol.messages.describe_transactions import DescribeTransactionsRequest
from core.protocol.messages.end_txn import EndTxnRequest
from core.protocol.messages.init_producer_id import InitProducerIdRequest
from core.protocol.messages.list_transactions import ListTransactionsRequest
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from core.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from core.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from core.records.batch import build_batch
from core.records.record import NewRecord
from tests.core.listeners.kafka.conftest import Client

PRODUCE, INIT, ADD, ADD_OFFSETS, END, MARKERS, DESCRIBE, LIST = 0, 22, 24, 25, 26, 27, 65, 66
MAPPING, FENCED = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED
OLD_FENCED, WRONG_STATE = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE


async def init(client: Client, name: str = "x", version: int = 5, **named: Any) -> tuple[int, int]:
    request = InitProducerIdRequest(name, 60_000, **named)
    answer = await client.ask(INIT, version, request)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


async def write(
    client: Client, producer: tuple[int, int], version: int, *, name: str | None = "x", **changes: Any
) -> int:
    options = {"acks": -1, "topic": "t", "sequence": 0, "transactional": True} | changes
    data = build_batch(
        [NewRecord(value=b"v")],
        now_ms=client.listener.broker.clock.wall_ms(),
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=options["sequence"],
        transactional=options["transactional"],
    )
    topic_id = client.listener.broker.topics.get(options["topic"]).topic_id
    topic = TopicProduceData(
        options["topic"], topic_id, [PartitionProduceData(0, memoryview(bytearray(data)))]
    )
    answer = await client.ask(PRODUCE, version, ProduceRequest(name, options["acks"], 1_000, [topic]))
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


async def add(client: Client, producer: tuple[int, int], version: int, *topics: str) -> list[int]:
    named = [AddPartitionsToTxnTopic(topic, [0]) for topic in topics or ("t",)]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=named,
    )
    answer = await client.ask(ADD, version, request)
    return [
        one.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    ]


async def end(client: Client, producer: tuple[int, int], version: int, *, commit: bool = True) -> Any:
    return await client.ask(END, version, EndTxnRequest("x", *producer, commit))


@pytest.fixture
async def client(client: Client) -> Client:
    await client.create("t")
    return client


@pytest.mark.parametrize("version", range(6))
async def test_each_version_begins_and_ends(client: Client, broker: Broker, version: int) -> None:
    second = version == 5
    producer = await init(client, version=version)
    if not second:
        assert await add(client, producer, min(version, 3)) == [0]
    assert await write(client, producer, 12 if second else 11) == 0
    log = broker.partitions.log(next(iter(broker.transactions.get("x").partitions)))
    assert log.last_stable_offset == 0
    answer = await end(client, producer, version)
    assert answer.error_code == 0
    assert (answer.producer_id, answer.producer_epoch) == ((producer[0], 1) if second else (-1, -1))
    assert log.last_stable_offset == 2
    again = await end(client, producer, version)
    assert (again.error_code, again.producer_epoch) == (0, answer.producer_epoch)


@pytest.mark.parametrize(
    ("api", "versions", "known_from"), [(ADD, 4, 2), (ADD_OFFSETS, 5, 2), (END, 6, 2), (INIT, 6, 4)]
)
async def test_fencing_is_said_as_each_version_knows_it(
    client: Client, api: int, versions: int, known_from: int
) -> None:
    old = await init(client)
    await init(client)
    for version in range(versions):
        if api == ADD:
            (code,) = await add(client, old, version)
        elif api == ADD_OFFSETS:
            asked = AddOffsetsToTxnRequest("x", *old, "g")
            code = (await client.ask(ADD_OFFSETS, version, asked)).error_code
        elif api == END:
            code = (await end(client, old, version)).error_code
        elif version < 3:
            continue
        else:
            asked_init = InitProducerIdRequest("x", 60_000, *old)
            code = (await client.ask(INIT, version, asked_init)).error_code
        assert code == (FENCED if version >= known_from else OLD_FENCED), version


async def test_an_unknown_producer_is_refused(client: Client) -> None:
    producer = await init(client)
    stranger = (producer[0] + 1, 0)
    assert await add(client, stranger, 3) == [MAPPING]
    assert (await end(client, stranger, 5)).error_code == MAPPING
    assert await write(client, stranger, 12) == MAPPING
    assert await write(client, producer, 12, name="other") == MAPPING
    assert (await client.ask(END, 3, EndTxnRequest("", 1, 0, True))).error_code == ErrorCode.INVALID_REQUEST


async def test_one_bad_partition_adds_none(client: Client, broker: Broker) -> None:
    producer = await init(client)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await add(client, producer, 3, "t", "nope") == [ErrorCode.OPERATION_NOT_ATTEMPTED, missing]
    assert await write(client, producer, 10) == WRONG_STATE


async def test_records_need_their_transaction(client: Client) -> None:
    producer = await init(client)
    assert await write(client, producer, 10) == WRONG_STATE
    assert await write(client, producer, 11) == ErrorCode.TRANSACTION_ABORTABLE
    assert await write(client, producer, 12, sequence=3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await write(client, producer, 12) == 0
    for version in (11, 12):
        assert await write(client, producer, version, transactional=False, sequence=1) == WRONG_STATE
    assert (
        await write(client, producer, 12, name=None, sequence=1)
        == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    assert await write(client, (producer[0], 9), 12) == OLD_FENCED
    assert await write(client, (-1, -1), 12) == ErrorCode.INVALID_RECORD
    with pytest.raises(RefusedError, match="acks=all"):
        await client.ask(
            PRODUCE,
            12,
            ProduceRequest(
                "x",
                0,
                1_000,
                [TopicProduceData("t", partition_data=[PartitionProduceData(0, memoryview(b""))])],
            ),
        )


@pytest.mark.parametrize(("begun_by", "ended_by"), [(12, 4), (12, 1), (11, 5), (9, 5)])
async def test_a_transaction_of_one_kind_may_be_ended_by_the_other(
    client: Client, broker: Broker, begun_by: int, ended_by: int
) -> None:
    """As Flink does, which takes a transaction up again; or a client that was upgraded meanwhile."""
    producer = await init(client)
    if begun_by < 12:
        assert await add(client, producer, 3) == [0]
    assert await write(client, producer, begun_by) == 0
    assert await write(client, producer, 23 - begun_by if begun_by > 9 else 12, sequence=1) == 0
    answer = await end(client, producer, ended_by)
    assert answer.error_code == 0
    after = (answer.producer_id, answer.producer_epoch) if ended_by == 5 else producer
    assert (after == producer) is (ended_by < 5)
    assert await write(client, after, 12, sequence=2 if after == producer else 0) == 0
    assert (await end(client, after, 5, commit=False)).error_code == 0


async def test_records_of_a_transaction_are_on_the_disk_whatever_acks_are(
    client: Client, broker: Broker
) -> None:
    """A loss of power must not take them from the middle of a transaction that is committed later."""
    producer = await init(client)
    assert await write(client, producer, 12, acks=1) == 0
    log = broker.partitions.log(next(iter(broker.transactions.get("x").partitions)))
    assert log.flushed_offset == log.offsets.log_end_offset == 1


async def test_a_transaction_without_records_can_be_aborted_and_not_committed(client: Client) -> None:
    """The second kind: a client cannot know whether its first Produce, which was refused, has begun one."""
    producer = await init(client)
    assert await write(client, producer, 12, sequence=3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await end(client, producer, 5)).error_code == WRONG_STATE
    answer = await end(client, producer, 5, commit=False)
    assert (answer.error_code, answer.producer_epoch) == (0, 1)


async def test_a_late_copy_of_a_request_ends_nothing(client: Client) -> None:
    """The answer of EndTxn was lost; its second copy, over a new connection, was answered (KAFKA-17754)."""
    producer = await init(client)
    newer = Client(client.listener)
    assert await add(newer, producer, 3) == [0]
    for late in (end(client, producer, 3), add(client, producer, 3), init(client)):
        with pytest.raises(RefusedError, match="newer connection"):
            await late
    assert (await end(newer, producer, 3)).error_code == 0


async def test_a_fenced_producer_is_told_so_over_whichever_connection(client: Client) -> None:
    old = await init(client)
    newer = Client(client.listener)
    new = await init(newer)
    assert (await end(client, old, 1)).error_code == OLD_FENCED
    # A connection of its own, newer than that of its successor, which continues.
    assert await add(Client(client.listener), old, 3) == [FENCED]
    assert await add(newer, new, 3) == [0]
    assert (await end(newer, new, 3)).error_code == 0


async def test_administrators_see_what_is_open(client: Client, broker: Broker) -> None:
    one = await init(client)
    await init(client, "y-1")
    await write(client, one, 12)
    answer = await client.ask(DESCRIBE, 0, DescribeTransactionsRequest(["x", "y-1", "z"]))
    found = [
        (s.error_code, s.transaction_state, s.transaction_timeout_ms, s.producer_id, len(s.topics))
        for s in answer.transaction_states
    ]
    assert found[0] == (0, "Ongoing", 60_000, one[0], 1)
    assert found[1][1:3] == ("Empty", 60_000)
    assert found[2][0] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    async def listed(version: int = 2, **filters: Any) -> list[str]:
        answer = await client.ask(LIST, version, ListTransactionsRequest(**filters))
        assert answer.error_code == 0
        return sorted(s.transactional_id for s in answer.transaction_states)

    assert await listed(0) == ["x", "y-1"]
    assert await listed(0, state_filters=["Ongoing"]) == ["x"]
    assert await listed(0, producer_id_filters=[one[0]]) == ["x"]
    assert await listed(1, duration_filter=60_000) == ["y-1"]
    assert await listed(transactional_id_pattern="y.*") == ["y-1"]
    asked = ListTransactionsRequest(state_filters=["Nope", "Empty"])
    assert (await client.ask(LIST, 0, asked)).unknown_state_filters == ["Nope"]
    asked = ListTransactionsRequest(transactional_id_pattern="(")
    assert (await client.ask(LIST, 2, asked)).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("version", [0, 1])
async def test_an_administrator_aborts_and_does_not_commit(
    client: Client, broker: Broker, version: int
) -> None:
    producer = await init(client)
    await write(client, producer, 12)

    async def mark(commit: bool, epoch: int) -> int:
        marker = WritableTxnMarker(producer[0], epoch, commit, [WritableTxnMarkerTopic("t", [0])])
        answer = await client.ask(MARKERS, version, WriteTxnMarkersRequest([marker]))
        code: int = answer.markers[0].topics[0].partitions[0].error_code
        return code

    assert await mark(True, 0) == WRONG_STATE
    assert await mark(False, 7) == OLD_FENCED
    assert await mark(False, 0) == 0
    assert await mark(False, 0) == 0
    assert (await end(client, producer, 5)).error_code == WRONG_STATE
    (tp,) = [tp for tp, _ in broker.logs.opened()]
    assert broker.partitions.log(tp).last_stable_offset == 2


async def test_the_feature_is_announced_with_its_versions(client: Client) -> None:
    answer = await client.ask(18, 4, ApiVersionsRequest("test", "1"))
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    assert levels["transaction.version"] == 2
    assert answer.finalized_features_epoch >= 0
    versions = {one.api_key: one.max_version for one in answer.api_keys}
    assert (versions[0] >= 12, versions[22], versions[24], versions[END], versions[28]) == (True, 5, 3, 5, 5)
    update = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("transaction.version", 1)])
    assert (await client.ask(57, 1, update)).error_code == ErrorCode.INVALID_UPDATE_VERSION
