"""Produce and InitProducerId: append batches, answer with offsets once they are as durable as acks asks."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from core.errors import BrokerError, ErrorCode
from core.listeners.connection import RefusedError
from core.listeners.kafka.handler import Handler, NoAnswer, Waiting, WhenDurable, table
from core.listeners.kafka.listener import KafkaSession
from core.listeners.kafka.produce_conversion import MessageSets
from core.listeners.kafka.throttling import count_produce
from core.listeners.kafka.transactions import refuse_late
from core.protocol import traits
from core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from core.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from core.protocol.traits import knows_zstd, names_topics_by_id, produce_magic
from core.records.batch import carries_zstd
from core.records.header import MAGIC, read_header
from core.security.acl import Operation, ResourceType
from core.security.authorizer import is_denial
from core.types import TopicPartition
from core.vocabulary.transactions import ProducerIdAndEpoch, TransactionalWrite

_ACKS = (-1, 0, 1)


def produce(session: KafkaSession, request: ProduceRequest) -> Any:
    """Append each partition's batches; wait for the disk where acks=all or the topic asks for it.

    Each partition has its own error. acks=0 has no answer: if the append fails, the connection is closed, because
    that is the only signal to such a client.
    """
    if produce_magic(session.version) == MAGIC:
        if request.transactional_id is not None and (first := _to_register(session, request)) is not None:
            return _after_registration(session, request, *first)
        return _append_all(session, request, None)
    sets = MessageSets(session.listener.broker, session.rights, request)
    if not sets.slow:
        return _append_all(session, request, sets)
    return _after_conversion(session, request, sets)


def _to_register(
    session: KafkaSession, request: ProduceRequest
) -> tuple[TransactionalWrite, ProducerIdAndEpoch, Collection[TopicPartition]] | None:
    """Return what the transaction of a request must take in before the append; None if there is nothing."""
    try:
        transaction = _transaction(session, request)
        assert transaction is not None
        named = [
            (TopicPartition(_topic_name(session, topic), data.index), data.records)
            for topic in request.topic_data
            for data in topic.partition_data
            if data.records is not None
        ]
        for tp, _ in named:
            session.broker.require_write(tp.topic)
        new = transaction.unregistered([tp for tp, _ in named])
        if not new:
            return None
        header = read_header(next(records for tp, records in named if tp in new))
    except BrokerError:
        return None  # the append raises it again
    return transaction, ProducerIdAndEpoch(header.producer_id, header.producer_epoch), new


async def _after_registration(
    session: KafkaSession,
    request: ProduceRequest,
    transaction: TransactionalWrite,
    producer: ProducerIdAndEpoch,
    partitions: Collection[TopicPartition],
) -> Any:
    """Add partitions to a transaction of a cluster, then append."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                # The connection uses its buffer again.
                data.records = memoryview(bytearray(data.records))
    await transaction.register(producer, partitions)
    answer = _append_all(session, request, None)
    return await answer.wait() if isinstance(answer, WhenDurable) else answer


async def _after_conversion(session: KafkaSession, request: ProduceRequest, sets: MessageSets) -> Any:
    """Convert, then append; also if the client disconnects meanwhile (acks=0 gets no answer)."""

    async def work() -> Any:
        await sets.finish(session.listener.conversions)
        answer = _append_all(session, request, sets)
        return await answer.wait() if isinstance(answer, WhenDurable) else answer

    task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work())
    # The broker waits for these tasks before it closes the logs.
    unattended = session.listener.broker.partitions.unattended
    unattended.add(task)
    task.add_done_callback(unattended.discard)
    # Without a client there is no answer for the error: take it, so that asyncio does not log it.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)


def _append_all(session: KafkaSession, request: ProduceRequest, sets: MessageSets | None) -> Any:
    """Return the answer, complete or `WhenDurable`.

    `sets` has the batches to append in place of the request's own bytes. After a slow conversion those bytes are no
    longer valid.
    """
    throttle_ms = count_produce(session)
    try:
        _check_acks(request)
        transaction = _transaction(session, request)
    except BrokerError as error:
        return _refuse_all(request, error, throttle_ms)
    waiting: list[Waiting] = []
    responses = []
    failed: PartitionProduceResponse | None = None
    for topic in request.topic_data:
        answers = []
        for data in topic.partition_data:
            answer = _append(session, request, topic, data, sets, transaction, waiting)
            answers.append(answer)
            if answer.error_code:
                failed = answer
        responses.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
    if request.acks == 0:
        if failed is not None:
            raise RefusedError(f"a produce request with acks=0 failed: {failed.error_message}")
        return NoAnswer
    response = ProduceResponse(responses, throttle_ms)
    return WhenDurable(response, waiting) if waiting else response


