"""Several transactions that one decision ends, over HTTP: tasks write over the Kafka port, their driver commits them.

    curl -d '{"participants": [{"transactional_id": "job/1/0", "producer_id": 7, "producer_epoch": 0}],
              "offsets": [{"group": "job", "topic": "in", "partition": 0, "offset": 42, "expected": 40}]}' \
         …/transactions:commit
    curl -d '{"prefix": "job/1/"}' …/transactions:abort
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from app.errors import Problem, field_error, from_broker
from app.native.consumer_schemas import PartitionOf, TopicText
from app.native.dependencies import BrokerDep
from app.native.schemas import Offset, Partition, Shape
from core.config import Config
from core.types import TopicPartition
from core.vocabulary.groups import NO_GENERATION, NO_MEMBER, NO_OFFSET
from core.vocabulary.settlements import ANY_OFFSET, OffsetToSettle, RefusedError
from core.vocabulary.transactions import Participant, ProducerIdAndEpoch

_LIMITS = Config()
GroupText = Annotated[StrictStr, Field(min_length=1, max_length=1000)]
TransactionalIdText = Annotated[StrictStr, Field(min_length=1, max_length=1000)]
Count = Annotated[StrictInt, Field(ge=0, lt=2**63)]


class ParticipantToCommit(Shape):
    """An open transaction, and the producer that has written it. What is left out is not compared."""

    transactional_id: TransactionalIdText
    producer_id: Count
    producer_epoch: Annotated[StrictInt, Field(ge=0, lt=2**15)]
    partitions: list[PartitionOf] | None = Field(
        None,
        max_length=_LIMITS.max_transaction_partitions,
        description="All partitions that it must have written to.",
    )
    records: Count | None = Field(None, description="The number of records that it must have.")


class OffsetToDecide(Shape):
    """An offset of a group that is committed with the transactions."""

    group: GroupText
    topic: TopicText
    partition: Partition
    offset: Offset = Field(description="The next offset to read.")
    expected: Annotated[StrictInt, Field(ge=-1, lt=2**63)] | None = Field(
        None,
        description="The offset that must be committed before; −1 or null: none. Left out: whatever it is.",
    )
    metadata: StrictStr = ""
    generation_id: Annotated[StrictInt, Field(ge=0, lt=2**31)] | None = Field(
        None, description="The generation of the member that commits."
    )
    member_id: StrictStr = Field("", description="The member that commits.")
    group_instance_id: StrictStr | None = None


class TransactionsToCommit(Shape):
    """What one decision commits: all of it, or nothing."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [
        {
            "participants": [
                {"transactional_id": "job/1/0", "producer_id": 4001, "producer_epoch": 0, "records": 120}
            ],
            "offsets": [{"group": "job", "topic": "orders", "partition": 0, "offset": 42, "expected": 40}],
            "ephemeral": True,
        }
    ]})  # fmt: skip

    participants: list[ParticipantToCommit] = Field(
        [], max_length=_LIMITS.max_transaction_participants, description="Transactions of Kafka producers."
    )
    offsets: list[OffsetToDecide] = Field([], max_length=_LIMITS.max_transaction_partitions)
    ephemeral: StrictBool = Field(
        default=False, description="Forget the transactional ids of the participants with that."
    )


class ParticipantCommitted(BaseModel):
    """A transaction that is committed, and what its producer continues with."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class OffsetDecided(BaseModel):
    """An offset that is committed."""

    group: str
    topic: str
    partition: int
    offset: int


class TransactionsCommitted(BaseModel):
    """What is committed. Readers see all of it."""

    participants: list[ParticipantCommitted]
    offsets: list[OffsetDecided]


class TransactionsToAbort(Shape):
    """Which open transactions are aborted: those of all ids with a prefix."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [
        {"prefix": "job/1/", "keep": ["job/1/0"], "ephemeral": True}
    ]})  # fmt: skip

    prefix: TransactionalIdText
    keep: list[TransactionalIdText] = Field(
        [], max_length=_LIMITS.max_transaction_participants, description="Ids that are left alone."
    )
    ephemeral: StrictBool = Field(
        default=False, description="Forget the ids, also those without an open transaction."
    )


