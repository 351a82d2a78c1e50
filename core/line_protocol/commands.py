"""Serve each command of the line protocol by calls on the broker.

A new command is a function and a row of `HANDLERS`. A function takes (session, command) and returns the payload of
the answer, or a coroutine of it. It raises BrokerError.

REPLICA_FETCH counts the replicas of a partition, the leader as 0; the broker knows them by broker ids. The order is
the broker's (`PartitionInfo.order`): the leader first, then the others as they were assigned.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from core.errors import BrokerError, ErrorCode
from core.line_protocol import codec
from core.line_protocol.listener import Handler, LineSession
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.records import ReadResult

# Kafka's names of the assignors, by the names of the line protocol.
_ASSIGNORS = {"": "", "round_robin": "roundrobin", "range": "range"}


# --- records and topics ----------------------------------------------------------------------------------------


async def _produce(session: LineSession, command: codec.Produce) -> str:
    """Append one record. The key decides the partition, as for every listener and surface."""
    record = NewRecord(command.key, command.value)
    (done,) = await session.broker.records.produce(
        command.topic, [record], acks=command.acks, timeout_ms=session.broker.config.text_acks_timeout_ms
    )
    if done.error is not None:
        raise done.error
    bounds = session.broker.partitions.info(TopicPartition(command.topic, done.partition)).offsets
    return codec.produced(done.partition, done.offset, bounds.high_watermark)


def _consume(session: LineSession, command: codec.Consume) -> str | Coroutine[Any, Any, str]:
    """Read committed records without waiting. At the last stable offset and beyond there are no messages.

    `hw` of the answer is that offset, because a client reads until it is there.
    """
    tp = TopicPartition(command.topic, command.partition)
    bounds = session.broker.partitions.info(tp).offsets
    if command.offset >= bounds.last_stable_offset:
        return codec.messages((), bounds.last_stable_offset)
    config = session.broker.config
    read = session.broker.records.read_now(
        tp, command.offset, max_bytes=config.text_read_bytes, max_records=config.text_max_records
    )
    if not read.records:
        return _consume_further(session, tp, command.offset, read)
    return _messages(read)


async def _consume_further(session: LineSession, tp: TopicPartition, offset: int, first: ReadResult) -> str:
    """Read on after markers and records of aborted transactions: the client learns no offset to continue at."""
    config = session.broker.config
    read = await session.broker.records.read(
        tp, offset, max_bytes=config.text_read_bytes, max_records=config.text_max_records, first=first
    )
    return _messages(read)


def _messages(read: ReadResult) -> str:
    return codec.messages(((r.offset, r.value) for r in read.records), read.offsets.last_stable_offset)


async def _create(session: LineSession, command: codec.Create) -> str:
    factor = -1 if command.replication_factor is None else command.replication_factor
    made = await session.broker.topics.create(
        command.topic, partitions=command.partitions, replication_factor=factor
    )
    return codec.created(made.name, made.partitions, max(len(made.replicas), 1))


def _topics(session: LineSession, command: codec.Topics) -> str:
    """List topics by name, without internal topics."""
    return codec.listing(
        (topic.name, topic.partitions) for topic in session.broker.topics.list(command.prefix)
    )


def _help(session: LineSession, command: codec.Help) -> str:
    return codec.usage(command.command)


def _ping(session: LineSession, command: codec.Ping) -> str:
    return ""


# --- members of groups -----------------------------------------------------------------------------------------


async def _join(session: LineSession, command: codec.Join) -> str:
    """Join a group, or return the present generation again."""
    given = await session.broker.groups.lines.join(
        command.group,
        command.topic,
        command.consumer_id,
        _ASSIGNORS[command.assignor],
        session.peer_host,
    )
    return codec.assigned(given.generation, given.partitions)


async def _sync(session: LineSession, command: codec.Member) -> str:
    """Return the assignment of a generation that is still the present one."""
    given = await session.broker.groups.lines.sync(*command)
    return codec.assigned(given.generation, given.partitions)


def _heartbeat(session: LineSession, command: codec.Member) -> str:
    session.broker.groups.lines.heartbeat(*command)
    return codec.HEARTBEAT_OK


async def _leave(session: LineSession, command: codec.Member) -> str:
    await session.broker.groups.lines.leave(*command)
    return codec.LEFT


async def _commit(session: LineSession, command: codec.Commit) -> str:
    await session.broker.groups.lines.commit(*command)
    return codec.COMMITTED


def _offset(session: LineSession, command: codec.Offset) -> str:
    """Return the committed offset."""
    return codec.committed(session.broker.groups.lines.committed(*command))


# --- replication -----------------------------------------------------------------------------------------------


def _replica_fetch(session: LineSession, command: codec.ReplicaFetch) -> str:
    """Report that a follower has all records below an offset."""
    broker = session.broker
    tp = TopicPartition(command.topic, command.partition)
    order = broker.partitions.info(tp).order
    if not 1 <= command.replica_id < len(order):
        allowed = f"from 1 to {len(order) - 1}" if len(order) > 1 else "none, for there is no follower"
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"The replica ids of the followers of {tp} are {allowed}; 0 is the leader.",
        )
    info = broker.roles.report_progress(tp, order[command.replica_id], command.offset)
    isr = sorted(order.index(replica) for replica in info.isr)
    return codec.replica_fetched(
        command.replica_id, command.offset, info.offsets.high_watermark, isr, info.under_replicated
    )


async def _set_partition_role(session: LineSession, command: codec.SetPartitionRole) -> str:
    """Make this broker the leader or a follower of a partition."""
    tp = TopicPartition(command.topic, command.partition)
    info = await session.broker.roles.set(tp, command.role)
    return codec.role_set(command.topic, command.partition, info.role, info.offsets.high_watermark)


HANDLERS: Final[dict[str, Handler]] = {
    "PRODUCE": _produce,
    "CONSUME": _consume,
    "JOIN": _join,
    "SYNC": _sync,
    "HEARTBEAT": _heartbeat,
    "LEAVE": _leave,
    "COMMIT": _commit,
    "OFFSET": _offset,
    "REPLICA_FETCH": _replica_fetch,
    "SET_PARTITION_ROLE": _set_partition_role,
    "CREATE": _create,
    "TOPICS": _topics,
    "HELP": _help,
    "PING": _ping,
}
