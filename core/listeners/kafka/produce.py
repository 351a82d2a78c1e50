"""Produce and InitProducerId: append batches, answer with offsets once they are as durable as acks asks."""

from __future__ import annotations

import asyncio
from typing import Any

from core.errors import BrokerError, ErrorCode
from core.listeners.connection import RefusedError
from core.listeners.kafka.handler import Handler, NoAnswer, Waiting, WhenDurable, table
from core.listeners.kafka.listener import KafkaSession
from core.listeners.kafka.produce_conversion import MessageSets
from core.listeners.kafka.throttling import count_produce
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
from core.records.header import MAGIC
from core.security.acl import Operation, ResourceType
from core.security.authorizer import is_denial
from core.types import TopicPartition

_ACKS = (-1, 0, 1)


def produce(session: KafkaSession, request: ProduceRequest) -> Any:
    """Append each partition's batches; wait for the disk where acks=all or the topic asks for it.

    Each partition has its own error. acks=0 has no answer: if the append fails, the connection is closed, because
    that is the only signal to such a client.
    """
    if produce_magic(session.version) == MAGIC:
        return _append_all(session, request, None)
    sets = MessageSets(session.listener.broker, session.rights, request)
    if not sets.slow:
        return _append_all(session, request, sets)
    return _after_conversion(session, request, sets)


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
    waiting: list[Waiting] = []
    responses = []
    failed: PartitionProduceResponse | None = None
    for topic in request.topic_data:
        answers = []
        for data in topic.partition_data:
            answer = _append(session, request, topic, data, sets, waiting)
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
    waiting: list[Waiting],
) -> PartitionProduceResponse:
    broker = session.broker
    try:
        _check(session, request)
        name = topic.name
        if names_topics_by_id(0, session.version):
            name = broker.topics.name_of(topic.topic_id)
        if data.records is None:
            raise BrokerError(ErrorCode.INVALID_RECORD, "There are no records for this partition.")
        if sets is None and not knows_zstd(0, session.version) and carries_zstd(data.records):
            raise BrokerError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                "zstd requires Produce version 7 or later. Use gzip, snappy or lz4.",
            )
        tp = TopicPartition(name, data.index)
        converted = None if sets is None else sets.of(data)
        done = broker.partitions.append(tp, data.records, acks=request.acks, converted=converted)
        answer = PartitionProduceResponse(
            data.index, 0, done.base_offset, done.log_append_time, done.log_start_offset
        )
        durable = broker.partitions.durable(tp, request.acks, request.timeout_ms)
        if durable is not None:
            waiting.append((durable, answer))
        return answer
    except BrokerError as error:
        return _refusal(data.index, error)


def _check(session: KafkaSession, request: ProduceRequest) -> None:
    if request.acks not in _ACKS:
        raise BrokerError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it must be 0, 1 or -1 (all)."
        )
    if request.transactional_id is not None:
        session.rights.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        raise BrokerError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "Transactions are not served yet; produce without transactional.id.",
        )


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
    """Return a producer id for an idempotent producer; a transactional id is refused."""
    try:
        if request.transactional_id is not None:
            raise BrokerError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                if request.transactional_id
                else ErrorCode.INVALID_REQUEST,
                "Transactions are not served yet; ask without a transactional id.",
            )
        _require_idempotent_write(session)
        given = await session.listener.broker.producer_ids.init(request.producer_id, request.producer_epoch)
        return InitProducerIdResponse(producer_id=given.producer_id, producer_epoch=given.producer_epoch)
    except BrokerError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)


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