class TransactionsAborted(BaseModel):
    """What was aborted. The producers of these ids are fenced."""

    aborted: list[str]


async def commit_transactions(broker: BrokerDep, wanted: TransactionsToCommit) -> TransactionsCommitted:
    """Commit open transactions of several producers and offsets of groups by one decision, all or nothing.

    An offset is compared first: if the answer of a commit was lost, the same request is refused with the offset that
    is committed now (`actual`), which says that it was done.
    """
    if not wanted.participants and not wanted.offsets:
        raise _invalid("A decision has participants or offsets.", "#/participants")
    participants = [_participant(one, ephemeral=wanted.ephemeral) for one in wanted.participants]
    _check_ids(wanted.participants)
    check_places(wanted.offsets)
    offsets = [to_settle(one) for one in wanted.offsets]
    try:
        # First of all, so that a retry is told of the offsets, and not that the transactions have ended.
        broker.groups.settle_offsets(offsets)
        following = await broker.transactions.commit_together(
            participants, lambda: [broker.groups.settle_offsets(offsets)]
        )
    except RefusedError as error:
        raise refused_offsets(error) from None
    return TransactionsCommitted(
        participants=[
            ParticipantCommitted(transactional_id=one.transactional_id, producer_id=id_, producer_epoch=epoch)
            for one, (id_, epoch) in zip(wanted.participants, following, strict=True)
        ],
        offsets=[
            OffsetDecided(group=one.group, topic=one.topic, partition=one.partition, offset=one.offset)
            for one in wanted.offsets
        ],
    )


async def abort_transactions(broker: BrokerDep, wanted: TransactionsToAbort) -> TransactionsAborted:
    """Abort the open transactions of all ids with a prefix, but for some: what a commit before has left out."""
    aborted = await broker.transactions.abort_leftovers(wanted.prefix, wanted.keep, forget=wanted.ephemeral)
    return TransactionsAborted(aborted=sorted(aborted))


def refused_offsets(error: RefusedError) -> Problem:
    """Return the refusal of offsets, with all that is wrong by pointer."""
    problem = from_broker(error)
    problem.errors = [
        field_error(
            one.error.message,
            pointer="#/offsets/" + "/".join(map(str, one.path)),
            kafka_error=one.error.code.name,
            kafka_error_code=int(one.error.code),
        )
        for one in error.faults[:100]
    ]
    return problem


def _check_ids(participants: Sequence[ParticipantToCommit]) -> None:
    seen = set()
    for index, one in enumerate(participants):
        if one.transactional_id in seen:
            what = f"{one.transactional_id!r} takes part more than once."
            raise _invalid(what, f"#/participants/{index}/transactional_id")
        seen.add(one.transactional_id)


def check_places(offsets: Sequence[OffsetToDecide]) -> None:
    """Raise Problem (422) if a group commits a partition more than once."""
    seen = set()
    for index, one in enumerate(offsets):
        place = (one.group, one.topic, one.partition)
        if place in seen:
            what = f"Group {one.group!r} commits {one.topic}-{one.partition} more than once."
            raise _invalid(what, f"#/offsets/{index}")
        seen.add(place)


def _participant(one: ParticipantToCommit, *, ephemeral: bool) -> Participant:
    partitions = one.partitions
    return Participant(
        one.transactional_id,
        ProducerIdAndEpoch(one.producer_id, one.producer_epoch),
        None if partitions is None else frozenset(TopicPartition(p.topic, p.partition) for p in partitions),
        one.records,
        ephemeral,
    )


def to_settle(one: OffsetToDecide) -> OffsetToSettle:
    """Return an offset as the broker takes it."""
    expected = ANY_OFFSET
    if "expected" in one.model_fields_set:
        expected = NO_OFFSET if one.expected is None else one.expected
    return OffsetToSettle(
        one.group, one.topic, one.partition, one.offset, expected, one.metadata,
        NO_GENERATION if one.generation_id is None else one.generation_id,
        one.member_id or NO_MEMBER, one.group_instance_id,
    )  # fmt: skip


def _invalid(detail: str, pointer: str) -> Problem:
    return Problem("invalid-request", detail, errors=[field_error(detail, pointer=pointer)])
