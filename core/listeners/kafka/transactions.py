"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and what administrators ask of transactions (KIP-98, 664, 890)."""

from __future__ import annotations

from itertools import groupby

from core.errors import BrokerError, ErrorCode
from core.groups.topic_pattern import compile_pattern
from core.listeners.connection import RefusedError
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol import traits
from core.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from core.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from core.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from core.protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from core.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from core.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from core.protocol.messages.list_transactions import TransactionState as ListedTransaction
from core.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from core.security.acl import Operation, ResourceType
from core.types import TopicPartition
from core.vocabulary.transactions import ProducerIdAndEpoch, TransactionInfo, TransactionState

_NAMES = {state.kafka_name: state for state in TransactionState}


# --- a producer --------------------------------------------------------------------------------------------


async def add_partitions(
    session: KafkaSession, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Open the transaction for some partitions. If one of them is refused, none of them is added."""
    transactional_id = request.v3_and_below_transactional_id
    producer = ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    asked = [
        TopicPartition(topic.name, index)
        for topic in request.v3_and_below_topics
        for index in topic.partitions
    ]
    refuse_late(session, transactional_id, producer)
    try:
        session.rights.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        errors = {tp: code for tp in asked if (code := _refusal_of(session, tp))}
        if errors:
            codes = {tp: errors.get(tp, ErrorCode.OPERATION_NOT_ATTEMPTED) for tp in asked}
        else:
            await session.broker.transactions.join(transactional_id, producer, asked)
            codes = dict.fromkeys(asked, ErrorCode.NONE)
    except BrokerError as error:
        codes = dict.fromkeys(asked, _code(session, 24, error))
    topics = [
        AddPartitionsToTxnTopicResult(
            name, [AddPartitionsToTxnPartitionResult(tp.partition, codes[tp]) for tp in partitions]
        )
        for name, partitions in groupby(asked, key=lambda tp: tp.topic)
    ]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


def _refusal_of(session: KafkaSession, tp: TopicPartition) -> ErrorCode | None:
    try:
        session.broker.require_write(tp.topic)
        if tp.partition in range(session.broker.topics.get(tp.topic).partitions):
            return None
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except BrokerError as error:
        return error.code


async def add_offsets(session: KafkaSession, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Open the transaction for the offsets of a group, which TxnOffsetCommit brings."""
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    refuse_late(session, request.transactional_id, producer)
    try:
        session.rights.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        session.rights.require(Operation.READ, ResourceType.GROUP, request.group_id)
        await session.broker.transactions.join(request.transactional_id, producer)
        return AddOffsetsToTxnResponse()
    except BrokerError as error:
        return AddOffsetsToTxnResponse(error_code=_code(session, 25, error))


async def end_txn(session: KafkaSession, request: EndTxnRequest) -> EndTxnResponse:
    """Commit or abort. When it is answered, all partitions and groups show it, and a power loss leaves it."""
    raises = traits.end_of_transaction_raises_the_epoch(session.version)
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if not raises:
        refuse_late(session, request.transactional_id, producer)
    try:
        after = await session.broker.transactions.end(
            request.transactional_id,
            producer,
            commit=request.committed,
            raises=raises,
        )
        return EndTxnResponse(producer_id=after.producer_id, producer_epoch=after.producer_epoch)
    except BrokerError as error:
        return EndTxnResponse(error_code=_code(session, 26, error))


def refuse_late(
    session: KafkaSession,
    transactional_id: str,
    producer: ProducerIdAndEpoch | None = None,
    *,
    of_group: bool = False,
) -> None:
    """Close a connection whose request is a late copy of one that came over a newer connection."""
    number = session.number
    if not session.broker.transactions.is_newest(transactional_id, number, producer, of_group=of_group):
        raise RefusedError(f"a request for {transactional_id!r} came after one over a newer connection")


def _code(session: KafkaSession, key: int, error: BrokerError) -> ErrorCode:
    """Return the error code as clients of this version know it."""
    if error.code is ErrorCode.PRODUCER_FENCED and not traits.transaction_errors_know_fencing(
        key, session.version
    ):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code


# --- administrators ----------------------------------------------------------------------------------------


async def write_markers(session: KafkaSession, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Abort transactions that an administrator names by producer and partition (KIP-664).

    The coordinator is this broker, so no other broker can know that a transaction is committed: that is refused.
    """
    markers = []
    for marker in request.markers:
        topics = [
            WritableTxnMarkerTopicResult(
                topic.name,
                [
                    WritableTxnMarkerPartitionResult(index, await _abort(session, marker, topic.name, index))
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ]
        markers.append(WritableTxnMarkerResult(marker.producer_id, topics))
    return WriteTxnMarkersResponse(markers)


async def _abort(session: KafkaSession, marker: WritableTxnMarker, topic: str, index: int) -> ErrorCode:
    if marker.transaction_result:
        return ErrorCode.INVALID_TXN_STATE
    try:
        producer = ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch)
        await session.broker.transactions.abort(producer, TopicPartition(topic, index))
    except BrokerError as error:
        return error.code
    return ErrorCode.NONE


def describe_transactions(
    session: KafkaSession, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Return some transactional ids with their state and partitions."""
    return DescribeTransactionsResponse(
        transaction_states=[_described(session, one) for one in request.transactional_ids]
    )


def _described(session: KafkaSession, transactional_id: str) -> DescribedTransaction:
    try:
        if not transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "A transactional id cannot be empty.")
        one = session.broker.transactions.get(transactional_id)
    except BrokerError as error:
        return DescribedTransaction(error.code, transactional_id)
    ordered = groupby(sorted(one.partitions), key=lambda tp: tp.topic)
    return DescribedTransaction(
        0,
        transactional_id,
        one.state.kafka_name,
        one.timeout_ms,
        one.start_ms,
        *one.producer,
        [TopicData(topic, [tp.partition for tp in found]) for topic, found in ordered],
    )


def list_transactions(session: KafkaSession, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """Return the transactional ids that all given filters let through."""
    pattern = None
    if request.transactional_id_pattern:
        try:
            limit = session.broker.config.max_pattern_bytes
            pattern = compile_pattern(request.transactional_id_pattern, limit)
        except BrokerError as error:
            return ListTransactionsResponse(error_code=error.code)
    wanted = {_NAMES[name] for name in request.state_filters if name in _NAMES}
    producers = set(request.producer_id_filters)
    now_ms = session.broker.clock.wall_ms()

    def passes(one: TransactionInfo) -> bool:
        return (
            (not request.state_filters or one.state in wanted)
            and (not producers or one.producer.producer_id in producers)
            and (one.start_ms < 0 or now_ms - one.start_ms > request.duration_filter)
            and (pattern is None or pattern.fullmatch(one.transactional_id) is not None)
        )

    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in _NAMES],
        transaction_states=[
            ListedTransaction(one.transactional_id, one.producer.producer_id, one.state.kafka_name)
            for one in session.broker.transactions.all()
            if passes(one)
        ],
    )


_WRITE_ID = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
_DESCRIBE_ID = (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)

HANDLERS = table(
    # Later versions are for brokers that ask each other.
    Handler(24, add_partitions, needs=(_WRITE_ID, (Operation.WRITE, ResourceType.TOPIC)), max_version=3),
    Handler(25, add_offsets, needs=(_WRITE_ID, (Operation.READ, ResourceType.GROUP))),
    Handler(26, end_txn, needs=(_WRITE_ID,)),
    # Kafka 4.1 does not announce version 2 either.
    Handler(27, write_markers, needs=((Operation.CLUSTER_ACTION, ResourceType.CLUSTER),), max_version=1),
    Handler(65, describe_transactions, needs=(_DESCRIBE_ID,)),
    Handler(66, list_transactions, needs=(_DESCRIBE_ID,)),
)