def _append(
    session: KafkaSession,
    request: ProduceRequest,
    topic: TopicProduceData,
    data: PartitionProduceData,
    sets: MessageSets | None,
    transaction: TransactionalWrite | None,
    waiting: list[Waiting],
) -> PartitionProduceResponse:
    broker = session.broker
    try:
        name = _topic_name(session, topic)
        if data.records is None:
            raise BrokerError(ErrorCode.INVALID_RECORD, "There are no records for this partition.")
        if sets is None and not knows_zstd(0, session.version) and carries_zstd(data.records):
            raise BrokerError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                "zstd requires Produce version 7 or later. Use gzip, snappy or lz4.",
            )
        tp = TopicPartition(name, data.index)
        converted = None if sets is None else sets.of(data)
        # What a transaction holds must not be lost from the middle of it while its producer lives on.
        acks = request.acks if transaction is None else -1
        done = broker.partitions.append(
            tp, data.records, acks=acks, converted=converted, transaction=transaction
        )
        answer = PartitionProduceResponse(
            data.index, 0, done.base_offset, done.log_append_time, done.log_start_offset
        )
        durable = broker.partitions.durable(tp, acks, request.timeout_ms)
        if durable is not None:
            waiting.append((durable, answer))
        return answer
    except BrokerError as error:
        refusal = _refusal(data.index, error)
        if error.details.get("abortable") and traits.produce_may_ask_to_abort(session.version):
            refusal.error_code = ErrorCode.TRANSACTION_ABORTABLE
        return refusal


def _topic_name(session: KafkaSession, topic: TopicProduceData) -> str:
    """Return the name of a topic of the request. Raises UNKNOWN_TOPIC_ID."""
    by_id = names_topics_by_id(0, session.version)
    return session.broker.topics.name_of(topic.topic_id) if by_id else topic.name


def _check_acks(request: ProduceRequest) -> None:
    if request.acks not in _ACKS:
        raise BrokerError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it must be 0, 1 or -1 (all)."
        )
    if request.acks == 0 and request.transactional_id is not None:
        raise BrokerError(
            ErrorCode.INVALID_REQUIRED_ACKS,
            "A transaction needs acks=all: with acks=0 a lost record is not noticed.",
        )


def _transaction(session: KafkaSession, request: ProduceRequest) -> TransactionalWrite | None:
    if request.transactional_id is None:
        return None
    begins = traits.produce_begins_transactions(session.version)
    return session.broker.transactions.writing(request.transactional_id, begins=begins)


def _refuse_all(request: ProduceRequest, error: BrokerError, throttle_ms: int) -> Any:
    """Refuse every partition; close the connection of a client that gets no answer."""
    if request.acks == 0:
        raise RefusedError(f"a produce request with acks=0 failed: {error.message}")
    topics = [
        TopicProduceResponse(
            topic.name, topic.topic_id, [_refusal(data.index, error) for data in topic.partition_data]
        )
        for topic in request.topic_data
    ]
    return ProduceResponse(topics, throttle_ms)


def _refusal(index: int, error: BrokerError) -> PartitionProduceResponse:
    records: Any = error.details.get("record_errors") or ()
    # As Kafka, which says nothing more to a client that it denies something.
    message = None if is_denial(error) else error.message
    return PartitionProduceResponse(
        index,
        error.code,
        -1,
        -1,
        -1,
        [BatchIndexAndErrorMessage(position, message) for position, message in records],
        message,
    )


async def init_producer_id(session: KafkaSession, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Return a producer id for an idempotent producer, or the producer of a transactional id."""
    try:
        known = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        if request.transactional_id is not None:
            refuse_late(session, request.transactional_id)
            given = await session.broker.transactions.init(
                request.transactional_id, request.transaction_timeout_ms, known
            )
        else:
            _require_idempotent_write(session)
            given = await session.listener.broker.producer_ids.init(known)
        return InitProducerIdResponse(producer_id=given.producer_id, producer_epoch=given.producer_epoch)
    except BrokerError as error:
        code = error.code
        if code is ErrorCode.PRODUCER_FENCED and not traits.transaction_errors_know_fencing(
            22, session.version
        ):
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)


def _require_idempotent_write(session: KafkaSession) -> None:
    """Raise CLUSTER_AUTHORIZATION_FAILED; a right to write to any topic is enough (KIP-679)."""
    rights = session.rights
    if not rights.may(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER) and not rights.may_on_any(
        Operation.WRITE, ResourceType.TOPIC
    ):
        raise rights.refusal(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)


HANDLERS = table(
    Handler(0, produce, needs=((Operation.WRITE, ResourceType.TOPIC),)),
    Handler(22, init_producer_id, needs=((Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER),)),
)
