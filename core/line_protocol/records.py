"""PRODUCE and CONSUME, and what there is to say about topics: CREATE, TOPICS, HELP, PING."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.line_protocol import codec as text
from core.records.record import NewRecord
from core.types import TopicPartition

if TYPE_CHECKING:
    from core.line_protocol.listener import TextSession


async def produce(session: TextSession, command: text.Produce) -> str:
    """Write one message; the key decides the partition, as at every door."""
    record = NewRecord(command.key, command.value)
    (done,) = await session.broker.records.produce(
        command.topic, [record], acks=command.acks, timeout_ms=session.broker.config.text_acks_timeout_ms
    )
    if done.error is not None:
        raise done.error
    bounds = session.broker.partitions.info(TopicPartition(command.topic, done.partition)).offsets
    return text.produced(done.partition, done.offset, bounds.high_watermark)


def consume(session: TextSession, command: text.Consume) -> str:
    """What is there, without waiting; nothing at the end, and nothing beyond it."""
    address = TopicPartition(command.topic, command.partition)
    bounds = session.broker.partitions.info(address).offsets
    if command.offset >= bounds.high_watermark:
        return text.messages((), bounds.high_watermark)
    config = session.broker.config
    read = session.broker.records.read_now(
        address, command.offset, max_bytes=config.text_read_bytes, max_records=config.text_max_records
    )
    return text.messages(((r.offset, r.value) for r in read.records), read.offsets.high_watermark)


async def create(session: TextSession, command: text.Create) -> str:
    """Create a topic."""
    factor = -1 if command.replication_factor is None else command.replication_factor
    made = await session.broker.topics.create(
        command.topic, partitions=command.partitions, replication_factor=factor
    )
    return text.created(made.name, made.partitions, max(len(made.replicas), 1))


def topics(session: TextSession, command: text.Topics) -> str:
    """The topics by name, without the broker's own."""
    return text.listing(
        (topic.name, topic.partitions) for topic in session.broker.topics.list(command.prefix)
    )


def show_usage(session: TextSession, command: text.Help) -> str:
    """How a command is written."""
    return text.usage(command.command)


def ping(session: TextSession, command: text.Ping) -> str:
    """Nothing but OK."""
    return ""
