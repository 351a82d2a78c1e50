"""The shapes of a transaction in one request."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import UNSET, Meta, Struct, UnsetType

from app.http.parameters import MAX_OFFSET
from app.native.record_schemas import RecordToWrite, RecordWritten
from core.config import Config

_LIMITS = Config()
_Name = Annotated[str, Meta(max_length=1000)]
_Partition = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_OFFSET = {
    "group": "billing", "topic": "orders", "partition": 0, "offset": 42, "expected": 40,
}  # fmt: skip
_PLACE = {
    "partition": 0, "offset": 7, "timestamp": "2025-01-31T12:00:00.000Z", "timestamp_ms": 1738324800000,
}  # fmt: skip
_RECORDS = {"invoices": [{"key": "order-41", "value": {"total": 12}}], "audit": [{"value": "billed"}]}
TopicRecords = Annotated[list[RecordToWrite], Meta(min_length=1)]


class OffsetToCommit(Struct, forbid_unknown_fields=True, gc=False):
    """An offset to commit: the next one that the group reads of a partition."""

    group: _Name
    topic: _Name
    partition: _Partition
    offset: Annotated[int, Meta(ge=0, le=MAX_OFFSET)]
    expected: Annotated[
        Annotated[int, Meta(ge=-1, le=MAX_OFFSET)] | UnsetType | None,
        Meta(
            description="Commit only if this is the committed offset now; null or −1: if none is. Otherwise 409, "
            "with the `actual` one."
        ),
    ] = UNSET
    generation: Annotated[
        Annotated[int, Meta(ge=0, le=2**31 - 1)] | UnsetType | None,
        Meta(
            description="The generation of the member that commits. Without it the group must have no members."
        ),
    ] = UNSET
    member: Annotated[_Name | UnsetType | None, Meta(description="The member that commits.")] = UNSET
    instance: Annotated[
        _Name | UnsetType | None, Meta(description="Its group instance id, if it is a static member.")
    ] = UNSET
    metadata: Annotated[str, Meta(description="Kept with the offset.")] = ""


class BatchToAcknowledge(Struct, forbid_unknown_fields=True, gc=False):
    """The batch of a managed consumer."""

    group: _Name
    consumer: _Name
    ack: Annotated[str, Meta(max_length=100, description="The `ack` of the batch.")]


class TransactionToCommit(Struct, forbid_unknown_fields=True):
    """What is committed together, all or nothing: at least one record, offset or batch."""

    records: Annotated[
        dict[str, TopicRecords],
        Meta(
            max_length=_LIMITS.max_subscription,
            description="Records to write, by topic. A topic that is missing is created before, and stays.",
        ),
    ] = {}
    offsets: Annotated[
        list[OffsetToCommit],
        Meta(max_length=_LIMITS.http_max_records, description="No partition of a group twice."),
    ] = []
    acks: Annotated[
        list[BatchToAcknowledge],
        Meta(max_length=_LIMITS.max_subscription, description="Batches to acknowledge; no consumer twice."),
    ] = []

    EXAMPLES: ClassVar[list[Any]] = [
        {"records": _RECORDS, "offsets": [_OFFSET]},
        {"records": _RECORDS, "acks": [{"group": "billing", "consumer": "c1", "ack": "8c2f01aa.41"}]},
    ]


class OutputOfBatch(Struct):
    """The part of a poll that is committed with the batch before."""

    records: dict[str, TopicRecords] = {}
    offsets: list[OffsetToCommit] = []


class CommittedPart(Struct, gc=False):
    """An offset that is committed now."""

    group: str
    topic: str
    partition: int
    offset: int


class RangeAcknowledged(Struct, gc=False):
    """Offsets of one partition that are acknowledged: from the first up to, without, the next."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int


class BatchAcknowledged(Struct, gc=False):
    """What a batch held; the group's committed offsets are after it now."""

    group: str
    consumer: str
    acknowledged: list[RangeAcknowledged]


class TransactionCommitted(Struct, gc=False):
    """What was committed, in the order of the request."""

    records: Annotated[
        dict[str, list[RecordWritten]], Meta(description="Where each record is now, by topic.")
    ]
    offsets: list[CommittedPart]
    acks: list[BatchAcknowledged]

    EXAMPLES: ClassVar[list[Any]] = [
        {
            "records": {"invoices": [_PLACE], "audit": [_PLACE]},
            "offsets": [{"group": "billing", "topic": "orders", "partition": 0, "offset": 42}],
            "acks": [],
        }
    ]
