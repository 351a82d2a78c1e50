"""The roles of brokers for a partition: show and change them. The operator must know which broker is alive."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path
from pydantic import BaseModel, Field, StrictBool

from app.native.dependencies import BrokerDep
from app.native.schemas import Shape
from app.native.topics import TopicName
from core.types import TopicPartition
from core.vocabulary.partition import PartitionInfo

PartitionNumber = Annotated[int, Path(description="The partition's number, from 0.", ge=0, lt=2**31)]
_UNCLEAN = "Also where something that was acknowledged could get lost."


class RoleWanted(Shape):
    """The new role of this broker for a partition."""

    role: Literal["leader", "follower"]
    unclean: StrictBool = Field(False, description=_UNCLEAN)


class LeadWanted(Shape):
    """How this broker takes over."""

    unclean: StrictBool = Field(False, description=_UNCLEAN)


class PartitionRole(BaseModel):
    """The leader and the replicas of a partition, by broker ids, as this broker knows them.

    `leader` is null if no leader is known. `in_sync` is complete on the leader alone.
    """

    topic: str
    partition: int
    role: Literal["leader", "follower"]
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    high_watermark: int
    log_end_offset: int


class RoleRefused(BaseModel):
    """A partition that this broker may not lead, and why."""

    topic: str
    partition: int
    detail: str


class Led(BaseModel):
    """The result of a request to lead all partitions: how many this broker leads now, and which it may not lead."""

    leads: int
    refused: list[RoleRefused]


def _shown(info: PartitionInfo) -> PartitionRole:
    return PartitionRole(
        topic=info.tp.topic,
        partition=info.tp.partition,
        role=info.role,
        leader=info.leader if info.leader >= 0 else None,
        leader_epoch=info.leader_epoch,
        replicas=list(info.replicas),
        in_sync=list(info.isr),
        high_watermark=info.offsets.high_watermark,
        log_end_offset=info.offsets.log_end_offset,
    )


async def get_partition_role(
    broker: BrokerDep, topic: TopicName, partition: PartitionNumber
) -> PartitionRole:
    """Return the leader of the partition, its replicas, and the committed offset."""
    tp = TopicPartition(topic, partition)
    await broker.look(partitions=(tp,))
    return _shown(broker.partitions.info(tp))


async def set_partition_role(
    broker: BrokerDep, topic: TopicName, partition: PartitionNumber, wanted: RoleWanted
) -> PartitionRole:
    """Let this broker lead the partition, or stop leading it."""
    tp = TopicPartition(topic, partition)
    return _shown(await broker.roles.set(tp, wanted.role, unclean=wanted.unclean))


async def lead_everything(broker: BrokerDep, wanted: LeadWanted) -> Led:
    """Let this broker lead all that it holds a copy of, metadata included."""
    done = await broker.roles.lead_everything(unclean=wanted.unclean)
    refused = [
        RoleRefused(topic=tp.topic, partition=tp.partition, detail=error.message)
        for tp, error in sorted(done.items())
        if error is not None
    ]
    return Led(leads=broker.roles.leads(), refused=refused)
