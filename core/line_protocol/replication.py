"""REPLICA_FETCH and SET_PARTITION_ROLE: a follower by hand, and who leads.

The protocol counts the replicas of a partition, the leader as 0; the broker knows them by broker ids. The order
is the broker's (`PartitionInfo.order`): the leader first, then the others as they were assigned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.errors import BrokerError, ErrorCode
from core.line_protocol import codec as text
from core.types import TopicPartition

if TYPE_CHECKING:
    from core.line_protocol.listener import TextSession


def replica_fetch(session: TextSession, command: text.ReplicaFetch) -> str:
    """A follower has everything below an offset."""
    broker = session.broker
    address = TopicPartition(command.topic, command.partition)
    order = broker.partitions.info(address).order
    if not 1 <= command.replica_id < len(order):
        allowed = f"from 1 to {len(order) - 1}" if len(order) > 1 else "none, for there is no follower"
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"The replica ids of the followers of {address} are {allowed}; 0 is the leader.",
        )
    info = broker.roles.report_progress(address, order[command.replica_id], command.offset)
    isr = sorted(order.index(replica) for replica in info.isr)
    return text.replica_fetched(
        command.replica_id, command.offset, info.offsets.high_watermark, isr, info.under_replicated
    )


async def set_partition_role(session: TextSession, command: text.SetPartitionRole) -> str:
    """Lead a partition here, or follow."""
    address = TopicPartition(command.topic, command.partition)
    info = await session.broker.roles.set(address, command.role)
    return text.role_set(command.topic, command.partition, info.role, info.offsets.high_watermark)
