"""The shapes of managed consumers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from pydantic import ConfigDict, Field, StrictInt, StrictStr
from typing_extensions import TypeAliasType

from app.native.one_shot_schemas import TransactionCommitted
from app.native.record_schemas import RecordRead
from app.native.schemas import Offset, Partition, Shape
from core.config import Config
from core.vocabulary.groups import ASSIGNORS

_LIMITS = Config()
Milliseconds = Annotated[StrictInt, Field(ge=1, lt=2**31)]
TopicText = Annotated[StrictStr, Field(min_length=1, max_length=249)]
Wait = Annotated[
    StrictInt,
    Field(
        ge=0, le=_LIMITS.max_wait_ms, description="How long to wait, in milliseconds, if nothing is there."
    ),
]
ConsumerState = Literal["unsubscribed", "joining", "stable", "assigned", "fenced"]
EncodingName = Literal["auto", "json", "text", "utf8", "base64"]
# Long enough for the first round of a group (three seconds) and for a quiet topic; short enough for any proxy.
DEFAULT_WAIT_MS = 5_000
# Schemas of what the lean routes read.
_RECORDS: dict[str, Any] = {"items": {"$ref": "#/components/schemas/RecordToWrite"}}
_OFFSETS: dict[str, Any] = {"items": {"$ref": "#/components/schemas/OffsetToCommit"}}
RecordsByTopic = TypeAliasType(
    "RecordsByTopic",
    Annotated[
        dict[TopicText, Annotated[list[Any], Field(min_length=1, json_schema_extra=_RECORDS)]],
        Field(max_length=_LIMITS.max_subscription),
    ],
)
_TIME = "a time: milliseconds since 1970 or ISO 8601"


def _example(*examples: dict[str, Any]) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": list(examples)})


class PartitionOf(Shape):
    """One partition of a topic."""

    topic: TopicText
    partition: Partition


# --- requests -----------------------------------------------------------------------------------------------


class ConsumerToCreate(Shape):
    """What a consumer reads, exactly one of `topics`, `pattern` and `assignments`, and how."""

    model_config = _example(
        {"topics": ["orders"], "start": "earliest"},
        {"name": "audit-1", "pattern": "orders-.*", "ttl_ms": 3600000, "encoding": "base64"},
        {"assignments": [{"topic": "orders", "partition": 0}], "start": "latest"},
    )

    name: Annotated[StrictStr, Field(pattern=r"^[^/:\x00-\x1f\x7f]{1,249}$")] | None = Field(
        default=None, description="Its name in the group; one is made up if there is none."
    )
    topics: list[TopicText] | None = Field(
        default=None,
        min_length=1,
        max_length=_LIMITS.max_subscription,
        description="Topics to share with the group.",
    )
    pattern: Annotated[StrictStr, Field(min_length=1, max_length=10_000)] | None = Field(
        default=None,
        description="An RE2 expression: all topics whose whole name it matches, also later ones.",
    )
    assignments: list[PartitionOf] | None = Field(
        default=None,
        min_length=1,
        max_length=_LIMITS.max_subscription,
        description="Partitions of its own choice, without the group: other consumers may read them as well.",
    )
    start: StrictStr | Offset = Field(
        default="earliest",
        description="Where a partition begins for which the group has committed nothing: `earliest`, `latest`, "
        f"`none` (a poll is refused then), or {_TIME}.",
        examples=["earliest", "2025-01-31T12:00:00Z"],
    )
    encoding: EncodingName = Field(
        default="auto", description="The form of keys and values in the JSON of polls."
    )
    ttl_ms: Annotated[StrictInt, Field(ge=1, le=_LIMITS.consumer_max_ttl_ms)] | None = Field(
        default=None,
        description="How long it lives without any request; five minutes unless the operator says otherwise.",
    )
    session_timeout_ms: Milliseconds = Field(
        default=45_000, description="What its membership in the group says."
    )
    rebalance_timeout_ms: Milliseconds = Field(
        default=60_000, description="How long the group may wait for it to join a round."
    )
    group_instance_id: Annotated[StrictStr, Field(min_length=1, max_length=249)] | None = Field(
        default=None, description="Makes it a static member: a consumer with the same id replaces it."
    )
    assignor: StrictStr | None = Field(
        default=None,
        description=f"The assignor to vote for: {', '.join(ASSIGNORS)}. All members of the group must know one in "
        "common.",
    )
    isolation_level: Literal["read_committed", "read_uncommitted"] = Field(
        default="read_committed",
        description="`read_uncommitted` also delivers records of open and of aborted transactions, as Kafka's "
        "`isolation.level`.",
    )


class Poll(Shape):
    """What to deliver at most, and what was dealt with."""

    model_config = _example(
        {"ack": "8c2f01aa.41", "limit": 100, "wait_ms": 30000},
        {"ack": "8c2f01aa.41", "records": {"invoices": [{"key": "order-41", "value": {"total": 12}}]}},
    )

    ack: Annotated[StrictStr, Field(max_length=100)] | None = Field(
        default=None,
        description="`ack` of the previous batch: all of it is committed. Without it, the batch is delivered again.",
    )
    limit: Annotated[StrictInt, Field(ge=1, le=_LIMITS.http_max_limit)] = Field(
        default=_LIMITS.http_default_limit, description="Records at most."
    )
    max_bytes: Annotated[StrictInt, Field(ge=1, le=_LIMITS.http_max_read_bytes)] = Field(
        default=_LIMITS.http_default_read_bytes,
        description="Bytes of keys, values and headers at most; one record is always delivered.",
    )
    wait_ms: Wait = DEFAULT_WAIT_MS
    records: RecordsByTopic | None = Field(
        default=None,
        description="The output of the batch: records to write, by topic, in one transaction with the "
        "acknowledgement. `ack` is its key: sent again with the same records, it writes nothing and gets the "
        "same answer.",
    )
    offsets: Annotated[list[Any], Field(json_schema_extra=_OFFSETS)] | None = Field(
        default=None,
        max_length=_LIMITS.http_max_records,
        description="Offsets of other groups to commit in the same transaction.",
    )


class Ack(Shape):
    """The batch that was dealt with."""

    model_config = _example({"ack": "8c2f01aa.41"})

    ack: Annotated[StrictStr, Field(max_length=100)]


class PartitionToSeek(PartitionOf):
    """Where to continue in one partition: exactly one of `offset` and `at`."""

    offset: Offset | None = None
    at: StrictStr | None = Field(
        default=None, description=f"`earliest`, `latest`, or {_TIME}.", max_length=60
    )


class SeekTo(Shape):
    """Where to continue: in some partitions, or `at` the same place in all that are assigned."""

    model_config = _example(
        {"at": "earliest"},
        {"partitions": [{"topic": "orders", "partition": 0, "offset": 42}]},
    )

    at: StrictStr | None = Field(
        default=None, description=f"`earliest`, `latest`, or {_TIME}.", max_length=60
    )
    partitions: list[PartitionToSeek] | None = Field(
        default=None, min_length=1, max_length=_LIMITS.max_subscription
    )
    wait_ms: Wait = DEFAULT_WAIT_MS


class SomePartitions(Shape):
    """Partitions; without any, all of them, also those that come later."""

    model_config = _example({"partitions": [{"topic": "orders", "partition": 0}]}, {})

    partitions: list[PartitionOf] | None = Field(
        default=None, min_length=1, max_length=_LIMITS.max_subscription
    )


# --- answers ------------------------------------------------------------------------------------------------


class PositionDetail(Shape):
    """A partition that the consumer owns, and the offset that it will be given next."""

    topic: str
    partition: int
    next_offset: int
    paused: bool


class RangeDetail(Shape):
    """Offsets of one partition: from the first up to, without, the next."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int


class OutstandingBatch(Shape):
    """A batch that was delivered and not acknowledged."""

    ack: str
    partitions: list[RangeDetail]


class ConsumerDetail(Shape):
    """A managed consumer."""

    group_id: str
    name: str
    state: ConsumerState = Field(
        description="`joining` while its group agrees; `stable` as a member; `assigned` with partitions of its own "
        "choice; `fenced` when another member has taken its instance id."
    )
    member_id: str | None
    generation_id: int | None
    topics: list[str] | None
    pattern: str | None
    assignments: list[PartitionOf] | None
    partitions: list[PositionDetail]
    outstanding: OutstandingBatch | None
    start: str
    encoding: str | None
    group_instance_id: str | None
    created: str | None
    expires_in_ms: int = Field(description="How long it is kept from now on without a request.")


class ConsumerList(Shape):
    """The managed consumers of a group, by name."""

    items: list[ConsumerDetail]


class Acked(Shape):
    """What an acknowledgement did.

    `revoked` are partitions that another member has got: their records are delivered again there.
    """

    acknowledged: list[RangeDetail]
    revoked: list[RangeDetail]


class PolledBatch(msgspec.Struct):
    """What a poll delivers. Without records there is nothing to acknowledge.

    The records are written by the means of the lean routes; this is the answer's schema.
    """

    ack: Annotated[
        str | None,
        Meta(
            description="Send it back with the next poll, or to `:ack`, once all of the batch is dealt with."
        ),
    ]
    records: list[RecordRead]
    redelivered: Annotated[
        bool, Meta(description="Whether this batch was delivered before and has not been acknowledged.")
    ]
    state: Annotated[
        ConsumerState, Meta(description="As in the consumer; `joining` explains an empty batch.")
    ]
    partitions: list[RangeDetail]
    committed: Annotated[
        TransactionCommitted | msgspec.UnsetType,
        Meta(
            description="What the poll has committed with the batch before, if it had `records` or `offsets`."
        ),
    ] = msgspec.UNSET
